package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Distribution is one of times, such as those that workers spend on requests.
type Distribution interface {
	// Draw returns a time, at least 0.
	Draw(*rand.Rand) time.Duration
	// Mean returns the mean of the times, above 0 for a time of service.
	Mean() time.Duration
}

// Constant is always the same.
type Constant time.Duration

// Draw returns the constant.
func (c Constant) Draw(*rand.Rand) time.Duration { return time.Duration(c) }

// Mean returns the constant.
func (c Constant) Mean() time.Duration { return time.Duration(c) }

func (c Constant) String() string { return time.Duration(c).String() }

// Exponential is the exponential distribution of that mean.
type Exponential time.Duration

// Draw returns a time.
func (e Exponential) Draw(r *rand.Rand) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(e))
}

// Mean returns the mean.
func (e Exponential) Mean() time.Duration { return time.Duration(e) }

func (e Exponential) String() string { return "exp:" + time.Duration(e).String() }

// LogNormal is the log-normal distribution, which many services have: nearly
// all requests are fast, and a few are very slow.
type LogNormal struct {
	// Average is the mean.
	Average time.Duration
	// CV is the coefficient of variation, the standard deviation over the mean.
	// An exponential distribution has 1.
	CV float64
}

// Draw returns a time.
func (l LogNormal) Draw(r *rand.Rand) time.Duration {
	variance := math.Log1p(l.CV * l.CV) // of the logarithm
	return time.Duration(float64(l.Average) * math.Exp(r.NormFloat64()*math.Sqrt(variance)-variance/2))
}

// Mean returns the mean.
func (l LogNormal) Mean() time.Duration { return l.Average }

func (l LogNormal) String() string { return fmt.Sprintf("lognormal:%v,%g", l.Average, l.CV) }

// Bimodal is one of two times: that of cheap requests, or of expensive ones.
type Bimodal struct {
	Cheap, Expensive time.Duration
	// Share is that of the expensive ones, 0 to 1.
	Share float64
}

// Draw returns a time.
func (b Bimodal) Draw(r *rand.Rand) time.Duration {
	if r.Float64() < b.Share {
		return b.Expensive
	}
	return b.Cheap
}

// Mean returns the mean.
func (b Bimodal) Mean() time.Duration {
	return time.Duration((1-b.Share)*float64(b.Cheap) + b.Share*float64(b.Expensive))
}

func (b Bimodal) String() string {
	return fmt.Sprintf("bimodal:%v,%v,%g", b.Cheap, b.Expensive, b.Share)
}

// longest is the longest time that ParseDistribution accepts, of a back-off, and that a
// simulation goes on past its window.
const longest = time.Hour

// ParseDistribution parses what the distributions' String methods write: "4ms",
// "exp:4ms", "lognormal:4ms,1.5" (mean and coefficient of variation) or
// "bimodal:1ms,50ms,0.05" (cheap, expensive, and the share of the expensive).
// The times are above 0 and at most an hour.
func ParseDistribution(s string) (Distribution, error) {
	kind, rest, found := strings.Cut(s, ":")
	if !found {
		kind, rest = "", s
	}
	var (
		times   []time.Duration
		numbers []float64
	)
	for part := range strings.SplitSeq(rest, ",") {
		if d, err := time.ParseDuration(part); err == nil && d > 0 && d <= longest {
			times = append(times, d)
		} else if v, err := strconv.ParseFloat(part, 64); err == nil && v > 0 && v <= 100 {
			numbers = append(numbers, v)
		} else {
			times = nil
			break
		}
	}
	switch {
	case kind == "" && len(times) == 1 && numbers == nil:
		return Constant(times[0]), nil
	case kind == "exp" && len(times) == 1 && numbers == nil:
		return Exponential(times[0]), nil
	case kind == "lognormal" && len(times) == 1 && len(numbers) == 1:
		return LogNormal{Average: times[0], CV: numbers[0]}, nil
	case kind == "bimodal" && len(times) == 2 && len(numbers) == 1 && numbers[0] <= 1:
		return Bimodal{Cheap: times[0], Expensive: times[1], Share: numbers[0]}, nil
	}
	return nil, fmt.Errorf("%q is not a distribution of times such as 4ms, exp:4ms, lognormal:4ms,1.5 (mean, coefficient of variation) "+
		"or bimodal:1ms,50ms,0.05 (cheap, expensive, share of the expensive), above 0 and up to %v", s, longest)
}
