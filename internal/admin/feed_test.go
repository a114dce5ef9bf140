package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who joins gets what is published from then on.
func TestFeed_Publishes(t *testing.T) {
	t.Parallel()
	f := newFeed()
	defer f.close()
	require.False(t, f.watched())
	first, err := f.join()
	require.NoError(t, err)
	require.True(t, f.watched())
	f.publish([]byte("1"))
	require.Equal(t, "1", string(<-first))
	second, err := f.join()
	require.NoError(t, err)
	f.publish([]byte("2"))
	require.Equal(t, "2", string(<-first))
	require.Equal(t, "2", string(<-second))
	f.leave(first)
	f.publish([]byte("3"))
	require.Equal(t, "3", string(<-second), "the other one stays")
	f.leave(second)
	require.False(t, f.watched())
}

// Who does not read misses frames, and then gets the newest; nobody waits.
func TestFeed_SlowViewer(t *testing.T) {
	t.Parallel()
	f := newFeed()
	defer f.close()
	slow, err := f.join()
	require.NoError(t, err)
	defer f.leave(slow)
	for i := range 10 {
		f.publish(fmt.Append(nil, i))
	}
	require.Equal(t, "9", string(<-slow))
}

func TestFeed_Limits(t *testing.T) {
	t.Parallel()
	f := newFeed()
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
