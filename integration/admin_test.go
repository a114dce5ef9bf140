//go:build integration

package integration

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAdmin_Profiles(t *testing.T) {
	t.Parallel()
	s := start(t, raced)
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- concurrently(16, func(i int) error {
			c, err := dial(s.data)
			if err != nil {
				return err
			}
			defer c.close()
			for !stop.Load() {
				if _, err := c.do(http.MethodPut, entity(fmt.Sprint("k", i)), "v"); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	t.Cleanup(func() { stop.Store(true) })

	for _, path := range []string{"", "goroutine?debug=1", "heap", "allocs", "threadcreate", "cmdline", "symbol", "trace?seconds=0.1"} {
		require.Equal(t, http.StatusOK, s.request(http.MethodGet, s.adminURL("/debug/pprof/"+path), "").status, path)
	}
	// A busy machine may leave the service little of a second.
	s.eventually("the profile shows the service's own code", func() bool {
		a := s.request(http.MethodGet, s.adminURL("/debug/pprof/profile?seconds=1"), "")
		require.Equal(t, http.StatusOK, a.status, a.body)
		zipped, err := gzip.NewReader(strings.NewReader(a.body))
		require.NoError(t, err)
		profile, err := io.ReadAll(zipped)
		require.NoError(t, err)
		return strings.Contains(string(profile), "spillway/")
	})

	for _, kind := range []string{"mutex", "block"} {
		s.eventually("the "+kind+" profile holds samples", func() bool {
			a := s.request(http.MethodGet, s.adminURL("/debug/pprof/"+kind+"?debug=1"), "")
			require.Equal(t, http.StatusOK, a.status)
			return strings.Contains(a.body, " @ 0x") // cycles, count @ stack
		})
	}
	stop.Store(true)
	require.NoError(t, <-done)
	s.stop()
}

func TestAdmin_Config(t *testing.T) {
	t.Parallel()
	s := start(t, raced, "SPILLWAY_WORKERS=3", "SPILLWAY_ADMIN_TOKEN=verysecret1", "SPILLWAY_DATA_TOKEN=verysecret2")
	a := s.request(http.MethodGet, s.adminURL("/config"), "", "Authorization: Bearer verysecret1")
	require.Equal(t, http.StatusOK, a.status)
	require.True(t, json.Valid([]byte(a.body)), a.body)
	require.Contains(t, a.body, "SPILLWAY_WORKERS")
	require.NotContains(t, a.body, "verysecret")
	require.NotContains(t, s.stderr.String(), "verysecret")
	require.Contains(t, a.body, s.data, "the address really bound")
	require.Contains(t, a.body, s.admin)
	s.stop()
}

func TestAdmin_Routes(t *testing.T) {
	t.Parallel()
	s := start(t, raced)
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/strategy", "/config"} {
		require.Equal(t, http.StatusOK, s.request(http.MethodGet, s.adminURL(path), "").status, path)
		if path != "/" {
			a := s.request(http.MethodGet, s.dataURL(path), "")
			require.Equal(t, http.StatusBadRequest, a.status, "the admin plane is never served on the data port")
		}
	}
	s.request(http.MethodGet, s.adminURL("/nowhere"), "").requireProblem(t, http.StatusNotFound)
	s.request(http.MethodDelete, s.adminURL("/strategy"), "").requireProblem(t, http.StatusMethodNotAllowed)
	s.request(http.MethodGet, s.adminURL("/v0/entity?id=k"), "").requireProblem(t, http.StatusNotFound)
	s.stop()
}

// Without the token nothing is served but the health of the service.
func TestAdmin_Tokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("for-admins\n"), 0o600))
	s := start(t, raced, "SPILLWAY_DATA_TOKEN=for-data", "SPILLWAY_ADMIN_TOKEN_FILE="+file)
	for _, test := range []struct{ url, method, token string }{
		{s.dataURL(entity("k")), http.MethodPut, "for-data"},
		{s.dataURL("/v0/entities?start=a"), http.MethodGet, "for-data"},
		{s.adminURL("/metrics"), http.MethodGet, "for-admins"},
		{s.adminURL("/debug/pprof/"), http.MethodGet, "for-admins"},
		{s.adminURL("/strategy"), http.MethodGet, "for-admins"},
		{s.adminURL("/config"), http.MethodGet, "for-admins"},
	} {
		for _, wrong := range []string{"", "Authorization: Bearer wrong", "Authorization: Basic " + test.token, "Authorization: Bearer " + test.token + "x"} {
			var headers []string
			if wrong != "" {
				headers = []string{wrong}
			}
			a := s.request(test.method, test.url, "v", headers...)
			a.requireProblem(t, http.StatusUnauthorized)
			require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
		}
		a := s.request(test.method, test.url, "v", "Authorization: Bearer "+test.token)
		require.Equal(t, 2, a.status/100, "%s: %s", test.url, a.body)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		require.Equal(t, http.StatusOK, s.request(http.MethodGet, s.adminURL(path), "").status)
	}
	s.stop()
}

// certificate writes a self-signed certificate with its key.
func certificate(t *testing.T, folder, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		// By renaming, as certificates are replaced in earnest.
		require.NoError(t, os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	return cert, key
}

// TLS is on both planes, and follows its files.
func TestTLS(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cert, key := certificate(t, folder, "first")
	s := start(t, raced, "SPILLWAY_TLS_CERT="+cert, "SPILLWAY_TLS_KEY="+key)
	value := strings.Repeat("v", 100_000)
	for range 3 {
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity("k")), value).status)
		require.Equal(t, value, s.request(http.MethodGet, s.dataURL(entity("k")), "").body)
	}
	served := func(addr string) string {
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "first", served(s.data))
	require.Equal(t, "first", served(s.admin))

	certificate(t, folder, "second")
	for _, addr := range []string{s.data, s.admin} {
		s.eventually("the new certificate is served", func() bool { return served(addr) == "second" })
	}
	require.Equal(t, value, s.request(http.MethodGet, s.dataURL(entity("k")), "").body)

	// Files that do not make a pair leave the old one in place.
	said := len(s.stderr.String())
	require.NoError(t, os.WriteFile(cert, []byte("broken"), 0o600))
	s.eventually("the broken certificate is complained about", func() bool {
		require.Equal(t, "second", served(s.data))
		log := s.stderr.String()[said:]
		return strings.Contains(log, "WARN") || strings.Contains(log, "ERROR")
	})

	// Plain HTTP is not served, and does no harm.
	conn, err := net.Dial("tcp", s.data)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	got, _ := io.ReadAll(conn)
	_ = conn.Close()
	require.False(t, bytes.HasPrefix(got, []byte("HTTP/1.1 200")))
	s.stop()
}

// A backup is made while the service writes on, and is a data folder of its own.
func TestBackup(t *testing.T) {
	t.Parallel()
	s := start(t, raced, "SPILLWAY_SYNC=never")
	const keys = 200
	write := func(prefix string) {
		c := s.dial()
		for i := range keys {
			a, err := c.do(http.MethodPut, entity(fmt.Sprint(prefix, i)), fmt.Sprint("value", i))
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, a.status)
		}
	}
	write("before")
	folder := filepath.Join(t.TempDir(), "backup")
	order := fmt.Sprintf(`{"dir":%q}`, folder)
	a := s.request(http.MethodPost, s.adminURL("/backup"), order)
	require.Equal(t, http.StatusOK, a.status, a.body)
	write("after")
	a = s.request(http.MethodPost, s.adminURL("/backup"), order)
	require.Equal(t, 4, a.status/100, "a folder that is there already is left alone: %s", a.body)

	second := start(t, raced, "SPILLWAY_DATA_DIR="+folder)
	c := second.dial()
	for i := range keys {
		a, err := c.do(http.MethodGet, entity(fmt.Sprint("before", i)), "")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("value", i), a.body)
		a, err = c.do(http.MethodGet, entity(fmt.Sprint("after", i)), "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, a.status)
	}
	second.stop()
	s.stop()
}
