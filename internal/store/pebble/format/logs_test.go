package format

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/stretchr/testify/require"
)

// manifestOf returns a manifest of those changes.
func manifestOf(t *testing.T, changes ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for _, c := range changes {
		_, err := w.WriteRecord(c)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestMinUnflushed(t *testing.T) {
	t.Parallel()
	first := []byte("\x01\x03cmp\x02\x07\x03\x09") // comparer, log 7, next file 9
	for _, row := range []struct {
		what    string
		changes [][]byte
		number  uint64
		known   bool
	}{
		{"the number is behind the comparer", [][]byte{first}, 7, true},
		{"the last change counts", [][]byte{first, []byte("\x02\x0c")}, 12, true},
		{"other changes leave it", [][]byte{first, []byte("\x03\x02"), {}}, 7, true},
		{"no change says it", [][]byte{[]byte("\x01\x03cmp\x03\x09")}, 0, false},
		{"there is none", nil, 0, false},
		{"a number is cut off", [][]byte{[]byte("\x02")}, 0, false},
		{"a comparer is cut off", [][]byte{[]byte("\x01\x09cmp")}, 0, false},
	} {
		number, known := MinUnflushed(manifestOf(t, row.changes...))
		require.Equal(t, row.known, known, row.what)
		require.Equal(t, row.number, number, row.what)
	}
}

// A log is missed if it is named and needed, and by a note that is whole.
func TestCompareLogs(t *testing.T) {
	t.Parallel()
	manifest := manifestOf(t, []byte("\x01\x03cmp\x02\x07"))
	compare := func(note []byte, names ...string) error {
		return CompareLogs(func(string) ([]byte, error) {
			if note == nil {
				return nil, fs.ErrNotExist
			}
			return note, nil
		}, names, manifest)
	}
	note := LogsNote([]uint64{9, 5, 7})
	require.Len(t, note, LogsBytes)
	require.NoError(t, compare(note, "000007.log", "000009.log"), "5 is not needed")
	var missing *MissingLogError
	require.ErrorAs(t, compare(note, "000005.log", "000007.log"), &missing)
	require.Equal(t, "000009.log", missing.Name)
	require.NoError(t, compare(nil))
	require.NoError(t, compare(LogsNote(nil)))
	require.NoError(t, compare([]byte{}))

	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 { // what a power cut or a bad disk leaves refuses nothing
		torn := bytes.Clone(note)
		torn[r.IntN(30)] ^= byte(1 + r.IntN(255))
		require.NoError(t, compare(torn))
	}

	var many []uint64
	for n := range uint64(1000) {
		many = append(many, n)
	}
	require.Len(t, LogsNote(many), LogsBytes)
	require.ErrorAs(t, compare(LogsNote(many)), &missing, "the latest are named")
}
