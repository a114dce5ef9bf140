package secure

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwnName(t *testing.T) {
	t.Parallel()
	for host, own := range map[string]bool{
		"127.0.0.1:6060":            true,
		"127.0.0.1":                 true,
		"192.168.1.7:6060":          true,
		"[::1]:6060":                true,
		"[::1]":                     true,
		"[fe80::1%eth0]:6060":       true,
		"localhost:6060":            true,
		"LocalHost":                 true,
		"localhost.:6060":           true,
		"spillway.localhost:6060":   true,
		"":                          false,
		"spillway:6060":             false,
		"evil.example:6060":         false,
		"evil.example":              false,
		"localhost.evil.example":    false,
		"notlocalhost":              false,
		"127.0.0.1.evil.example:80": false,
		"127.0.0.1.":                false,
	} {
		require.Equal(t, own, OwnName(host), host)
	}
	for host, own := range map[string]bool{
		"spillway:8080": true, "SpillWay": true, "spillway.:1": true, "kv.example": true, "localhost": true, "127.0.0.1": true,
		"": false, "evil.example": false, "x.spillway": false, "spillway.evil.example": false,
	} {
		require.Equal(t, own, OwnName(host, "spillway", "kv.example"), host)
	}
}
