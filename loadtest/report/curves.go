package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/spillway-go/spillway/loadtest/result"
)

// perDecade is how many points a percentile curve has for each factor of ten on
// its axis, 1/(1-p).
const perDecade = 12

// beyond is how many requests must be beyond a percentile for it to be shown. Of
// fewer it is a guess: see result.Percentiles.
const beyond = 10

// curve returns the points of a percentile curve in milliseconds, from a
// histogram of microseconds.
func curve(h *hdrhistogram.Histogram) [][]num {
	var at []num
	var percentiles []float64
	for k := 0; ; k++ {
		x := math.Pow(10, float64(k)/perDecade)
		if beyond*x > float64(h.TotalCount()) {
			break
		}
		at, percentiles = append(at, num(x)), append(percentiles, 100*(1-1/x))
	}
	values := h.ValueAtPercentilesSlice(percentiles)
	points := make([][]num, len(at))
	for i, v := range values {
		points[i] = []num{at[i], num(float64(v) / 1e3)}
	}
	return points
}

// curves returns the corrected and the served percentile curve of runs together.
func curves(runs []*Run) (all, served [][]num, err error) {
	all, err = together(runs, (*result.Result).Histogram)
	if err == nil {
		served, err = together(runs, (*result.Result).ServedHistogram)
	}
	return all, served, err
}

func together(runs []*Run, of func(*result.Result) (*hdrhistogram.Histogram, error)) ([][]num, error) {
	var sum *hdrhistogram.Histogram
	for _, r := range runs {
		h, err := of(r.Result)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		case sum == nil:
			sum = h
		default:
			sum.Merge(h)
		}
	}
	if sum == nil {
		return nil, nil
	}
	return curve(sum), nil
}

// maxMoments is how many points show what changes over time.
const maxMoments = 120

// moments divides n things that follow each other into at most maxMoments
// intervals, and calls f with the bounds of each.
func moments(n int, f func(from, to int)) {
	step := (n + maxMoments - 1) / maxMoments
	for from := 0; from < n; from += step {
		f(from, min(from+step, n))
	}
}

// overTime returns a figure of the intervals of the timeline, over time: of
// several that are drawn as one point, of all of them. They last so many seconds.
func (r *Run) overTime(of func(in []result.Interval, seconds float64) float64) (points [][]num) {
	step := cmp.Or(r.TimelineStep, 1)
	moments(len(r.Timeline), func(from, to int) {
		start, end := float64(from)*step, float64(to)*step
		if r.Seconds > 0 {
			end = min(end, r.Seconds)
		}
		// What is left of a window that was cut short is too little to tell a rate.
		if end-start >= step/10 {
			points = append(points, []num{num((start + end) / 2), num(of(r.Timeline[from:to], end-start))})
		}
	})
	return points
}

// rate returns how much of something there was a second, over time.
func (r *Run) rate(of func(result.Interval) int64) [][]num {
	return r.overTime(func(in []result.Interval, seconds float64) float64 {
		sum := int64(0)
		for _, i := range in {
			sum += of(i)
		}
		return float64(sum) / seconds
	})
}

func (r *Run) largest(of func(result.Interval) float64) [][]num {
	return r.overTime(func(in []result.Interval, _ float64) (v float64) {
		for _, i := range in {
			v = max(v, of(i))
		}
		return v
	})
}

// percentile returns the largest of a percentile over time, without the intervals
// of which it would be a guess.
func (r *Run) percentile(percentile float64, of func(result.Interval) float64) [][]num {
	points := r.largest(func(i result.Interval) float64 {
		if float64(i.Offered)*(100-percentile) < 100*beyond {
			return 0
		}
		return of(i)
	})
	return slices.DeleteFunc(points, func(p []num) bool { return p[1] == 0 })
}

// interval names what a point of the charts over time stands for.
func (r *Run) interval() string {
	entries := (len(r.Timeline) + maxMoments - 1) / maxMoments
	if length := cmp.Or(r.TimelineStep, 1) * float64(max(1, entries)); length != 1 {
		return short(length) + " s"
	}
	return "second"
}
