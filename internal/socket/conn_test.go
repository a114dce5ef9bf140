package socket

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
)

// Over a pipe, which has no buffer and no descriptor, time can be a fake one.
func TestConn_Progress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := NewConn(ours, 10*time.Second)
		failed := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 1<<20))
			failed <- err
		}()
		for range 100 { // far longer than the time-out
			time.Sleep(9 * time.Second)
			_, err := io.ReadFull(theirs, make([]byte, 1000))
			require.NoError(t, err)
		}
		stopped := time.Now()
		require.ErrorIs(t, <-failed, os.ErrDeadlineExceeded)
		require.LessOrEqual(t, time.Since(stopped), 20*time.Second)
	})
}

// A side that is hurried has to take 1 KiB a second, and is cut off within two times of 10 s
// otherwise; the same pace is enough while nobody waits.
func TestConn_Hurry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		perSecond int
		hurried   bool
		cut       bool
	}{{500, true, true}, {500, false, false}, {2000, true, false}, {1, true, true}} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			c := NewConn(ours, time.Minute)
			c.Hurry(tt.hurried)
			var reader sync.WaitGroup
			reader.Go(func() {
				for err := error(nil); err == nil; time.Sleep(time.Second) {
					_, err = io.ReadFull(theirs, make([]byte, tt.perSecond))
				}
			})
			begun := time.Now()
			_, err := c.Write(make([]byte, 100_000))
			if tt.cut {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.LessOrEqual(t, time.Since(begun), 20*time.Second)
			} else {
				require.NoError(t, err)
				require.Greater(t, time.Since(begun), 40*time.Second)
			}
			require.NoError(t, ours.Close())
			require.NoError(t, theirs.Close())
			reader.Wait()
		})
	}
}

// Nobody waits for longer than that for a write that waited before, whatever its time-out.
func TestConn_HurryLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := NewConn(ours, time.Hour)
		failed := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 1<<20))
			failed <- err
		}()
		time.Sleep(time.Minute) // nobody waits for it yet
		require.Empty(t, failed)
		begun := time.Now()
		c.Hurry(true)
		require.ErrorIs(t, <-failed, os.ErrDeadlineExceeded)
		require.Equal(t, slowFor, time.Since(begun))
		require.NoError(t, theirs.Close())
	})
}

// A deadline that was set ends writes also while something is taken.
func TestConn_Deadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := NewConn(ours, 10*time.Second)
		var reader sync.WaitGroup
		reader.Go(func() {
			for {
				time.Sleep(time.Second)
				if _, err := theirs.Read(make([]byte, 1000)); err != nil {
					return
				}
			}
		})
		begun := time.Now()
		require.NoError(t, c.SetDeadline(begun.Add(time.Minute)))
		_, err := c.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begun))
		require.NoError(t, ours.Close())
		require.NoError(t, theirs.Close())
		reader.Wait()
	})
}

// Over TCP: who takes a little at a time, less than for which the socket would
// tell of room, gets all; who stops is cut off.
func TestConn_SlowReader(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for !readSlowly(t, l) {
		continue
	}
}

// readSlowly reports false if the reader was held up, so that it was cut off rightly.
func readSlowly(t *testing.T, l net.Listener) (inTime bool) {
	t.Helper()
	const (
		timeout = time.Second
		size    = 32 << 20
	)
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	// Otherwise the kernel may make it as large as what is written, the faster it is read.
	require.NoError(t, client.(*net.TCPConn).SetReadBuffer(256<<10))
	accepted, err := l.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	c := NewConn(accepted, timeout)
	wrote := make(chan error, 1)
	write := func() {
		n, err := c.Write(make([]byte, size))
		if err == nil && n != size {
			err = io.ErrShortWrite
		}
		if err != nil {
			_ = accepted.Close() // nobody waits for the rest
		}
		wrote <- err
	}
	from := testenv.NewPunctual(client)
	go write()
	left := size
	for begun := time.Now(); err == nil && time.Since(begun) < 3*timeout; left -= 64 << 10 {
		_, err = io.ReadFull(from, make([]byte, 64<<10))
		time.Sleep(timeout / 10)
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, from, int64(left))
	}
	if err != nil && from.Longest() > timeout/2 {
		<-wrote
		return false
	}
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	go write()
	require.ErrorIs(t, <-wrote, os.ErrDeadlineExceeded)
	return true
}
