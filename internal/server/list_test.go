package server

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is asked for, the bounds hold the keys that a look at each of them
// chooses.
func TestList_Bounds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	// Few bytes, the last and the first among them, so that many keys are prefixes
	// and neighbours of others.
	key := func() string {
		b := make([]byte, 1+r.IntN(3))
		for i := range b {
			b[i] = "\x00\x01a\xfe\xff"[r.IntN(5)]
		}
		return string(b)
	}
	queries := 20_000
	if testing.Short() {
		queries = 2000
	}
	for range queries {
		query := url.Values{}
		prefix, start, end, after := key(), key(), "", ""
		if r.IntN(2) == 0 {
			query.Set("prefix", prefix)
			start = ""
		} else {
			query.Set("start", start)
			prefix = ""
			if r.IntN(2) == 0 {
				end = key()
				query.Set("end", end)
			}
		}
		descending := r.IntN(2) == 0
		if descending {
			query.Set("order", "desc")
		}
		switch r.IntN(3) {
		case 0:
			after = key()
			query.Set("after", after)
		case 1:
			after = key()
			query.Set("after64", base64.RawURLEncoding.EncodeToString([]byte(after)))
		}
		p, buf, bad := parseQuery([]byte(query.Encode()), nil)
		require.Nil(t, bad)
		var q request
		_, bad = q.setRange(&p, 3, buf)
		require.Nil(t, bad)
		for range 20 {
			k := key()
			want := k >= start && (end == "" || k < end) && strings.HasPrefix(k, prefix)
			if after != "" && descending {
				want = want && k < after
			} else if after != "" {
				want = want && k > after
			}
			got := k >= string(q.key) && (len(q.list.end) == 0 || k < string(q.list.end))
			require.Equal(t, want, got, "%q in %s, seed %d", k, query.Encode(), seed)
		}
	}
}

// Who follows next gets every key once, in order, whatever the size of the pages.
func TestList_Pages(t *testing.T) {
	limits := []int{1, 7, 22, 23, 24}
	if testing.Short() {
		limits = []int{7, 23}
	}
	someStrategies(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		var keys []string
		for i := range 23 {
			k := "p" + string([]byte{byte(i * 11)})
			keys = append(keys, k)
			s.store.set(k, strings.Repeat("v", 12_000*(i%3)))
		}
		s.store.set("o", "before")
		s.store.set("q", "behind")
		c := s.dial()
		for _, query := range []string{"prefix=p", "start=p&end=q", "prefix=p&keys=only", "prefix=p&order=desc", "start=p&end=q&order=desc&keys=only"} {
			want := slices.Clone(keys)
			if strings.Contains(query, "desc") {
				slices.Reverse(want)
			}
			for _, limit := range limits {
				var got []string
				next, pages := "", 0
				for pages == 0 || next != "" {
					target := "/v0/entities?" + query + "&limit=" + strconv.Itoa(limit)
					if next != "" {
						target += "&after64=" + next
					}
					a := c.do("GET " + target + host + "Accept: application/x-ndjson\n\n")
					require.Equal(t, 200, a.status)
					require.NoError(t, a.broken)
					next = ""
					for line := range strings.Lines(a.body) {
						require.Empty(t, next, "it is the last line")
						var o struct {
							Key   []byte
							Value *[]byte
							Next  string
						}
						require.NoError(t, json.Unmarshal([]byte(line), &o))
						if next = o.Next; next == "" {
							got = append(got, string(o.Key))
							require.Equal(t, strings.Contains(query, "keys=only"), o.Value == nil)
						}
					}
					pages++
				}
				require.Equal(t, want, got, "%s by %d", query, limit)
				require.Equal(t, (len(keys)+limit-1)/limit, pages, "no page is empty")
			}
		}
	})
}
