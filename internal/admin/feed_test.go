package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counting returns a feed whose frames are numbers, and how many there were.
func counting() (*feed, *int) {
	n := new(int)
	return newFeed(func() []byte {
		*n++
		return fmt.Append(nil, *n)
	}), n
}

// Frames are made once a second, for all viewers together, while there are any.
// synctest fails the test if a goroutine is left.
func TestFeed_OneTickerForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, made := counting()
		defer f.close()
		time.Sleep(time.Minute)
		require.Zero(t, *made, "nobody looks")

		first, err := f.join()
		require.NoError(t, err)
		require.Equal(t, "1", string(<-first), "at once")
		second, err := f.join()
		require.NoError(t, err)
		for want := 2; want < 12; want++ {
			begin := time.Now()
			require.Equal(t, fmt.Sprint(want), string(<-first))
			require.Equal(t, fmt.Sprint(want), string(<-second))
			require.Equal(t, frameInterval, time.Since(begin))
		}
		f.leave(first)
		require.Equal(t, "12", string(<-second), "the other one stays")
		f.leave(second)
		f.running.Wait() // nothing runs
		before := *made
		time.Sleep(time.Minute)
		require.Equal(t, before, *made, "nobody looks any more")

		again, err := f.join()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(before+1), string(<-again))
		f.leave(again)
	})
}

// Who does not read misses frames, and then gets the newest; nobody waits.
func TestFeed_SlowViewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := counting()
		defer f.close()
		slow, err := f.join()
		require.NoError(t, err)
		defer f.leave(slow)
		quick, err := f.join()
		require.NoError(t, err)
		defer f.leave(quick)
		var last string
		for range 10 {
			last = string(<-quick)
		}
		synctest.Wait()
		require.Equal(t, last, string(<-slow))
	})
}

func TestFeed_Limits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := counting()
		var viewers []chan []byte
		for range maxViewers {
			viewer, err := f.join()
			require.NoError(t, err)
			viewers = append(viewers, viewer)
		}
		_, err := f.join()
		require.ErrorIs(t, err, errTooManyViewers)
		for _, viewer := range viewers {
			f.leave(viewer)
		}
		f.close()
		f.close()
		_, err = f.join()
		require.ErrorIs(t, err, errFeedClosed)
	})
}

// While the service is starting there is nothing to show, and viewers wait.
func TestFeed_NothingYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := newFeed(func() []byte {
			if time.Since(begin) < 3*frameInterval {
				return nil
			}
			return []byte("state")
		})
		defer f.close()
		viewer, err := f.join()
		require.NoError(t, err)
		defer f.leave(viewer)
		require.Equal(t, "state", string(<-viewer))
		require.Equal(t, 3*frameInterval, time.Since(begin))
	})
}

// The end of the plane ends the streams, as otherwise it would have to cut them
// off when its patience is over.
func TestFeed_CloseEndsStreams(t *testing.T) {
	t.Parallel()
	p := open(t, Options{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Addr().String()+"/console/events", nil)
	require.NoError(t, err)
	resp, err := p.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	var received strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(received.String(), "event: state\n") {
		n, err := resp.Body.Read(buf)
		require.NoError(t, err)
		received.Write(buf[:n])
	}
	require.True(t, strings.HasPrefix(received.String(), "event: about\ndata: {"), received.String())
	p.Close()
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err, "the stream was not cut off")
}
