package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

func TestJob_CopiesAndVerifies(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 3, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(n)))
				from, to := entries(rng, n), newTarget()
				pause := dawdle(rng, 100*time.Millisecond)
				to.before = func(string, bool) error { pause(); return nil }
				j := newJob(t, from, to)
				var reports []Progress
				j.Report = func(p Progress) { reports = append(reports, p) }
				j.Resumed = func(Result) { t.Error("nothing was there") }

				r, err := j.Run(t.Context())
				require.NoError(t, err)
				requireDone(t, r, from)
				require.EqualValues(t, n, r.Copied.Keys)
				require.Equal(t, r.Copied.Bytes, r.Verified.Bytes)
				require.True(t, moment.Equal(r.Moment))
				require.Equal(t, from, to.holds())
				for _, c := range to.cells {
					require.Equal(t, moment.UnixMicro(), c.stamp)
				}
				require.Equal(t, n, to.puts)
				require.Equal(t, n, to.gets)
				require.Equal(t, min(n, j.InFlight), to.mostEver)
				require.NoFileExists(t, j.State)
				require.NoFileExists(t, j.State+".tmp")

				// A thousand times 50 ms, four at a time, are 12 s a pass.
				if n == 1000 {
					require.GreaterOrEqual(t, len(reports), 8)
					last := reports[0]
					for _, p := range reports[1:] {
						require.True(t, p.Verifying || !last.Verifying)
						require.True(t, p.Keys >= last.Keys && p.Share >= last.Share || p.Verifying != last.Verifying)
						require.InDelta(t, float64(p.Keys)/float64(n), p.Share, 1e-9)
						require.NotEqual(t, "", p.String())
						last = p
					}
					require.True(t, last.Verifying)
					require.Positive(t, last.PerSecond)
				}
			})
		})
	}
}

// Wherever a run is killed, what the file says has been acknowledged, and the runs
// after it leave nothing out, nor do anything again that the file says.
// What expires does so in the copy as well, and is not missed once it has.
func TestJob_KeepsExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testKeepsExpiry)
}

func testKeepsExpiry(t *testing.T) {
	from := map[string]string{"gone": "v", "late": "v", "soon": "v", "stays": "v"}
	to := newTarget()
	j := newJob(t, from, to)
	src := j.Source.(*source)
	src.expires = map[string]time.Time{
		"gone": time.Now().Add(-time.Second), "soon": time.Now().Add(time.Second), "late": time.Now().Add(time.Hour + 500*time.Millisecond),
	}
	to.before = func(key string, write bool) error {
		if !write && key == "soon" { // it has expired there meanwhile
			to.mu.Lock()
			delete(to.cells, key)
			to.mu.Unlock()
		}
		return nil
	}
	r, err := j.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.Verified.Different, r.Verified.Differences)
	require.NotContains(t, to.cells, "gone")
	require.EqualValues(t, 3601, to.cells["late"].ttl)
	require.Zero(t, to.cells["stays"].ttl)
}

func TestJob_KilledAnywhere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 2))
				from, to := entries(rng, 80), newTarget()
				j := newJob(t, from, to)
				j.InFlight = 1 + rng.IntN(8)
				pause := dawdle(rng, time.Second)
				errKilled := errors.New("killed")
				var left atomic.Int64 // operations until the end
				var onDisk []byte     // the file when it came
				var unreadable error
				killed := func() bool {
					n := left.Add(-1)
					if n == 0 {
						onDisk, unreadable = os.ReadFile(j.State)
					}
					return n <= 0
				}
				to.before = func(key string, _ bool) error {
					if pause(); !killed() {
						return nil
					}
					if len(key)%2 == 0 {
						return fmt.Errorf("%w: %w", errKilled, errHalf)
					}
					return errKilled
				}
				for kills := 0; ; kills++ {
					require.Less(t, kills, 1000, "nothing gets done")
					left.Store(1 + rng.Int64N(50))
					var went Result
					j.Resumed = func(r Result) { went = r }
					puts, gets := to.puts, to.gets
					r, err := j.Run(t.Context())
					puts, gets = to.puts-puts, to.gets-gets
					require.LessOrEqual(t, puts, len(from)-int(went.Copied.Keys))
					require.LessOrEqual(t, gets, len(from)-int(went.Verified.Keys))
					if err == nil {
						requireDone(t, r, from)
						break
					}
					require.ErrorIs(t, err, errKilled)
					// What a kill leaves, which does not save anything.
					require.NoError(t, unreadable)
					require.NoError(t, os.WriteFile(j.State, onDisk, 0o600))
					s, err := load(j.State)
					require.NoError(t, err)
					if s.Verifying {
						require.EqualValues(t, len(from), s.Copied.Keys)
						require.Len(t, to.acked, len(from))
					}
					for i, k := range j.Source.(*source).keys() {
						if done := k <= string(s.Copied.After); done {
							require.True(t, to.acked[k], "the file says %q, and %q was not acknowledged", s.Copied.After, k)
							require.Greater(t, int(s.Copied.Keys), i)
						}
					}
				}
				require.Equal(t, from, to.holds())
				require.NoFileExists(t, j.State)
			})
		})
	}
}

func TestJob_StopsWhenAsked(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what string
		err  error
		most time.Duration // until Run returns
	}{
		{"operations under way are waited for", nil, time.Second},
		{"what has failed is not tried again", store.ErrUnavailable, time.Second},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				from, to := entries(rand.New(rand.NewPCG(3, 3)), 500), newTarget()
				j := newJob(t, from, to)
				var fail atomic.Bool
				to.before = func(string, bool) error {
					time.Sleep(time.Second)
					if fail.Load() {
						return row.err
					}
					return nil
				}
				ctx, stop := context.WithCancel(t.Context())
				var stopped time.Time
				time.AfterFunc(30*time.Second+300*time.Millisecond, func() { fail.Store(true) })
				time.AfterFunc(40*time.Second+500*time.Millisecond, func() { stopped = time.Now(); stop() })
				r, err := j.Run(ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.LessOrEqual(t, time.Since(stopped), row.most)
				require.Zero(t, to.flying)
				require.Less(t, 0, int(r.Copied.Keys))
				require.Zero(t, r.Verified.Keys)
				require.EqualValues(t, len(to.acked), r.Copied.Keys, "what was waited for is not noted")

				fail.Store(false)
				var resumed Result
				j.Resumed = func(r Result) { resumed = r }
				before := len(to.acked)
				to.puts = 0
				again, err := j.Run(t.Context())
				require.NoError(t, err)
				require.Equal(t, r, resumed)
				require.Equal(t, len(from)-before, to.puts)
				requireDone(t, again, from)
				require.Equal(t, from, to.holds())
			})
		})
	}
}

func TestJob_TriesAgain(t *testing.T) {
	t.Parallel()
	errForbidden := errors.New("not allowed")
	for _, row := range []struct {
		what  string
		err   error
		times int // that the key "k" fails, both written and read
		ok    bool
		tries int // of the write of "k"
	}{
		{"too few replicas", store.ErrUnavailable, 8, true, 9},
		{"late replicas", store.ErrTimeout, 8, true, 9},
		{"an unknown outcome", fmt.Errorf("%w: %w", store.ErrUnknownOutcome, errHalf), 6, true, 7},
		// 0.1 + 0.2 + … + 3.2 s, and then 5 s once or twice.
		{"a value that the target cannot take", fmt.Errorf("%w: %w", store.ErrUnknownOutcome, errHalf), 1 << 30, false, -2},
		// 0.1 + 0.2 + … + 3.2 s, and then each 5 s: between 27 and 60 tries in 2 min.
		{"too few replicas for good", store.ErrUnavailable, 1 << 30, false, -1},
		{"what will not pass", errForbidden, 1, false, 1},
		{"a store that is closed", store.ErrClosed, 1, false, 1},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				from, to := map[string]string{"a": "1", "k": "2", "z": "3"}, newTarget()
				j := newJob(t, from, to)
				var writes, reads atomic.Int64
				to.before = func(key string, write bool) error {
					n := &reads
					if write {
						n = &writes
					}
					switch {
					case key == "k" && int(n.Add(1)) <= row.times:
						return row.err
					case key == "z":
						time.Sleep(time.Second) // so that it ends after "k" has failed
					}
					return nil
				}
				var trouble atomic.Int64
				j.Report = func(p Progress) {
					if errors.Is(p.Trouble, row.err) {
						trouble.Add(1)
					}
				}
				began := time.Now()
				r, err := j.Run(t.Context())
				if row.ok {
					require.NoError(t, err)
					requireDone(t, r, from)
					require.EqualValues(t, row.tries, reads.Load())
					require.Positive(t, trouble.Load())
				} else {
					require.ErrorIs(t, err, row.err)
					require.ErrorContains(t, err, `"k"`)
					require.EqualValues(t, 1, r.Copied.Keys, "the one before")
				}
				switch row.tries {
				default:
					require.EqualValues(t, row.tries, writes.Load())
				case -2:
					require.ErrorContains(t, err, "value of 1 bytes")
					require.Less(t, time.Since(began), suspicion+2*longestPause)
				case -1:
					require.Greater(t, writes.Load(), int64(patience/longestPause))
					require.Less(t, writes.Load(), int64(3*patience/longestPause))
					require.GreaterOrEqual(t, time.Since(began), patience)
					require.Less(t, time.Since(began), patience+longestPause)
				}
			})
		})
	}
}

// What the target has of later stays, what is older gives way, and each is found.
func TestJob_Differences(t *testing.T) {
	t.Parallel()
	stamp := moment.UnixMicro()
	for _, row := range []struct {
		what     string
		cell     cell
		copied   string // what is there after a copy
		newer    bool   // as a copy tells
		verified string // "", "newer", "missing" or "different", as a verification alone tells
	}{
		{"nothing", cell{deleted: true}, "value", false, "missing"},
		{"what was deleted earlier", cell{deleted: true, stamp: stamp - 1}, "value", false, "missing"},
		{"the same", cell{value: "value", stamp: stamp}, "value", false, ""},
		{"the same, written earlier", cell{value: "value", stamp: 1}, "value", false, ""},
		{"the same, written later", cell{value: "value", stamp: stamp + 9}, "value", false, ""},
		{"another value, written later", cell{value: "other", stamp: stamp + 1}, "other", true, "newer"},
		{"no bytes, written later", cell{value: "", stamp: stamp + 1}, "", true, "newer"},
		{"another value, written earlier", cell{value: "zzz", stamp: stamp - 1}, "value", false, "different"},
		{"another value, of the same moment", cell{value: "aaa", stamp: stamp}, "value", false, "different"},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			for _, verifyOnly := range []bool{true, false} {
				to := newTarget()
				to.cells["k"] = row.cell
				j := newJob(t, map[string]string{"k": "value"}, to)
				j.VerifyOnly = verifyOnly
				r, err := j.Run(t.Context())
				require.NoError(t, err)
				require.NoFileExists(t, j.State)
				v := r.Verified
				require.EqualValues(t, 1, v.Keys)
				if !verifyOnly {
					require.Zero(t, v.Different)
					require.Equal(t, row.newer, v.Newer == 1)
					require.Equal(t, row.copied, to.holds()["k"])
					continue
				}
				require.Zero(t, to.puts)
				require.Zero(t, r.Copied.Keys)
				require.Equal(t, row.verified == "newer", v.Newer == 1)
				require.Equal(t, row.verified == "missing" || row.verified == "different", v.Different == 1)
				if v.Different == 1 {
					require.Equal(t, []Difference{{Key: []byte("k"), Missing: row.verified == "missing"}}, v.Differences)
				}
			}
		})
	}

	// A deletion that is later than the copy cannot be told from a loss.
	to := newTarget()
	to.cells["k"] = cell{deleted: true, stamp: stamp + 1}
	r, err := newJob(t, map[string]string{"k": "value"}, to).Run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Verified.Different)
	require.True(t, r.Verified.Differences[0].Missing)
}

// Differences are told in the order of the keys, the first of them one by one, and
// also if the run that has found them was killed.
func TestJob_ManyDifferences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(4, 4))
		from, to := entries(rng, 300), newTarget()
		j := newJob(t, from, to)
		keys := j.Source.(*source).keys()
		var want []Difference
		for i, k := range keys {
			switch i % 3 {
			case 0:
				want = append(want, Difference{Key: []byte(k), Missing: true})
			case 1:
				to.cells[k] = cell{value: from[k] + "!", stamp: 1}
				want = append(want, Difference{Key: []byte(k)})
			default:
				to.cells[k] = cell{value: from[k], stamp: 1}
			}
		}
		j.VerifyOnly = true
		pause := dawdle(rng, time.Second)
		ctx, stop := context.WithCancel(t.Context())
		to.before = func(string, bool) error { pause(); return nil }
		time.AfterFunc(10*time.Second, stop)
		r, err := j.Run(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Positive(t, r.Verified.Different)
		r, err = j.Run(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, len(want), r.Verified.Different)
		require.Equal(t, want[:MaxDifferences], r.Verified.Differences)
	})
}

// A table that has lost what it had acknowledged, while the file says that it was
// copied, is found out.
func TestJob_FindsWhatWasLostMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := entries(rand.New(rand.NewPCG(5, 5)), 100), newTarget()
		to.before = func(string, bool) error { time.Sleep(time.Second); return nil }
		j := newJob(t, from, to)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, stop)
		_, err := j.Run(ctx)
		require.ErrorIs(t, err, context.Canceled)
		lost := len(to.cells)
		require.Positive(t, lost)
		clear(to.cells)
		r, err := j.Run(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, lost, r.Verified.Different)
		// And a second copy, which begins anew, mends it.
		r, err = j.Run(t.Context())
		require.NoError(t, err)
		requireDone(t, r, from)
	})
}

func TestJob_RefusesAFileOfAnother(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what   string
		change func(*Job)
		words  []string
	}{
		{"another source", func(j *Job) { j.From = "elsewhere" }, []string{"copy from here to there", "not of this copy", "name another file"}},
		{"another target", func(j *Job) { j.To, j.Identity.Target = "elsewhere", "t2" }, []string{"not of this copy"}},
		{"a source that has changed", func(j *Job) { j.Identity.Source = "s2" }, []string{"the source has changed"}},
		{"a table that was made anew", func(j *Job) { j.Identity.Target = "t2" }, []string{"another one by now", "remove it"}},
		{"a verification alone", func(j *Job) { j.VerifyOnly = true }, []string{"how far a copy", "not of this verification"}},
		{"the same table by other hosts", func(j *Job) { j.To = "other hosts" }, nil},
		{"the same, touched", func(j *Job) { j.Moment = j.Moment.Add(time.Hour) }, nil},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			to := newTarget()
			j := newJob(t, map[string]string{"a": "1", "b": "2"}, to)
			j.InFlight = 1
			to.before = func(key string, _ bool) error {
				if key == "b" {
					return errDisk
				}
				return nil
			}
			r, err := j.Run(t.Context())
			require.ErrorIs(t, err, errDisk)
			require.EqualValues(t, 1, r.Copied.Keys)
			before, err := os.ReadFile(j.State)
			require.NoError(t, err)

			to.before = nil
			row.change(j)
			r, err = j.Run(t.Context())
			if row.words == nil {
				require.NoError(t, err)
				require.True(t, moment.Equal(r.Moment), "the first run's")
				require.Equal(t, moment.UnixMicro(), to.cells["b"].stamp)
				return
			}
			for _, w := range append(row.words, j.State) {
				require.ErrorContains(t, err, w)
			}
			require.Zero(t, r)
			after, err := os.ReadFile(j.State)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after))
			require.Len(t, to.cells, 1)
		})
	}
}

func TestJob_SourceFails(t *testing.T) {
	t.Parallel()
	for _, s := range []*source{{failAt: "m"}, {endAt: "m"}} {
		s.values = map[string]string{"a": "1", "b": "2", "m": "3", "z": "4"}
		to := newTarget()
		j := newJob(t, nil, to)
		j.Source = s
		r, err := j.Run(t.Context())
		require.ErrorIs(t, err, errDisk)
		require.ErrorContains(t, err, "the source cannot be read")
		require.EqualValues(t, 2, r.Copied.Keys)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, to.holds())
	}
}

// What ends a pass ends what is tried again as well.
func TestJob_SourceFailsMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := newTarget()
		to.before = func(string, bool) error { return store.ErrUnavailable }
		j := newJob(t, nil, to)
		j.Source = &source{values: map[string]string{"a": "1", "m": "3"}, failAt: "m"}
		began := time.Now()
		_, err := j.Run(t.Context())
		require.ErrorIs(t, err, errDisk)
		require.Zero(t, time.Since(began))
	})
}

// A source from the future must not win against what is written from now on.
func TestJob_MomentIsNotInTheFuture(t *testing.T) {
	t.Parallel()
	to := newTarget()
	j := newJob(t, map[string]string{"k": "v"}, to)
	j.Moment = time.Now().Add(time.Hour)
	r, err := j.Run(t.Context())
	require.NoError(t, err)
	require.False(t, r.Moment.After(time.Now()))
	require.LessOrEqual(t, to.cells["k"].stamp, time.Now().UnixMicro())
}

// When the file cannot be written the copy ends: it would not be known how far it is.
func TestJob_StateCannotBeWritten(t *testing.T) {
	t.Parallel()
	to := newTarget()
	j := newJob(t, map[string]string{"k": "v"}, to)
	j.State = filepath.Join(t.TempDir(), "missing", "state")
	_, err := j.Run(t.Context())
	require.ErrorContains(t, err, "cannot note how far")
	require.Zero(t, to.puts)

	synctest.Test(t, func(t *testing.T) {
		from, to := entries(rand.New(rand.NewPCG(6, 6)), 100), newTarget()
		j := newJob(t, from, to)
		to.before = func(string, bool) error { time.Sleep(time.Second); return nil }
		made := make(chan error, 1)
		time.AfterFunc(5*time.Second, func() { made <- os.Mkdir(j.State+".tmp", 0o700) })
		r, err := j.Run(t.Context())
		require.NoError(t, <-made)
		require.ErrorContains(t, err, "cannot note how far")
		require.Less(t, r.Copied.Keys, int64(len(from)))
	})
}

// Whoever interrupts a copy hears of it when what was done could not be noted.
func TestJob_StateCannotBeWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := entries(rand.New(rand.NewPCG(8, 8)), 100), newTarget()
		j := newJob(t, from, to)
		to.before = func(string, bool) error { time.Sleep(time.Second); return nil }
		ctx, stop := context.WithCancel(t.Context())
		made := make(chan error, 1)
		time.AfterFunc(5*time.Second+time.Second/2, func() { // between two writes of the file
			made <- os.Mkdir(j.State+".tmp", 0o700)
			stop()
		})
		_, err := j.Run(ctx)
		require.NoError(t, <-made)
		require.ErrorContains(t, err, "cannot note how far")
		require.NotErrorIs(t, err, context.Canceled)
	})
}

// One operation that takes long holds up the others only when the window is full, so
// that what is in memory is bounded.
func TestJob_OneIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := entries(rand.New(rand.NewPCG(7, 7)), 500), newTarget()
		j := newJob(t, from, to)
		first := slices.Min(j.Source.(*source).keys())
		release := make(chan struct{})
		to.before = func(key string, write bool) error {
			if key == first && write {
				<-release
			}
			return nil
		}
		var r Result
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err = j.Run(t.Context())
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, windowEntries*j.InFlight, to.begun())
		s, loadErr := load(j.State)
		require.NoError(t, loadErr)
		require.Zero(t, s.Copied.Keys)
		close(release)
		<-done
		require.NoError(t, err)
		requireDone(t, r, from)
	})
}
