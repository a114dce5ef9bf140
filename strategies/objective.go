package strategies

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// NoObjective is the objective of those who want nobody refused for being late, as a pool
// of jobs that may take as long as they take.
const NoObjective time.Duration = -1

// The objective that stands in where none is set.
const (
	// StandIn is the least.
	StandIn = 100 * time.Millisecond
	// StandInTimes is how many times the usual service time it is, if that is more: those that wait before a place take
	// five of them. With more, a client of few connections to each place never waits for too long in the queue, and all
	// the longer for its own connections.
	StandInTimes = 6
	// StandInMost is the most.
	StandInMost = 30 * time.Second
)

// The longest and the shortest objective that can be set.
const (
	ShortestObjective = 100 * time.Microsecond
	LongestObjective  = time.Hour
)

// Objective is within which time a request should be answered, counted from its arrival.
// Whoever drives a discipline keeps it for as long as it lives, across switches, and calls
// Answered; a discipline reads what is in force at each decision, so that a change holds at
// once. The zero value is one that nobody has set.
//
// Where none is set, 100 ms stand in or, if that is longer, StandInTimes the usual service
// time, up to StandInMost. The usual service time is the lower quartile of the mean of eight
// samples of Answered: three quarters of the mean of exponential times, and of one request in
// ten that takes long it sees nothing. Only requests that ran while nobody waited, and while
// at most half of the workers were in use, are sampled, so a service that grows slow under an
// overload does not raise the objective that the overload is judged by.
//
// All methods are safe for concurrent use, and never block.
type Objective struct {
	set     atomic.Int64 // nanoseconds; 0 if it is not set, negative for NoObjective
	usual   atomic.Int64 // nanoseconds; 0 as long as it is not known
	samples atomic.Int64 // of the first answers and then of means, up to usualMany
	least   atomic.Int64 // the shortest of the first answers, in nanoseconds
	batch   atomic.Int64 // the sum of a mean's answers, times how many make one, and how many there are
}

// CheckObjective returns an error if d is no objective: 0 (not set), NoObjective, or
// ShortestObjective to LongestObjective.
func CheckObjective(d time.Duration) error {
	if d == 0 || d == NoObjective || d >= ShortestObjective && d <= LongestObjective {
		return nil
	}
	return fmt.Errorf("an objective of %v: %v to %v is allowed, 0 for one that follows the usual service time, or %d for none",
		d, ShortestObjective, LongestObjective, NoObjective)
}

// ParseObjective reads an objective as it is configured: a duration, "none" for NoObjective,
// or nothing for one that is not set. The error completes the sentence "want …".
func ParseObjective(s string) (time.Duration, error) {
	switch s {
	case "":
		return 0, nil
	case "none":
		return NoObjective, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < ShortestObjective || d > LongestObjective {
		return 0, errors.New("a duration from 100us to 1h such as 250ms or 2s, or none")
	}
	return d, nil
}

// FormatObjective writes an objective as ParseObjective reads it.
func FormatObjective(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d < 0:
		return "none"
	}
	return d.String()
}

// Set sets the objective, or takes it back if d is 0. It holds from the next decision on.
// The error is that of CheckObjective.
func (o *Objective) Set(d time.Duration) error {
	if err := CheckObjective(d); err != nil {
		return err
	}
	o.set.Store(int64(d))
	return nil
}

// InForce returns the objective, or 0 if it is NoObjective.
func (o *Objective) InForce() time.Duration {
	switch set := o.set.Load(); {
	case set > 0:
		return time.Duration(set)
	case set < 0:
		return 0
	default:
		return min(max(StandIn, StandInTimes*o.Usual()), StandInMost)
	}
}

// Usual returns the usual service time, 0 as long as it is not known: few answers may have
// been slow for a cause of their own, such as the first connection.
func (o *Objective) Usual() time.Duration {
	if o.samples.Load() < usualFirst {
		return 0
	}
	return time.Duration(o.usual.Load())
}

// ObjectiveState says which objective is in force, and why.
type ObjectiveState struct {
	// Set is what was set: 0 if nothing was, or NoObjective.
	Set time.Duration
	// InForce is what holds, 0 under NoObjective.
	InForce time.Duration
	// Why says in words where it comes from.
	Why string
}

// State returns which objective is in force, and why.
func (o *Objective) State() ObjectiveState {
	s := ObjectiveState{Set: time.Duration(o.set.Load()), InForce: o.InForce()}
	usual := o.Usual()
	switch {
	case s.Set > 0:
		s.Why = "it is set"
	case s.Set < 0:
		s.Why = "nobody is refused for being late"
	case usual == 0:
		s.Why = fmt.Sprintf("none is set, so %v stand in until the usual service time is known", StandIn)
	case s.InForce == StandIn:
		s.Why = fmt.Sprintf("none is set, so %v stand in, as %d times the usual service time of %v is less", StandIn, StandInTimes, usual.Round(10*time.Microsecond))
	case s.InForce == StandInMost:
		s.Why = fmt.Sprintf("none is set, and %d times the usual service time of %v is more than %v", StandInTimes, usual.Round(time.Millisecond), StandInMost)
	default:
		s.Why = fmt.Sprintf("none is set, so it is %d times the usual service time of %v", StandInTimes, usual.Round(100*time.Microsecond))
	}
	return s
}

const (
	usualShare   = 0.25 // the quantile that is usual
	usualMany    = 200  // means, after which they are not counted
	usualStep    = 0.02 // by which part one mean moves it then, at most; the first ones move it by more
	usualOf      = 8    // answers that make a mean, a power of 2
	usualFirst   = 8    // answers of which it is the second shortest: the first may be slow for a cause of their own
	usualLongest = int64(time.Hour)
)

// Answered samples a good answer that took so long from the beginning of the work, in
// nanoseconds, while nobody waited and at most half of the workers were in use. Of two calls
// at the same moment one may get lost.
func (o *Objective) Answered(took int64) {
	took = min(max(took, 1), usualLongest)
	if o.samples.Load() < usualFirst {
		switch n, least := o.samples.Add(1), o.least.Load(); {
		case n == 1:
			o.least.Store(took)
			o.usual.Store(usualLongest)
		case took < least:
			o.least.Store(took)
			o.usual.Store(least)
		default:
			o.usual.Store(min(o.usual.Load(), took))
		}
		return
	}
	batch := o.batch.Add(took*usualOf + 1)
	if batch%usualOf != 0 {
		return
	}
	o.batch.Add(-batch)
	mean := batch / (usualOf * usualOf)
	usual, samples := o.usual.Load(), o.samples.Load()
	step := float64(usual) * usualStep
	if samples < usualFirst+usualMany {
		step *= usualMany / float64(o.samples.Add(1)-usualFirst)
	}
	if mean < usual || usual == 0 { // the first answers came at the same moment
		usual = max(mean, usual-int64(math.Ceil(step*(1-usualShare))))
	} else {
		usual = min(mean, usual+int64(math.Ceil(step*usualShare)))
	}
	o.usual.Store(usual)
}
