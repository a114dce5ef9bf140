package result

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// someResult has one figure for each metric.
func someResult() *Result {
	h, served := newHistogram(fine), newHistogram(fine)
	for i := range 1000 {
		record(h, time.Duration(i+1)*time.Millisecond)
	}
	for i := range 100 {
		record(served, time.Duration(i+1)*time.Millisecond)
	}
	cpu := 21.5
	return &Result{
		Requests: 1000, OfferedRPS: 200, CompletedRPS: 150, GoodputRPS: 100,
		Status: map[string]int64{"200": 90, "404": 10, "503": 880}, Shed: map[string]int64{"full": 800, "expired": 80},
		Errors:  map[ErrorKind]int64{ErrorTimeout: 15, ErrorReset: 5},
		Latency: percentiles(h), ServedLatency: percentiles(served),
		LatencyHDR: encodeHistogram(h), ServedHDR: encodeHistogram(served),
		ServerCPUMicros: &cpu,
	}
}

func TestAssertion_Checks(t *testing.T) {
	t.Parallel()
	something := someResult()
	nothing := &Result{LatencyHDR: encodeHistogram(newHistogram(fine)), ServedHDR: encodeHistogram(newHistogram(fine))}
	for _, tt := range []struct {
		assertion string
		result    *Result
		ok        bool
		said      string
	}{
		// Latencies, of all and of the served.
		{"p50<600ms", something, true, "p50<600ms holds: it is 500.2 ms"},
		{"p99<50ms", something, false, "p99<50ms fails: it is 990.2 ms"},
		{"p99.9 <= 1s", something, true, "p99.9<=1s holds: it is 999.4 ms, a guess: fewer than 10 of 1000 requests are beyond it"},
		{"p99_9<=0.5s", something, false, "p99_9<=0.5s fails: it is 999.4 ms, a guess: fewer than 10 of 1000 requests are beyond it"},
		{"p12.5>100ms", something, true, "p12.5>100ms holds: it is 125.1 ms"},
		{"mean<1ms", something, false, "mean<1ms fails: it is 500.5 ms"},
		{"max>=1s", something, true, "max>=1s holds: it is 1000.4 ms"},
		{"served_p99<1ms", something, false, "served_p99<1ms fails: it is 99.01 ms, a guess: fewer than 10 of 100 requests are beyond it"},
		{"served_max<100ms", something, false, "served_max<100ms fails: it is 100.0 ms"},
		{"served_mean<51ms", something, true, "served_mean<51ms holds: it is 50.50 ms"},
		// Rates, also as shares of the offered one.
		{"goodput>=100", something, true, "goodput>=100 holds: it is 100/s"},
		{"goodput>=99%", something, false, "goodput>=99% fails: it is 50%"},
		{"completed==75%", something, true, "completed==75% holds: it is 75%"},
		{"completed>150", something, false, "completed>150 fails: it is 150/s"},
		// Counts, also as shares of all requests.
		{"errors==0", something, false, "errors==0 fails: it is 20"},
		{"errors<=2%", something, true, "errors<=2% holds: it is 2%"},
		{"shed<1%", something, false, "shed<1% fails: it is 88%"},
		{"non2xx==890", something, true, "non2xx==890 holds: it is 890"},
		{"server_cpu<30us", something, true, "server_cpu<30us holds: it is 21.50 us"},
		// What was not measured does not hold.
		{"p99<50ms", nothing, false, "p99<50ms fails: it is not known: no request was answered"},
		{"served_p99<50ms", nothing, false, "served_p99<50ms fails: it is not known: no request was served"},
		{"max<50ms", nothing, false, "max<50ms fails: it is not known: no request was answered"},
		{"errors==0", nothing, false, "errors==0 fails: it is not known: no request was made"},
		{"goodput>=99%", nothing, false, "goodput>=99% fails: no request was made"},
		{"server_cpu<30us", nothing, false, "server_cpu<30us fails: it was not measured, which takes --admin"},
	} {
		a, err := ParseAssertion(tt.assertion)
		require.NoError(t, err, tt.assertion)
		ok, said := a.Check(tt.result)
		require.Equal(t, tt.said, said)
		require.Equal(t, tt.ok, ok, tt.assertion)
	}
}

func TestParseAssertion_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                  "one of < <= > >= ==",
		"p99":               "one of < <= > >= ==",
		"p99=50ms":          "one of < <= > >= ==",
		"p99!=50ms":         "one of < <= > >= ==",
		"<50ms":             "one of the metrics",
		"latency<50ms":      "one of the metrics p50, p99",
		"p100<50ms":         "one of the metrics",
		"p0<50ms":           "one of the metrics",
		"pNaN<50ms":         "one of the metrics",
		"p1e1<50ms":         "one of the metrics",
		"served_errors<1":   "one of the metrics",
		"p99<50":            "a duration such as 50ms or 0.2s as the value of p99",
		"p99<":              "a duration",
		"p99<-1ms":          "a duration",
		"p99<1%":            "a duration",
		"goodput>=10ms":     "a number such as 1000, or a percentage such as 0.1%, as the value of goodput",
		"errors==":          "a number",
		"errors==NaN":       "a number",
		"errors<Inf":        "a number",
		"errors<-1":         "a number",
		"errors<1%%":        "a number",
		"p99<50ms<60ms":     "a duration",
		"server_cpu<30%":    "a duration",
		"goodput>=1000 rps": "a number",
	} {
		_, err := ParseAssertion(s)
		require.ErrorContains(t, err, want, s)
	}
}

func FuzzParseAssertion(f *testing.F) {
	for _, s := range []string{"p99<50ms", "p99.9<=0.2s", "served_p50>1us", "shed<0.1%", "goodput>=1000", "errors==0"} {
		f.Add(s)
	}
	r := someResult()
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAssertion(s)
		if err != nil {
			return
		}
		again, err := ParseAssertion(a.text)
		require.NoError(t, err)
		require.Equal(t, a.text, again.text)
		ok, said := a.Check(r)
		okAgain, saidAgain := again.Check(r)
		require.Equal(t, said, saidAgain)
		require.Equal(t, ok, okAgain)
	})
}
