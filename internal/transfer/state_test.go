package transfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// position returns one that a pass could be at.
func position(rng *rand.Rand) (p Position) {
	key := func() []byte {
		b := make([]byte, 1+rng.IntN(20))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	if p.Keys = rng.Int64N(3) * rng.Int64N(1e12); p.Keys == 0 {
		return p
	}
	p.After, p.Bytes = key(), p.Keys*(1+rng.Int64N(100))
	p.Newer = rng.Int64N(p.Keys + 1)
	p.Different = min(rng.Int64N(100), p.Keys-p.Newer)
	for range min(p.Different, MaxDifferences) {
		p.Differences = append(p.Differences, Difference{key(), rng.IntN(2) == 0})
	}
	return p
}

// What is saved is what is loaded, and no part of it is taken for the whole.
func TestState_SavesWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	none, err := load(path)
	require.NoError(t, err)
	require.Nil(t, none)
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s := state{
			Identity:  Identity{From: "pebble:/ä\n", Source: "s", To: "cassandra:h", Target: "t"},
			Moment:    moment,
			Verifying: rng.IntN(2) == 0,
		}
		if s.Copied = position(rng); s.Verifying {
			s.Verified = position(rng)
		}
		require.NoError(t, s.save(path))
		got, err := load(path)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, &s, got)
		if seed >= 5 {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for n := range len(text) - 1 { // the last is the end of the line
			_, err := parse(text[:n])
			require.Error(t, err, "the first %d bytes", n)
		}
		_, err = parse(append(text, text...))
		require.Error(t, err)
	}
	require.NoFileExists(t, path+".tmp")
}

func TestState_RefusesWhatItHasNotWritten(t *testing.T) {
	t.Parallel()
	whole := `{"format":1,"from":"f","to":"t","source":"s","target":"t","moment":"2026-11-21T00:00:00Z","verifying":true,` +
		`"copied":{"after":"YQ==","keys":1,"bytes":1},"verified":{"keys":0,"bytes":0}}`
	_, err := parse([]byte(whole))
	require.NoError(t, err)
	for what, change := range map[string][2]string{
		"a newer format":               {`"format":1`, `"format":2`},
		"none":                         {`"format":1,`, ``},
		"a field nobody knows":         {`"format":1`, `"format":1,"more":1`},
		"no moment":                    {`"2026-11-21T00:00:00Z"`, `"0001-01-01T00:00:00Z"`},
		"keys without a key":           {`"after":"YQ==",`, ``},
		"a key without keys":           {`"keys":1,"bytes":1`, `"keys":0,"bytes":0`},
		"fewer than none":              {`"keys":1`, `"keys":-1`},
		"verified before copied":       {`"verifying":true,"copied":{"after":"YQ==","keys":1,"bytes":1},"verified":{"keys":0,"bytes":0}`, `"verifying":false,"copied":{"keys":0,"bytes":0},"verified":{"after":"YQ==","keys":1,"bytes":1}`},
		"copied by a verification":     {`"verifying":true`, `"verifying":true,"verify_only":true`},
		"more differences than keys":   {`"verified":{"keys":0`, `"verified":{"different":1,"differences":[{"key":"YQ=="}],"keys":0`},
		"differences not told":         {`"verified":{"keys":0,"bytes":0`, `"verified":{"after":"YQ==","keys":1,"bytes":1,"different":1`},
		"not base64":                   {`YQ==`, `!`},
		"something behind it":          {`"bytes":0}}`, `"bytes":0}}x`},
		"an empty key as the last one": {`"after":"YQ=="`, `"after":""`},
	} {
		require.Contains(t, whole, change[0], what)
		_, err := parse([]byte(strings.Replace(whole, change[0], change[1], 1)))
		require.Error(t, err, what)
	}
	path := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(path, []byte("{}"), 0o600))
	_, err = load(path)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "remove it")
}

// Whatever the file holds, it is refused, or means what its parts say.
func FuzzState(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 10))
		s := state{Format: format, Moment: moment, Verifying: true, Copied: position(rng), Verified: position(rng)}
		text, err := json.Marshal(&s)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse(text)
		if err != nil {
			return
		}
		for _, p := range []*Position{&s.Copied, &s.Verified} {
			if p.Keys < 0 || p.Bytes < p.Keys || (len(p.After) > 0) != (p.Keys > 0) || p.Newer > p.Keys-p.Different {
				t.Fatalf("accepted: %s", text)
			}
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if s2, err := parse(again); err != nil || fmt.Sprint(s2.Copied) != fmt.Sprint(s.Copied) || !bytes.Equal(s2.Verified.After, s.Verified.After) {
			t.Fatalf("%s became %s (%v)", text, again, err)
		}
	})
}
