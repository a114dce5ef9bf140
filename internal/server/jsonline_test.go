package server

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/executor"
)

// Whatever line of a batch is taken says the same to encoding/json.
func FuzzStep(f *testing.F) {
	for _, s := range []string{
		`{"op":"put","key":"YQ==","value":"","ttl":5,"if_none_match":"*"}`, `{"\u006fp":"g\u0065t","key":"Y\u0051=="}`,
		` { "op" : "delete" , "key" : "YQ==" , "if_match" : "\"x\"" } `, `{"op":"get","key":"YQ"}`, `{"op":"get","key":"YQ==","key":"YQ=="}`,
		`{"op":"put","key":"YQ==","value":"Zm9v","ttl":1e3}`, `{"op":"get"}x`, `{`, `{}`, `{"op":"\ud83d\ude00"}`, `{"op":"\ud83d"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var step executor.Step
		if parseStep(&step, []byte(line), &Options{MaxKeyBytes: 100, MaxValueBytes: 1000}) != nil {
			return
		}
		var theirs struct {
			Op         string
			Key, Value []byte
			TTL        uint32
		}
		require.NoError(t, json.Unmarshal([]byte(line), &theirs), line)
		require.Equal(t, map[string]executor.Kind{"get": executor.Get, "put": executor.Put, "delete": executor.Delete}[theirs.Op], step.Kind, line)
		require.Equal(t, string(theirs.Key), string(step.Key), line)
		require.Equal(t, string(theirs.Value), string(step.Value), line)
		require.Equal(t, theirs.TTL, step.TTL, line)
	})
}

// Strings are read as encoding/json reads them, but for halves of a pair, which it replaces.
func FuzzText(f *testing.F) {
	for _, s := range []string{`a`, `\"\\\/\b\f\n\r\t`, `\u0041\u00e9\u20AC`, `\ud83d\ude00`, `\ud83d`, `\ude00\ud83d`, `\x`, `\u12`, `\u+123`, `\u12_4`, "\t", `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.Contains(text, "\uFFFD") || strings.Contains(strings.ToLower(text), "fffd") {
			return
		}
		line := `"` + text + `"`
		p := jsonLine{rest: []byte(line)}
		ours := string(p.text())
		var theirs string
		err := json.Unmarshal([]byte(line), &theirs)
		if p.bad == "" && len(p.rest) == 0 {
			require.NoError(t, err, line)
			require.Equal(t, theirs, ours, line)
		} else if err == nil {
			require.Contains(t, theirs, "\uFFFD", line)
		}
	})
}
