package httpfront

import (
	"bufio"
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// readChunks returns the data of a chunked body, and what follows the last chunk.
func readChunks(r io.Reader) (data, behind []byte, err error) {
	b := bufio.NewReaderSize(r, 64)
	for k := (Chunks{}); ; {
		n, err := k.Next(b)
		if err != nil {
			return data, nil, err
		}
		if n == 0 {
			behind, err = io.ReadAll(b)
			return data, behind, err
		}
		piece, err := io.ReadAll(io.LimitReader(b, int64(n)))
		data = append(data, piece...)
		if err != nil || len(piece) < n {
			return data, nil, io.ErrUnexpectedEOF
		}
	}
}

// Chunks are found wherever the bytes are cut, and net/http finds the same in whatever is
// accepted.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n0;c\r\nX: y\r\n\r\n", "0\r\n\r\n", "a\r\n0123456789\r\n0  \r\n\r\n",
		"5;\x00\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\n", "5\nhello\n0\n\n", "1;\r\rx\r\n", "5 ;a\r\nhello\r\n0\r\n\r\n",
		"1;" + strings.Repeat("x", 4000) + "\r\na\r\n0\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		data, behind, err := readChunks(bytes.NewReader(input))
		again, behindAgain, errAgain := readChunks(iotest.OneByteReader(bytes.NewReader(input)))
		require.Equal(t, err, errAgain)
		require.Equal(t, data, again)
		require.Equal(t, behind, behindAgain)
		if err != nil {
			return
		}
		r := bufio.NewReader(bytes.NewReader(input))
		theirs, err := io.ReadAll(httputil.NewChunkedReader(r))
		if err != nil && (strings.Contains(err.Error(), "too much non-data") || strings.Contains(err.Error(), "line too long")) {
			return // it counts the lines of the chunks too, and bounds each
		}
		require.NoError(t, err, "%q", input)
		require.Equal(t, string(data), string(theirs), "%q", input)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, string(behind), string(rest), "%q", input)
	})
}
