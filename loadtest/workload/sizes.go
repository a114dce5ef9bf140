package workload

import (
	"math"
	"strconv"
	"strings"
)

// MaxValueSize bounds the length of a value, in bytes.
const MaxValueSize = 1 << 30

// Sizes is the length of values in bytes: drawn evenly from Min to Max, both
// included. 0 <= Min <= Max <= MaxValueSize, and Max is at least 1.
type Sizes struct{ Min, Max int }

// String writes the sizes as UnmarshalText reads them; "" for the zero value.
func (s Sizes) String() string {
	switch {
	case s == Sizes{}:
		return ""
	case s.Min == s.Max:
		return ByteCount(s.Min).String()
	default:
		return ByteCount(s.Min).String() + "-" + ByteCount(s.Max).String()
	}
}

// Mean is the length of a value in the mean.
func (s Sizes) Mean() float64 { return (float64(s.Min) + float64(s.Max)) / 2 }

// MarshalText returns what String does.
func (s Sizes) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads one size, "100" or "1KB", or a range, "64-4096".
func (s *Sizes) UnmarshalText(text []byte) error {
	first, second, isRange := strings.Cut(string(text), "-")
	low, ok := parseBytes(first)
	high := low
	if ok && isRange {
		high, ok = parseBytes(second)
	}
	if !ok || low > high || high < 1 || high > MaxValueSize {
		return badValue("value size", string(text),
			"bytes such as 100 or 4KiB, or a range such as 64-4096, from 1 to 1GiB")
	}
	*s = Sizes{Min: int(low), Max: int(high)}
	return nil
}

// ByteCount is a number of bytes, at least 0.
type ByteCount int64

// byteUnits are the units that are read, each before those that it ends with.
var byteUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"KB", 1e3},
}

// String writes the count in the largest unit that leaves no fraction: "10GB",
// "64KiB", "1001".
func (c ByteCount) String() string {
	if c > 0 {
		for _, unit := range byteUnits {
			if int64(c)%unit.bytes == 0 {
				return strconv.FormatInt(int64(c)/unit.bytes, 10) + unit.name
			}
		}
	}
	return strconv.FormatInt(int64(c), 10)
}

// MarshalText returns what String does.
func (c ByteCount) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a whole number of bytes, or of KB, KiB, MB, MiB, GB, GiB,
// TB or TiB.
func (c *ByteCount) UnmarshalText(text []byte) error {
	n, ok := parseBytes(string(text))
	if !ok {
		return badValue("number of bytes", string(text), "a whole number of bytes such as 1048576, 64KiB or 10GB")
	}
	*c = ByteCount(n)
	return nil
}

func parseBytes(s string) (int64, bool) {
	scale := int64(1)
	for _, unit := range byteUnits {
		if rest, found := strings.CutSuffix(s, unit.name); found {
			s, scale = rest, unit.bytes
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/scale) {
		return 0, false
	}
	return int64(n) * scale, true
}
