package fronttest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Pipes is a listener whose connections are in memory, so that time can be virtual.
type Pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

// NewPipes returns a listener that is open.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

// Accept returns the other end of what Dial returns.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. It is called once.
func (p *Pipes) Close() error { close(p.ended); return nil }

// Addr returns an address that nobody can dial.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// Dial connects.
func (p *Pipes) Dial() net.Conn {
	mine, theirs := net.Pipe()
	p.conns <- theirs
	return mine
}

// Dial connects to a service, until the end of the test.
func Dial(t testing.TB, addr net.Addr) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn), bufio.NewReader(c)
}

// RequireEnded waits for the end of a connection.
func RequireEnded(t testing.TB, r io.Reader) {
	t.Helper()
	rest, err := io.ReadAll(r)
	require.Empty(t, string(rest))
	if err != nil {
		require.ErrorContains(t, err, "reset")
	}
}

// Throw sends the input over a connection of its own, ends its side, and returns what comes
// back. The service may reset the connection, but must end it.
func Throw(t testing.TB, addr net.Addr, input []byte) (output []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	go func() {
		_, _ = c.Write(input)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	output, err = io.ReadAll(c)
	var network net.Error
	require.False(t, errors.As(err, &network) && network.Timeout(), "the connection does not end")
	return output
}

// SelfSigned returns a certificate for 127.0.0.1, and what trusts it.
func SelfSigned(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
