package httpfront

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Clients are told apart by IPv4 address and IPv6 network, and nothing is kept of
// those that have gone.
func TestAddresses(t *testing.T) {
	t.Parallel()
	var a addresses
	a.setLimit(2)
	for _, step := range []struct {
		peer  string
		taken bool
	}{
		{"10.0.0.1", true},
		{"10.0.0.1", true},
		{"10.0.0.1", false},
		{"::ffff:10.0.0.1", false},
		{"10.0.0.2", true},
		{"2001:db8::1", true},
		{"2001:db8::2", true},
		{"2001:db8::2", false},
		{"2001:db8:0:0:ffff::", false},
		{"2001:db8:0:1::", true},
		{"fe80::1%eth0", true},
		{"fe80::1%eth1", true},
		{"fe80::2%eth0", false},
		{"", true}, {"", true}, {"", true}, // of no address
	} {
		require.Equal(t, step.taken, a.take(step.peer), step.peer)
	}
	require.Len(t, a.open, 5)
	a.give("10.0.0.1")
	require.True(t, a.take("::ffff:10.0.0.1"))
	for _, peer := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::1", "2001:db8:0:1::", "fe80::1", "fe80::1", ""} {
		a.give(peer)
	}
	require.Empty(t, a.open)

	var none addresses
	for range 3 {
		require.True(t, none.take("10.0.0.1"))
	}
	none.give("10.0.0.1")
	require.Nil(t, none.open)
}

// A limit that comes, or goes, while connections are open counts those that come later.
func TestAddresses_LimitChanges(t *testing.T) {
	t.Parallel()
	var a addresses
	const peer = "10.0.0.1"
	require.True(t, a.take(peer))
	require.True(t, a.take(peer))
	a.setLimit(1)
	require.True(t, a.take(peer))
	require.False(t, a.take(peer))
	a.give(peer)
	a.give(peer)
	a.give(peer)
	require.Empty(t, a.open)
	require.True(t, a.take(peer))
	require.False(t, a.take(peer))
	a.setLimit(0)
	require.True(t, a.take(peer))
	require.Empty(t, a.open)
}
