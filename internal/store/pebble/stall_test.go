package pebble

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// The memtables of a new store are small and many before the first of them is
// flushed. That is no reason to hold writes back.
func TestStall_NotWhileMemtablesGrow(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: "data", FS: vfs.NewMem(), Sync: Never})
	done := make(chan error, 1)
	go func() {
		value := strings.Repeat("v", 16<<10)
		for i := range 1 << 10 { // 16 MiB: memtables of 256 KiB, 512 KiB, … 8 MiB
			if err := apply(s, put(fmt.Sprint(i), value)); err != nil {
				done <- err
				return
			}
			for s.stall.unmeasured.Load() > 1 { // a late measure is a reason
				runtime.Gosched()
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("writes are stalled for ever")
	}
	require.Zero(t, s.Stats().WriteStalls)
}

func TestStall_Lasted(t *testing.T) {
	t.Parallel()
	var s stall
	ended := 0
	s.init(func() { ended++ })
	at := func(seconds int) time.Time { return time.Unix(1000, 0).Add(time.Duration(seconds) * time.Second) }
	require.Zero(t, s.lasted(at(1)))
	s.set(false, at(2))
	s.set(true, at(10))
	require.Equal(t, 5*time.Second, s.lasted(at(15)), "one that goes on counts")
	s.set(true, at(20))
	s.set(false, at(40))
	s.set(false, at(50))
	require.Equal(t, 30*time.Second, s.lasted(at(60)))
	s.set(true, at(70))
	require.Equal(t, 31*time.Second, s.lasted(at(71)))
	require.EqualValues(t, 2, s.count.Load())
	require.Equal(t, 1, ended)
}

// Who is told that compactions fail is told what to do, if that is not over with the
// fault of the disk.
func TestStall_Stuck(t *testing.T) {
	t.Parallel()
	var s Store
	var m pebble.Metrics
	m.Levels[0].Sublevels = stallL0Sublevels
	require.NoError(t, s.stuck(&m))
	s.stall.compacted(&blockError{"000007.sst", 4096})
	requireOneLine(t, s.stuck(&m), "000007.sst is damaged", "byte 4096", "spillway restore")
	s.stall.compacted(&os.PathError{Op: "read", Path: "000007.sst", Err: syscall.EIO})
	requireOneLine(t, s.stuck(&m), "000007.sst: input/output error")
	require.NotContains(t, s.stuck(&m).Error(), "restore")
	m.Levels[0].Sublevels--
	require.NoError(t, s.stuck(&m))
}

// Writes wait for the measure if it is late, and not inside Pebble.
func TestStall_WaitsForTheMeasure(t *testing.T) {
	t.Parallel()
	var s stall
	s.init(nil)
	for range stallMemTables - 1 {
		s.filled()
	}
	require.False(t, s.on.Load())
	s.filled()
	require.True(t, s.on.Load())

	o := Options{}
	o.setDefaults()
	p := o.pebbleOptions()
	require.EqualValues(t, outOfReach, p.MemTableStopWritesThreshold)
	require.EqualValues(t, outOfReach, p.L0StopWritesThreshold)
}
