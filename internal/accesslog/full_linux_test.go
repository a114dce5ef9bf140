package accesslog

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/served"
)

// The device that is always full.
func TestLog_DeviceFull(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	l := Open(full, true)
	for range 100 {
		l.Add(request(200, "", served.OK))
	}
	l.Close(time.Minute)
	require.EqualValues(t, 100, l.Dropped())
}
