package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// In whichever order entries end, the position is behind the longest run of them that
// have.
func TestWindow_Position(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 8))
		w := newWindow(Position{}, 10)
		var all, open []*entry
		require.Nil(t, w.position().After)
		for range 300 {
			if len(w.open) < 10 && rng.IntN(2) == 0 {
				e := newEntry(fmt.Appendf(nil, "%04d", len(all)), make([]byte, rng.IntN(3)), time.Time{})
				require.NoError(t, w.begin(t.Context(), e))
				all, open = append(all, e), append(open, e)
			} else if len(open) > 0 {
				i := rng.IntN(len(open))
				w.finish(open[i])
				open = append(open[:i], open[i+1:]...)
			}
			var want Position
			held := 0
			broken := false
			for _, e := range all {
				if broken = broken || !e.done; broken {
					held += e.size
					continue
				}
				want.After, want.Keys, want.Bytes = e.key, want.Keys+1, want.Bytes+int64(e.size)
			}
			require.Equal(t, want, w.position(), "seed %d", seed)
			require.Equal(t, held, w.bytes)
			require.Equal(t, len(open) == 0, w.empty())
		}
	}
}

// The bytes are bounded, but for a single entry, which must get through.
func TestWindow_Bytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(Position{}, 10)
		huge := &entry{key: []byte("a"), size: windowBytes + 1}
		require.NoError(t, w.begin(t.Context(), huge))
		small := &entry{key: []byte("b"), size: 1}
		begun := make(chan error, 1)
		go func() { begun <- w.begin(t.Context(), small) }()
		time.Sleep(time.Second)
		require.Empty(t, begun)
		w.finish(huge)
		require.NoError(t, <-begun)

		half := &entry{key: []byte("c"), size: windowBytes - 1}
		require.NoError(t, w.begin(t.Context(), half), "exactly as much as may be")
		ctx, stop := context.WithCancel(t.Context())
		defer context.AfterFunc(ctx, w.wake)()
		go func() { begun <- w.begin(ctx, &entry{key: []byte("d"), size: 1}) }()
		time.Sleep(time.Second)
		require.Empty(t, begun)
		stop()
		require.ErrorIs(t, <-begun, context.Canceled)
	})
}

func TestNewEntry_Copies(t *testing.T) {
	t.Parallel()
	key, value := []byte("key"), []byte("value")
	e := newEntry(key, value, time.Time{})
	copy(key, "???")
	copy(value, "?????")
	_ = append(e.key, "YYY"...)
	require.Equal(t, "key", string(e.key))
	require.Equal(t, "value", string(e.value))
	require.Equal(t, 8, e.size)
}

func TestDifference_String(t *testing.T) {
	t.Parallel()
	require.Equal(t, `the key "\x00\xff\n" is missing`, Difference{Key: []byte("\x00\xff\n"), Missing: true}.String())
	require.Contains(t, Difference{Key: []byte("k")}.String(), "another value")
	long := Difference{Key: bytes.Repeat([]byte("k"), 4096)}.String()
	require.Less(t, len(long), 200)
	require.Contains(t, long, "…")
}
