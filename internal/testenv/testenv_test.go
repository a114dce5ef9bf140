package testenv

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func TestNobody(t *testing.T) {
	t.Parallel()
	address := Nobody(t)
	for range 100 {
		_, err := net.Dial("tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NotEqual(t, address, l.Addr().String())
		require.NoError(t, l.Close())
	}
	_, err := net.Listen("tcp", address)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}
