package transfer

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgress_String(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Progress{
		"copied 12345 keys, 1.2 MB, at 6172 keys and 617.2 kB a second, about 34%, 1m5s left": {
			Position: Position{Keys: 12345, Bytes: 1234567}, PerSecond: 6172.4, BytesPerSecond: 617200, Share: 0.344, Left: 65*time.Second + time.Millisecond,
		},
		"verified 0 keys, 0 B, at 0 keys and 0 B a second, 3 different": {
			Verifying: true, Position: Position{Different: 3}, Share: -1, Left: -1,
		},
		"copied 1 keys, 999 B, at 0 keys and 0 B a second; trying again (7 times so far): one two": {
			Position: Position{Keys: 1, Bytes: 999}, Share: -1, Left: -1, Retries: 7, Trouble: errors.New("one\ntwo"),
		},
	} {
		require.Equal(t, want, p.String())
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for want, bytes := range map[string]float64{"0 B": 0, "999 B": 999, "1.0 kB": 1000, "2.5 MB": 2.5e6, "10.0 GB": 1e10, "1.0 TB": 1e12, "5000.0 TB": 5e15} {
		require.Equal(t, want, size(bytes))
	}
}
