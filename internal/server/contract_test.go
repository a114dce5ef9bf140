package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/server/contracttest"
	"github.com/spillway-go/spillway/internal/store/pebble"
)

const host = contracttest.Host

func get(target string) string { return contracttest.Get(target) }

func put(id, value string) string { return contracttest.Put(id, value) }

// Every line of the contract about single requests holds under every strategy.
func TestContract(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		contracttest.Run(t, s.Addr().String(), false)
		s.dial().requireOpen()
	})
}

// So it does over the embedded store.
func TestContract_Pebble(t *testing.T) {
	someStrategies(t, func(t *testing.T, strategy string) {
		p, err := pebble.Open(pebble.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		s := serveOver(t, p, strategy)
		contracttest.Run(t, s.Addr().String(), false)
		s.dial().requireOpen()
	})
}

// The same table, sent a byte at a time.
func TestContract_SlowClient(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	for _, key := range []string{"big", "big2"} {
		s.store.set(key, strings.Repeat("v", 64<<10)) // its PUT is left out below
	}
	for _, r := range contracttest.Rows() {
		text := r.Text()
		if len(text) > 1000 {
			continue
		}
		c := s.dial()
		for i := range len(text) {
			if _, err := c.conn.Write([]byte{text[i]}); err != nil {
				break // it was refused before its end
			}
		}
		a := c.read(r.Method())
		require.Equal(t, r.Status, a.status, r.Name+a.body)
		_ = c.conn.Close()
	}
}

// A token is asked for before anything else is said.
func TestToken(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.Token = secure.NewToken("secret") })
	c := s.dial()
	for _, request := range []string{
		get("/v0/entity?id=a"), get("/other"), put("a", "value"),
		"GET /v0/entity?id=a" + host + "Authorization: Bearer wrong\n\n",
	} {
		a := c.do(request)
		require.Equal(t, 401, a.status)
		require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
	}
	require.Equal(t, 404, c.do("GET /v0/entity?id=a"+host+"Authorization: Bearer secret\n\n").status)
	a := c.do("PUT /v0/entity?id=a" + host + "Content-Length: 5\nExpect: 100-continue\n\n")
	require.Equal(t, 401, a.status)
	_, ok := s.store.get("a")
	require.False(t, ok)
}
