package httpfront

import (
	"bufio"
	"cmp"
	"errors"
)

// mostBeside is how many bytes the extensions of the chunks of one body may have in all.
const mostBeside = 16 << 10

var (
	errChunkSize  = errors.New("a chunk does not begin with its size in hexadecimal digits")
	errChunkLine  = errors.New("the line of a chunk is neither its size, extensions, CR LF, nor has it printable bytes alone")
	errChunkEnd   = errors.New("a chunk is not as long as it says")
	errExtensions = errors.New("the extensions of the chunks have more than 16384 bytes in all")
)

// Chunks finds the data of a chunked body, of at most 16 KiB of extensions, in what a reader
// gives (RFC 9112, 7.1). It leaves the data, and the trailers, to be read by others.
type Chunks struct {
	begun  bool
	beside int // bytes of extensions so far
}

// Next takes the line that begins a chunk, and returns how many bytes of data follow: 0 if
// the trailers do. It must be called first, and again when the data has been read.
func (k *Chunks) Next(r *bufio.Reader) (size int, err error) {
	if k.begun {
		if err := takeLineEnd(r, errChunkEnd); err != nil {
			return 0, err
		}
	}
	k.begun = true
	b, err := r.ReadByte()
	digits := 0
	for ; err == nil && Unhex(b) <= 15; b, err = r.ReadByte() {
		if digits++; digits > 15 { // more may not fit
			return 0, errChunkSize
		}
		size = size<<4 | int(Unhex(b))
	}
	if err == nil && digits == 0 {
		return 0, errChunkSize
	}
	// Blanks may stand before the line's end, but not before extensions. A string that does not
	// end with its line may go on behind it for others.
	quoted, escaped := false, false
	for first := b; err == nil && b != '\r'; b, err = r.ReadByte() {
		blank := b == ' ' || b == '\t'
		if !blank && (first != ';' || b < ' ' || b == 0x7f) {
			return 0, errChunkLine
		}
		quoted, escaped = quoted != (b == '"' && !escaped), quoted && b == '\\' && !escaped
		if k.beside++; k.beside > mostBeside {
			return 0, errExtensions
		}
	}
	if quoted {
		err = cmp.Or(err, errChunkLine)
	}
	if err == nil {
		err = r.UnreadByte()
	}
	if err != nil {
		return 0, err
	}
	return size, takeLineEnd(r, errChunkLine)
}

// takeLineEnd takes CR LF, and returns otherwise if something else is there.
func takeLineEnd(r *bufio.Reader, otherwise error) error {
	for _, want := range []byte(lineEnd) {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		if b != want {
			return otherwise
		}
	}
	return nil
}
