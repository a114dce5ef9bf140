package workload

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
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
		return strconv.Itoa(s.Min)
	default:
		return fmt.Sprintf("%d-%d", s.Min, s.Max)
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

// String writes the count for people, in three digits or so: "10 GB".
func (c ByteCount) String() string { return humanize.Bytes(uint64(c)) }

// UnmarshalText reads a number of bytes, or of kB, KiB, MB, MiB and so on.
func (c *ByteCount) UnmarshalText(text []byte) error {
	n, ok := parseBytes(string(text))
	if !ok {
		return badValue("number of bytes", string(text), "a number of bytes such as 1048576, 64KiB or 10GB")
	}
	*c = ByteCount(n)
	return nil
}

// parseBytes reads a number of bytes. A comma is a point to some and nothing to
// others, and refused.
func parseBytes(s string) (int64, bool) {
	n, err := humanize.ParseBytes(s)
	return int64(n), err == nil && n <= math.MaxInt64 && !strings.Contains(s, ",")
}
