package secure

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestToken_Allows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		token, authorization string
		allowed              bool
	}{
		// Without a token everything is allowed.
		{"", "", true},
		{"", "Bearer anything", true},
		// The token itself, under a scheme in any case (RFC 9110, 11.1).
		{"secret", "Bearer secret", true},
		{"secret", "bearer secret", true},
		{"secret", "BEARER  secret ", true},
		// Anything else is not allowed.
		{"secret", "", false},
		{"secret", "secret", false},
		{"secret", "Bearer", false},
		{"secret", "Bearer ", false},
		{"secret", "Bearer secre", false},
		{"secret", "Bearer secret2", false},
		{"secret", "Bearer Secret", false},
		{"secret", "Bearer secret secret", false},
		{"secret", "Basic secret", false},
		{"secret", "Bearersecret", false},
	} {
		require.Equal(t, tt.allowed, NewToken(tt.token).Allows([]byte(tt.authorization)), "token %q, header %q", tt.token, tt.authorization)
	}
	require.True(t, Token{}.Allows(nil), "the zero value allows everything")
}

func TestToken_AllocatesNothing(t *testing.T) {
	token, header := NewToken("secret"), []byte("Bearer secret")
	require.Zero(t, testing.AllocsPerRun(100, func() { token.Allows(header) }))
}

// files are a certificate and its key that a test replaces.
type files struct {
	t         *testing.T
	cert, key string
	written   time.Time
}

func newFiles(t *testing.T) *files {
	t.Helper()
	dir := t.TempDir()
	return &files{t: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), written: time.Now().Add(-time.Hour)}
}

// newPair makes a certificate for that name, and its key.
func newPair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// write writes the file with a time of its own, however fast the test is.
func (f *files) write(name string, content []byte) {
	f.written = f.written.Add(time.Minute)
	require.NoError(f.t, os.WriteFile(name, content, 0o600))
	require.NoError(f.t, os.Chtimes(name, f.written, f.written))
}

// replace gives the file another content, of the same size and time of modification.
func (f *files) replace(name string, content []byte) {
	before, err := os.Stat(name)
	require.NoError(f.t, err)
	for int64(len(content)) < before.Size() {
		content = append(content, '\n')
	}
	require.Len(f.t, content, int(before.Size()))
	require.NoError(f.t, os.WriteFile(name, content, 0o600))
	require.NoError(f.t, os.Chtimes(name, before.ModTime(), before.ModTime()))
}

func (f *files) writeBoth(cert, key []byte) {
	f.write(f.cert, cert)
	f.write(f.key, key)
}

func TestPair_FollowsTheFiles(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.writeBoth(newPair(t, "one"))
	var logged bytes.Buffer
	now := time.Now()
	p := &pair{certFile: f.cert, keyFile: f.key, log: slog.New(slog.NewTextHandler(&logged, nil)), now: func() time.Time { return now }}
	_, err := p.loadLocked()
	require.NoError(t, err)
	name := func() string {
		leaf, err := x509.ParseCertificate(p.certificate().Certificate[0])
		require.NoError(t, err)
		return leaf.DNSNames[0]
	}
	require.Equal(t, "one", name())

	// Within a second the files are not looked at again.
	two, key := newPair(t, "two")
	f.writeBoth(two, key)
	now = now.Add(recheck - 1)
	require.Equal(t, "one", name())
	now = now.Add(1)
	require.Equal(t, "two", name())
	require.Contains(t, logged.String(), "reloaded")

	// A certificate without its key keeps the one before, and is said once.
	logged.Reset()
	three, key := newPair(t, "three")
	f.write(f.cert, three)
	for range 3 {
		now = now.Add(recheck)
		require.Equal(t, "two", name())
	}
	require.Equal(t, 1, strings.Count(logged.String(), "cannot be used"))

	// Once the key is there as well, both are taken.
	f.write(f.key, key)
	now = now.Add(recheck)
	require.Equal(t, "three", name())

	// Files that have gone keep the one before, too, until they are back.
	logged.Reset()
	require.NoError(t, os.Remove(f.key))
	for range 3 {
		now = now.Add(recheck)
		require.Equal(t, "three", name())
	}
	require.Equal(t, 1, strings.Count(logged.String(), "cannot be used"))
	four, key := newPair(t, "four")
	f.writeBoth(append(four, strings.Repeat("\n", 64)...), key) // room for a longer signature
	now = now.Add(recheck)
	require.Equal(t, "four", name())

	// A pair of the same sizes, whose files bear the times of those before.
	logged.Reset()
	cert, key := newPair(t, "five")
	f.replace(f.cert, cert)
	f.replace(f.key, key)
	now = now.Add(recheck)
	require.Equal(t, "five", name())
	require.Contains(t, logged.String(), "reloaded")
}

func TestTLS_Errors(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	_, err := TLS(f.cert, f.key, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, f.cert)

	cert, _ := newPair(t, "one")
	_, key := newPair(t, "other")
	f.writeBoth(cert, key)
	_, err = TLS(f.cert, f.key, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, f.key)
}

// What is no file of a certificate is neither waited for nor kept in memory. A reload goes on with the one before.
func TestTLS_NoSuchFile(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	cert, key := newPair(t, "one")
	fifo := f.cert + ".fifo"
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	large := f.cert + ".large"
	require.NoError(t, os.WriteFile(large, append(cert, make([]byte, MaxFile)...), 0o600))
	for name, want := range map[string]string{
		fifo: "it is no regular file", "/dev/zero": "it is no regular file", t.TempDir(): "it is no regular file",
		large: "it has more bytes than the 65536 that are allowed",
	} {
		_, err := TLS(name, f.key, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, name)
	}

	var logged bytes.Buffer
	now := time.Now()
	f.writeBoth(cert, key)
	p := &pair{certFile: f.cert, keyFile: f.key, log: slog.New(slog.NewTextHandler(&logged, nil)), now: func() time.Time { return now }}
	_, err := p.loadLocked()
	require.NoError(t, err)
	before := p.certificate()
	require.NoError(t, os.Rename(fifo, f.key))
	now = now.Add(recheck)
	require.Same(t, before, p.certificate())
	require.Contains(t, logged.String(), "it is no regular file")
}

func TestTLS_Handshake(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.writeBoth(newPair(t, "one"))
	config, err := TLS(f.cert, f.key, slog.New(slog.DiscardHandler))
	require.NoError(t, err)

	for _, tt := range []struct {
		version uint16
		ok      bool
	}{{tls.VersionTLS13, true}, {tls.VersionTLS12, true}, {tls.VersionTLS11, false}} {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
		require.NoError(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			if conn, err := listener.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake()
				_ = conn.Close()
			}
		}()
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tt.version, NextProtos: []string{"h2", "http/1.1"},
		})
		require.Equal(t, tt.ok, err == nil, "TLS version %x: %v", tt.version, err)
		if err == nil {
			require.Equal(t, "http/1.1", conn.ConnectionState().NegotiatedProtocol)
			require.NoError(t, conn.Close())
		}
		<-served
		require.NoError(t, listener.Close())
	}
}
