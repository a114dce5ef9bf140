//go:build !race

package workload

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestReadTargets(t *testing.T) {
	t.Parallel()
	read := func(name string) ([]byte, error) {
		if name != "/body.json" {
			return nil, errors.New("no " + name)
		}
		return []byte("{}"), nil
	}
	for name, tt := range map[string]struct {
		text string
		want []Target
		says string
	}{
		"as vegeta has them": {
			text: "# comment\nGET http://goku:9090/path/to/dragon?item=ball\nX-Account-ID: 8675309\n\n" +
				"DELETE http://goku:9090/path\nConfirmation-Token: 90215\nAuthorization: Token DEADBEEF\n\n" +
				"POST http://goku:9090/things\n@/body.json\n\nPATCH http://goku:9090/thing/71988591\nContent-Type:application/json\n@/body.json\n",
			want: []Target{
				{Method: "GET", URL: "http://goku:9090/path/to/dragon?item=ball", Headers: []string{"X-Account-ID: 8675309"}},
				{Method: "DELETE", URL: "http://goku:9090/path", Headers: []string{"Confirmation-Token: 90215", "Authorization: Token DEADBEEF"}},
				{Method: "POST", URL: "http://goku:9090/things", Body: []byte("{}")},
				{Method: "PATCH", URL: "http://goku:9090/thing/71988591", Headers: []string{"Content-Type: application/json"}, Body: []byte("{}")},
			},
		},
		"one after the other":     {text: "GET /a\n  GET /b\r\n", want: []Target{{Method: "GET", URL: "/a"}, {Method: "GET", URL: "/b"}}},
		"a comment among headers": {text: "GET /a\n# why\nX-A: b: c", want: []Target{{Method: "GET", URL: "/a", Headers: []string{"X-A: b: c"}}}},
		"a weight":                {text: "2.5 GET /a", want: []Target{{Method: "GET", URL: "/a", Weight: 2.5}}},

		"nothing":          {text: "\n# nothing\n", says: "there is no target"},
		"no method":        {text: "GET /a\n\nhttp://b", says: `line 3: bad target "http://b"`},
		"a small method":   {text: "get /a", says: `line 1: bad target "get /a"`},
		"three words":      {text: "GET /a /b", says: "a weight above 0"},
		"no weight":        {text: "0 GET /a", says: "a weight above 0"},
		"no header":        {text: "GET /a\nX-A", says: `line 2: header: "X-A" is not of the form Name: value`},
		"a header of ours": {text: "GET /a\nContent-Length: 3", says: `line 2: header: "Content-Length" is the generator's own to send`},
		"no body":          {text: "GET /a\n@/gone", says: "line 2: no /gone"},
		"two bodies":       {text: "GET /a\n@/body.json\n@/body.json", says: "line 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			targets, err := ReadTargets(iotest.OneByteReader(strings.NewReader(tt.text)), read)
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, targets)
			o := Options{Targets: targets}.WithDefaults()
			require.NoError(t, o.Check())
		})
	}
}

func TestOptions_CheckTargets(t *testing.T) {
	t.Parallel()
	for says, target := range map[string]Target{
		`"connect" is not a method`:      {Method: "connect", URL: "/"},
		`"CONNECT" is not a method`:      {Method: "CONNECT", URL: "/"},
		`"GET /a" is not a method`:       {Method: "GET /a", URL: "/"},
		"a weight of -1 is not":          {Method: "GET", URL: "/", Weight: -1},
		`"A\r\nB: c" is not of the form`: {Method: "GET", URL: "/", Headers: []string{"A\r\nB: c"}},
		"take more than 4 GiB":           {Method: "GET", URL: "/", Body: make([]byte, 70<<20)},
	} {
		o := Options{Targets: []Target{target}}.WithDefaults()
		require.ErrorContains(t, o.Check(), says)
	}
}

// Targets come as often as they weigh, whether they are few or many.
func TestStream_Targets(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 100} {
		o := Options{Seed: 3}
		for range n {
			o.Targets = append(o.Targets, Target{Method: "GET", URL: "/"})
		}
		o.Targets[n-1].Weight = float64(n - 1) // as often as all others
		o = o.WithDefaults()
		stream := NewStream(&o)
		counts := make([]int, n)
		const requests = 20_000
		var r Request
		for range requests {
			stream.Next(&r)
			require.Equal(t, r.Target-1, r.Asks())
			counts[r.Asks()]++
		}
		require.InDelta(t, requests/2, counts[n-1], requests/50)
		require.Positive(t, counts[0])
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{
		"200": {200}, "2xx,304": {200, 299, 304}, "201-203, 599": {201, 202, 203, 599},
	} {
		var c Codes
		require.NoError(t, c.UnmarshalText([]byte(text)))
		set, ok := c.Set()
		require.True(t, ok)
		for _, code := range want {
			require.True(t, set[code], "%s: %d", text, code)
		}
		require.False(t, set[300])
		require.False(t, set[404])
	}
	for _, text := range []string{"2x", "99", "1000", "xx", "300-200", "200,", "-200", "2xx-3xx"} {
		require.ErrorContains(t, new(Codes).UnmarshalText([]byte(text)), "bad status codes", text)
	}
}
