package pebble

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A stop waits no longer than 5 s for the flush that makes the next start faster,
// also if it has begun, and loses nothing by that.
func TestStore_CloseInTime(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fs := newFaults()
				s := openOnly(t, Options{Dir: "d", FS: fs, Sync: mode})
				var keys []string
				for i := range 100 {
					keys = append(keys, fmt.Sprint(i))
					require.NoError(t, apply(s, put(keys[i], valueOf(keys[i]))))
				}
				// To create a table takes a minute, though nothing fails.
				s.cur.Load().disk.hooks.pause = func(stop <-chan struct{}) {
					select {
					case <-time.After(time.Minute):
					case <-stop:
					}
				}
				start := time.Now()
				require.NoError(t, s.Close())
				require.Equal(t, 5*time.Second, time.Since(start))
				requireOnDisk(t, fs.crash(0), keys)
			})
		})
	}
}
