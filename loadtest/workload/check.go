package workload

import (
	"cmp"
	"fmt"
	"runtime"
	"time"
)

// MaxConnections is how many connections one generator opens at most. All of
// them are on one local address, which has some 28,000 ports to give.
const MaxConnections = 20_000

// MaxKeys is how many keys a load may have; fewer digits than a key has.
const MaxKeys = 100_000_000_000

// mostUnsent is how many bytes may wait in memory to be sent.
const mostUnsent = 4 << 30

// WithDefaults returns o with the defaults in the place of zero values.
func (o Options) WithDefaults() Options {
	o.Duration = cmp.Or(o.Duration, 10*time.Second)
	o.Connections = cmp.Or(o.Connections, 64)
	o.Loops = cmp.Or(o.Loops, min(max(1, runtime.NumCPU()/2), o.Connections))
	o.Mix = cmp.Or(o.Mix, Mix{Put: 50, Get: 50})
	o.Keys = cmp.Or(o.Keys, 100_000)
	o.ValueSize = cmp.Or(o.ValueSize, Sizes{Min: 100, Max: 100})
	o.ScanLimit = cmp.Or(o.ScanLimit, 100)
	if len(o.Targets) > 0 {
		o.Good = cmp.Or(o.Good, "2xx,3xx")
	}
	o.SLO = cmp.Or(o.SLO, 100*time.Millisecond)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	return o
}

// Check reports what of o cannot be sent, wherever that is to. Defaults must be set. What has a
// text is not checked again: its UnmarshalText did that.
func (o *Options) Check() error {
	for _, header := range o.Headers {
		if err := checkHeader(header); err != nil {
			return err
		}
	}
	if err := o.checkTargets(); err != nil {
		return err
	}
	const day = 24 * time.Hour
	bounds := []struct {
		what     string
		ok       bool
		is, must any
	}{
		{"rate", o.Rate >= 0 && o.Rate <= 10_000_000, o.Rate, "0 to 10000000 a second"},
		{"think", o.Think == 0 || o.Think > 0 && o.Think <= time.Hour && o.Rate == 0, o.Think, "0 to 1h, in a closed loop"},
		{"duration", o.Duration > 0 && o.Duration <= day, o.Duration, "more than 0, at most 24h"},
		{"warmup", o.Warmup >= 0 && o.Warmup <= day, o.Warmup, "0 to 24h"},
		{"connections", o.Connections >= 1 && o.Connections <= MaxConnections, o.Connections, fmt.Sprint("1 to ", MaxConnections)},
		{"loops", o.Loops >= 1 && o.Loops <= o.Connections && o.Loops <= 1024, o.Loops, "1 to the number of connections, at most 1024"},
		{"keys", o.Keys >= 1 && o.Keys <= MaxKeys, o.Keys, fmt.Sprint("1 to ", uint64(MaxKeys))},
		{"scan-limit", o.ScanLimit >= 1, o.ScanLimit, "at least 1"},
		{"slo", o.SLO > 0 && o.SLO <= time.Hour, o.SLO, "more than 0, at most 1h"},
		{"timeout", o.Timeout >= time.Millisecond && o.Timeout <= time.Hour, o.Timeout, "1ms to 1h"},
	}
	for _, b := range bounds {
		if !b.ok {
			return fmt.Errorf("%s: %v is not %s", b.what, b.is, b.must)
		}
	}
	if v := o.ValueSize; len(o.Targets) == 0 && v.Max*o.Connections > mostUnsent {
		return fmt.Errorf("value-size: %d bytes on each of %d connections take more than %d GiB", v.Max, o.Connections, mostUnsent>>30)
	}
	if o.Count > 0 && o.Rate > 0 {
		return fmt.Errorf("count: %d is for a closed loop, and the rate is %v", o.Count, o.Rate)
	}
	return nil
}
