package logging

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// pipe is a reader of lines that can stall and fail.
type pipe struct {
	stalled chan struct{} // if not nil, it reads when this is closed
	mu      sync.Mutex
	broken  bool
	text    strings.Builder
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.stalled != nil {
		<-p.stalled
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return 0, errors.New("nobody reads")
	}
	return p.text.Write(b)
}

func (p *pipe) breakOff(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

func (p *pipe) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
}

func open(p *pipe) *Writer {
	return Open(p, func(n uint64) error {
		_, err := fmt.Fprintf(p, "%d lines dropped\n", n)
		return err
	})
}

func say(t *testing.T, w *Writer, line string) {
	t.Helper()
	n, err := w.Write([]byte(line + "\n"))
	require.NoError(t, err)
	require.Equal(t, len(line)+1, n)
}

func TestWriter_WritesInOrder(t *testing.T) {
	t.Parallel()
	p := new(pipe)
	w := open(p)
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprint("line ", i))
		say(t, w, want[i])
	}
	w.Close(time.Minute)
	require.Equal(t, want, p.lines())
	require.Zero(t, w.Dropped())
}

// While nobody reads, those who log go on, a bounded number of lines is kept, and
// the gap is told where it is.
func TestWriter_StalledReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{stalled: make(chan struct{})}
		w := open(p)
		long := strings.Repeat("x", 1000)
		say(t, w, "first")
		synctest.Wait() // the goroutine has it
		const lines = 3000
		for range lines {
			say(t, w, long)
		}
		const kept = maxQueued / 1001
		require.EqualValues(t, lines-kept, w.Dropped())
		say(t, w, "short, and yet behind the gap")

		close(p.stalled)
		synctest.Wait()
		say(t, w, "last")
		w.Close(time.Minute)
		got := p.lines()
		require.Len(t, got, 1+kept+1+1)
		require.Equal(t, "first", got[0])
		require.Equal(t, long, got[kept])
		require.Equal(t, fmt.Sprintf("%d lines dropped", lines-kept+1), got[kept+1])
		require.Equal(t, "last", got[kept+2])
	})
}

// A reader that has gone, or a full disk, costs the lines of that time, which are
// told once lines are taken again.
func TestWriter_FailingWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(pipe)
		w := open(p)
		say(t, w, "one")
		synctest.Wait()
		p.breakOff(true)
		for range 3 {
			say(t, w, "lost")
			synctest.Wait()
		}
		p.breakOff(false)
		say(t, w, "two")
		w.Close(time.Minute)
		require.Equal(t, []string{"one", "two", "3 lines dropped"}, p.lines())
		require.EqualValues(t, 3, w.Dropped())
	})
}

// A line that is longer than all that may wait is dropped, and no other.
func TestWriter_LongLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(pipe)
		w := open(p)
		say(t, w, strings.Repeat("x", maxQueued))
		synctest.Wait()
		say(t, w, "one")
		w.Close(time.Minute)
		require.Equal(t, []string{"1 lines dropped", "one"}, p.lines())
	})
}

// The end does not wait for a reader that stalls.
func TestWriter_CloseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{stalled: make(chan struct{})}
		w := open(p)
		say(t, w, "one")
		begun := time.Now()
		w.Close(time.Second)
		require.Equal(t, time.Second, time.Since(begun))
		say(t, w, "late")
		require.EqualValues(t, 1, w.Dropped())
		close(p.stalled) // or the goroutine would be left
	})
}
