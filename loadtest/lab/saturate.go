package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// SaturateOptions says how the breaking point is searched.
type SaturateOptions struct {
	// Load is what is sent. Its Rate is where the search begins, 1,000 requests a
	// second by default; its Duration, 5 s by default, is how long one trial
	// measures, after its Warmup, 1 s by default. Its Count is ignored.
	Load workload.Options
	// MaxRate is the highest rate to try: a million a second by default.
	MaxRate float64
	// Command is recorded.
	Command string
	// Progress, if set, is called when a trial has ended, with what is known by
	// then; it must not keep it. Load.Progress tells of the trial under way.
	Progress func(*Saturation)
	// Run sends the load: generator.Run by default.
	Run Runner

	maxTrials int // 100, but for tests
}

const (
	// goodShare is how much of the offered rate must be goodput.
	goodShare = 0.99
	// precision is how near to the breaking point the search comes, as a share.
	precision = 0.02
	// lowestRate is where the search for a rate that is sustained gives up.
	lowestRate = 1
)

// Errors that end a search before it has found the breaking point.
var (
	errTrials  = errors.New("not sure after as many trials as were allowed")
	errDrift   = errors.New("the machine or the server is not steady: what was sustained at one time was not at another")
	errBacklog = errors.New("the server does not recover from overload: it no longer serves a tenth of what it had sustained")
)

// Saturate searches for the breaking point of a running service: the highest
// rate at which goodput is at least 0.99 of the offered rate. It fails if nothing was
// measured. If it ends early after that, Partial says why.
//
// The rate is doubled until it is not sustained, and then the range between is
// halved until it is 2% wide. What makes the answer repeat:
//
//   - Every trial has its own warm-up, and after a trial that was not sustained
//     the next begins only when a small rate is served well again: when the
//     backlog is gone.
//   - One bad second of the machine does not decide: two of three trials must find that a
//     rate is not sustained, and near the breaking point also that it is.
//   - In the end 2% below the range and 2% above it are tried: the first must be sustained,
//     and the second not. Otherwise the search goes on from there.
//
// A machine that is shared may change faster than one can measure. When the ends
// do not hold for the fourth time the search gives up: the answer is then the
// rate that agrees with most of the trials, the range is all that was doubtful,
// and Partial says so.
//
// Where the generator itself falls behind its schedule, the answer is about the
// generator, and Limit says so.
func Saturate(ctx context.Context, o SaturateOptions) (*Saturation, error) {
	if o.Run == nil {
		o.Run = generator.Run
	}
	o.Load.Count = 0
	o.Load.Rate = cmp.Or(o.Load.Rate, 1000)
	o.Load.Duration = cmp.Or(o.Load.Duration, 5*time.Second)
	o.Load.Warmup = cmp.Or(o.Load.Warmup, time.Second)
	o.Load = o.Load.WithDefaults()
	o.MaxRate = cmp.Or(o.MaxRate, 1e6)
	o.maxTrials = cmp.Or(o.maxTrials, 100)
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &search{o: &o, found: &Saturation{
		Command: o.Command, URL: o.Load.URL, Machine: machine.This(), Started: time.Now(),
		Share: goodShare, SLOMillis: float64(o.Load.SLO) / float64(time.Millisecond),
		Steps: []Step{},
	}}
	err := s.run(ctx)
	f := s.found
	if err != nil && len(f.Steps) == 0 {
		return nil, err
	}
	if err != nil {
		f.Partial = oneLine(err)
		if ctx.Err() != nil {
			f.Partial = fmt.Sprintf("interrupted after %d trials", len(f.Steps))
		}
		s.settle()
	}
	f.Low, f.High = s.low, s.high
	f.Limit = s.limit()
	f.Seconds = time.Since(f.Started).Seconds()
	return f, nil
}

func (o *SaturateOptions) check() error {
	if err := generator.Check(&o.Load); err != nil {
		return err
	}
	if !(o.MaxRate >= lowestRate) || math.IsInf(o.MaxRate, 0) {
		return fmt.Errorf("max-rate: %v is not a number of requests a second from %d", o.MaxRate, lowestRate)
	}
	if o.Load.Rate > o.MaxRate {
		return fmt.Errorf("rate: the search begins at %v, above the highest rate of %v", o.Load.Rate, o.MaxRate)
	}
	return nil
}

// search is the state of a search. It reads no clock: time passes in trials.
type search struct {
	o     *SaturateOptions
	found *Saturation
	// low was sustained, and high was not; 0 while there is none.
	low, high float64
	// late says that high was not sustained because of the generator.
	late bool
	// doubt is the range in which some decisions contradict others, if it is
	// one: the lowest rate that was not sustained, and the highest that was.
	doubt struct{ low, high float64 }
	// sent counts the runs, trials or not.
	sent uint64
}

func (s *search) limit() Limit {
	switch {
	case s.high == 0 && s.low < s.o.MaxRate:
		return "" // none was met before the search ended
	case s.high == 0:
		return LimitRate
	case s.late:
		return LimitGenerator
	default:
		return LimitServer
	}
}

func (s *search) run(ctx context.Context) error {
	if err := s.bound(ctx, s.o.Load.Rate, 1); err != nil {
		return err
	}
	if err := s.extend(ctx, 1, 1); err != nil {
		return err
	}
	const patience = 4
	for wrong := 0; s.low > 0 && s.high > 0; wrong++ {
		if wrong == patience {
			return errDrift
		}
		for s.high > s.low*(1+precision) {
			yes := 1
			if s.high <= s.low*(1+4*precision) {
				yes = 2
			}
			if err := s.bound(ctx, (s.low+s.high)/2, yes); err != nil {
				return err
			}
		}
		sure, err := s.confirm(ctx)
		if sure || err != nil {
			return err
		}
	}
	s.found.BreakingPointRPS = s.low // there is no other end
	return nil
}

// settle makes what it can of a search that was not finished.
func (s *search) settle() {
	if s.doubt.low > 0 && s.doubt.low < s.doubt.high {
		s.low, s.high = s.doubt.low, s.doubt.high
	}
	// The threshold that agrees with most trials; the lowest of equals.
	fewest := len(s.found.Steps) + 1
	for _, at := range s.found.Steps {
		against := 0
		for _, step := range s.found.Steps {
			if step.Sustained != (step.Rate <= at.Rate) {
				against++
			}
		}
		if at.Sustained && (against < fewest || against == fewest && at.Rate < s.found.BreakingPointRPS) {
			fewest, s.found.BreakingPointRPS = against, at.Rate
		}
	}
	s.low = min(s.low, s.found.BreakingPointRPS)
	if s.high > 0 {
		s.high = max(s.high, s.found.BreakingPointRPS)
	}
}

// ended tells whether there are two ends, or none is to be found any more.
func (s *search) ended() bool {
	return s.low > 0 && s.high > 0 || s.high == 0 && s.low >= s.o.MaxRate || s.low == 0 && s.high > 0 && s.high <= lowestRate
}

// extend finds the end that there is not, in strides from the other, each twice as long as the
// last: by doubling and halving at most.
func (s *search) extend(ctx context.Context, stride float64, yes int) error {
	for ; !s.ended(); stride *= 2 {
		rate := min(s.low*(1+min(stride, 1)), s.o.MaxRate)
		if s.low == 0 {
			rate = max(s.high*(1-min(stride, 0.5)), lowestRate)
		}
		if err := s.bound(ctx, rate, yes); err != nil {
			return err
		}
	}
	return nil
}

// confirm tries just outside of the range. If it was wrong there, it is moved
// to where it may be right.
func (s *search) confirm(ctx context.Context) (sure bool, err error) {
	found, below, above := s.low, s.low*(1-precision), min(s.high*(1+precision), s.o.MaxRate)
	if err := s.bound(ctx, below, 2); err != nil {
		return false, err
	}
	if s.high == below {
		s.low = 0
		return false, s.extend(ctx, 2*precision, 2)
	}
	if err := s.bound(ctx, above, 2); err != nil {
		return false, err
	}
	if s.low == above {
		s.high = 0
		return false, s.extend(ctx, 2*precision, 2)
	}
	s.found.BreakingPointRPS = found
	return true, nil
}

// bound decides on a rate, which becomes the lower bound or the upper one. It takes so many
// trials that say yes, or two that say no; never more than three.
func (s *search) bound(ctx context.Context, rate float64, yes int) error {
	ayes, noes, late := 0, 0, 0
	for ayes < yes && noes < 2 {
		step, err := s.try(ctx, rate)
		if err != nil {
			return err
		}
		if step.Sustained {
			ayes++
			continue
		}
		noes++
		if step.GeneratorLate {
			late++
		}
		if err := s.recover(ctx); err != nil {
			return err
		}
	}
	if noes < 2 {
		s.low, s.doubt.high = rate, max(s.doubt.high, rate)
		return nil
	}
	s.high, s.late = rate, late == 2
	if s.doubt.low == 0 || rate < s.doubt.low {
		s.doubt.low = rate
	}
	return nil
}

func (s *search) try(ctx context.Context, rate float64) (*Step, error) {
	if len(s.found.Steps) == s.o.maxTrials {
		return nil, errTrials
	}
	load := s.o.Load
	load.Rate = rate
	r, err := s.send(ctx, load)
	if err != nil {
		return nil, err
	}
	s.found.URL = cmp.Or(r.URL, s.found.URL) // that of targets is theirs
	s.found.Strategy, s.found.Workers, s.found.Capacity = r.Strategy, r.Workers, r.Capacity
	s.found.Steps = append(s.found.Steps, Step{
		Rate:            rate,
		OfferedRPS:      r.OfferedRPS,
		CompletedRPS:    r.CompletedRPS,
		GoodputRPS:      r.GoodputRPS,
		GoodShare:       shareOf(r),
		Sustained:       shareOf(r) >= goodShare,
		GeneratorLate:   r.Lateness.P99 > r.SLOMillis/2,
		ConnectionsBusy: r.Busy(),
		Latency:         r.Latency,
		LatenessP99:     r.Lateness.P99,
		ServerCPUMicros: r.ServerCPUMicros,
	})
	step := &s.found.Steps[len(s.found.Steps)-1]
	if s.o.Progress != nil {
		s.found.Low, s.found.High = s.low, s.high
		s.o.Progress(s.found)
	}
	return step, nil
}

// recover waits until the server has nothing left of a trial that it did not
// sustain: until a tenth of what it sustains is served well, or some requests
// a second while it is not known what that is.
func (s *search) recover(ctx context.Context) error {
	const attempts = 30
	load := s.o.Load
	load.Arrivals, load.Warmup = workload.Constant, 0
	load.Rate = 5
	if s.low > 0 {
		load.Rate = max(s.low/10, lowestRate)
	}
	load.Duration = max(time.Second, time.Duration(5/load.Rate*float64(time.Second)))
	for attempt := range attempts {
		r, err := s.send(ctx, load)
		if err != nil {
			return err
		}
		if shareOf(r) >= goodShare {
			return nil
		}
		if s.low == 0 && attempt == 2 && result.Sum(r.Errors) == r.Requests {
			return fmt.Errorf("no request has an answer, not even at %.3g a second", load.Rate)
		}
	}
	if s.low == 0 {
		return nil // it may not be able to do even that
	}
	return errBacklog
}

func (s *search) send(ctx context.Context, load workload.Options) (*result.Result, error) {
	load.NoProfiles = true
	load.Seed += s.sent // trials of one rate are not to be the same
	s.sent++
	r, err := s.o.Run(ctx, load)
	if err == nil && r.Partial != "" {
		err = errors.New(r.Partial)
	}
	if err == nil && r.Requests == 0 {
		err = fmt.Errorf("no request was sent in %v at %.3g a second", load.Duration, load.Rate)
	}
	return r, err
}

func shareOf(r *result.Result) float64 {
	if r.OfferedRPS == 0 {
		return 0
	}
	return r.GoodputRPS / r.OfferedRPS
}
