package workload

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Profile is how the rate of a load changes over time, in multiples of Options.Rate:
//
//   - "" or "steady": not at all;
//   - "spike:4x,5s": four times the rate for 5 s, after a quarter of the rest of the
//     measured window;
//   - "ramp:0.5x,10x": from half to ten times the rate over the window;
//   - "burst:5x,100ms,1s": five times the rate in the last 100 ms of each second.
//
// A closed loop has none.
type Profile string

// UnmarshalText checks and takes a text.
func (p *Profile) UnmarshalText(text []byte) error {
	if _, ok := Profile(text).parse(); !ok {
		return badValue("profile", string(text), "steady, a spike such as spike:4x,5s, a ramp such as ramp:0.5x,10x, "+
			"or bursts such as burst:5x,100ms,1s, multiples above 0 and up to 100")
	}
	*p = Profile(text)
	return nil
}

// shape is a profile that was read.
type shape struct {
	kind          string
	from, to      float64       // multiples; from alone for a spike and bursts
	length, every time.Duration // of a spike or a burst
}

func (p Profile) parse() (s shape, ok bool) {
	if p == "" || p == "steady" {
		return s, true
	}
	kind, rest, _ := strings.Cut(string(p), ":")
	parts := strings.Split(rest, ",")
	s.kind = kind
	multiple := func(i int) (m float64) {
		text, found := strings.CutSuffix(parts[i], "x")
		m, err := strconv.ParseFloat(text, 64)
		ok = ok && found && err == nil && m > 0 && m <= 100
		return m
	}
	lasting := func(i int) time.Duration {
		d, err := time.ParseDuration(parts[i])
		ok = ok && err == nil && d > 0
		return d
	}
	ok = true
	switch {
	case kind == "spike" && len(parts) == 2:
		s.from, s.length = multiple(0), lasting(1)
	case kind == "ramp" && len(parts) == 2:
		s.from, s.to = multiple(0), multiple(1)
	case kind == "burst" && len(parts) == 3:
		s.from, s.length, s.every = multiple(0), lasting(1), lasting(2)
		ok = ok && s.length < s.every
	default:
		return s, false
	}
	return s, ok
}

// course is how the multiple changes during a run. It goes forward only.
type course struct {
	pieces  []piece
	repeats bool
	// The present piece, when it begins, and how much has been due by then, in
	// seconds of the steady rate.
	i     int
	begun float64
	done  float64
}

// piece is a straight line from one multiple to another.
type piece struct{ seconds, from, to float64 }

// course returns that of a profile over a run; nil if it is steady.
func (p Profile) course(warmup, window time.Duration) *course {
	s, ok := p.parse()
	if !ok {
		return nil
	}
	before, during, length := warmup.Seconds(), window.Seconds(), s.length.Seconds()
	endless := math.Inf(1)
	switch s.kind {
	case "spike":
		return &course{pieces: []piece{{before + max(0, during-length)/4, 1, 1}, {length, s.from, s.from}, {endless, 1, 1}}}
	case "ramp":
		return &course{pieces: []piece{{before, s.from, s.from}, {during, s.from, s.to}, {endless, s.to, s.to}}}
	case "burst":
		return &course{pieces: []piece{{s.every.Seconds() - length, 1, 1}, {length, s.from, s.from}}, repeats: true}
	default:
		return nil
	}
}

// at returns when so much has been due, in seconds. It is called with what does
// not become less.
func (c *course) at(due float64) float64 {
	for {
		p := c.pieces[c.i]
		work := p.seconds * (p.from + p.to) / 2
		if due < c.done+work {
			slope := 0.0
			if p.from != p.to {
				slope = (p.to - p.from) / p.seconds
			}
			// The root of slope/2 t² + from t = due - done.
			rest := due - c.done
			return c.begun + 2*rest/(p.from+math.Sqrt(max(0, p.from*p.from+2*slope*rest)))
		}
		c.done += work
		c.begun += p.seconds
		c.i++
		if c.repeats && c.i == len(c.pieces) {
			c.i = 0
		}
	}
}
