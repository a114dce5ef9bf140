// Package testenv has what tests of several packages need of the machine, however busy
// and slow it is.
package testenv

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end that have nothing left to do.
const patience = time.Minute

// Main runs the tests of a package, and fails if they leave goroutines behind. Unlike
// goleak it waits longer than half a second for the last of them: net/http lets a
// connection go only half a second after it has refused a request.
func Main(m goleak.TestingM, options ...goleak.Option) {
	code := m.Run()
	for begun := time.Now(); code == 0 && goleak.Find(options...) != nil && time.Since(begun) < patience; {
		continue // a look in vain takes nearly half a second
	}
	goleak.VerifyTestMain(ran(code), options...)
}

// ran are tests that have run already.
type ran int

// Run is goleak.TestingM's.
func (code ran) Run() int { return int(code) }

// Nobody returns an address of this machine at which nobody listens, nor will before the
// end of the test: the port is that of a client. The port of a listener that was closed
// may be anybody's a moment later. The client asks for its port, as the system may give
// one that it chose itself to others too, and then one of them is connected to itself.
func Nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	client, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Close()
		_ = l.Close()
	})
	return client.LocalAddr().String()
}

// Punctual is a reader that notes for how long it has not been read from at most. It is for
// tests of clients that must be in time: one that the machine has kept waiting is no proof.
type Punctual struct {
	io.Reader
	last    time.Time // when it was
	longest time.Duration
}

// NewPunctual returns a reader of r that counts from now on.
func NewPunctual(r io.Reader) *Punctual { return &Punctual{Reader: r, last: time.Now()} }

// Read is io.Reader's.
func (p *Punctual) Read(b []byte) (int, error) {
	p.longest = max(p.longest, time.Since(p.last))
	defer func() { p.last = time.Now() }()
	return p.Reader.Read(b)
}

// Longest returns the longest time between two reads.
func (p *Punctual) Longest() time.Duration { return p.longest }
