package result

import (
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is what histograms hold at most; what took longer counts as this long.
const longest = 2 * time.Hour

// fine and coarse are the significant digits of histograms. Coarse takes a tenth of the memory.
const fine, coarse = 3, 2

// newHistogram holds microseconds.
func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest.Microseconds(), digits)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d, 0), longest).Microseconds()) // within its bounds nothing fails
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentiles returns those of a histogram of microseconds.
func percentiles(h *hdrhistogram.Histogram) Percentiles {
	if h.TotalCount() == 0 {
		return Percentiles{}
	}
	at := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / 1000 }
	return Percentiles{
		Mean: h.Mean() / 1000, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: float64(h.Max()) / 1000,
		Count: h.TotalCount(),
	}
}

func encodeHistogram(h *hdrhistogram.Histogram) string {
	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return "" // it writes to memory
	}
	return string(text)
}

func decodeHistogram(field, text string) (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return h, nil
}

// Histogram returns the latencies of all requests, in microseconds.
func (r *Result) Histogram() (*hdrhistogram.Histogram, error) {
	return decodeHistogram("latency_hdr", r.LatencyHDR)
}

// ServedHistogram returns the latencies of what was served, in microseconds.
func (r *Result) ServedHistogram() (*hdrhistogram.Histogram, error) {
	return decodeHistogram("served_latency_hdr", r.ServedHDR)
}

// WriteHDR writes the latencies of all requests as HdrHistogram's percentile
// text, in milliseconds.
func (r *Result) WriteHDR(w io.Writer) error {
	h, err := r.Histogram()
	if err != nil {
		return err
	}
	_, err = h.PercentilesPrint(w, 5, 1000)
	return err
}
