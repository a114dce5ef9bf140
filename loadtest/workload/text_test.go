package workload

import (
	"encoding"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parse reads s as a value of T.
func parse[T any](s string) (T, error) {
	var v T
	err := any(&v).(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
	return v, err
}

func TestValues_AreReadAndWritten(t *testing.T) {
	t.Parallel()
	good(t, "poisson", Poisson)
	good(t, "constant", Constant)
	good(t, "uniform", Uniform)
	good(t, "zipf", Zipf)
	good(t, "sequential", Sequential)
	good(t, "latest", Latest)

	good(t, "put=50,get=45,delete=0,scan=5", Mix{Put: 50, Get: 45, Scan: 5})
	good(t, "scan=1, get=2.5", Mix{Get: 2.5, Scan: 1})
	good(t, "get=1", Mix{Get: 1})

	written(t, "100", good(t, "100", Sizes{100, 100}))
	written(t, "1000", good(t, "1KB", Sizes{1000, 1000}))
	written(t, "64-4096", good(t, "64-4096", Sizes{64, 4096}))
	written(t, "0-1024", good(t, "0-1KiB", Sizes{0, 1024}))
	written(t, "1073741824", good(t, "1GiB", Sizes{1 << 30, 1 << 30}))
	written(t, "epoll", good(t, "epoll", Epoll))

	good(t, "3", Priorities{3: 1})
	good(t, "0=10,3=90", Priorities{0: 10, 3: 90})
	good(t, "3=90", Priorities{3: 90})

	good(t, "3,10ms", Retries{Attempts: 3, Backoff: 10 * time.Millisecond})
	good(t, "2,0s", Retries{Attempts: 2})
	good(t, "4,1s,0.1", Retries{Attempts: 4, Backoff: time.Second, Budget: 0.1})
}

func TestByteCount(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]ByteCount{"10GB": 10e9, "64KiB": 64 << 10, "1.5 gb": 1.5e9, "2M": 2e6, "1001": 1001, "0": 0} {
		c, err := parse[ByteCount](s)
		require.NoError(t, err, s)
		require.Equal(t, want, c, s)
	}
	require.Equal(t, "10 GB", ByteCount(10e9).String())
}

func good[T any](t *testing.T, s string, want T) T {
	t.Helper()
	v, err := parse[T](s)
	require.NoError(t, err, s)
	require.Equal(t, want, v, s)
	return v
}

// written checks the text of a value, which is also that in JSON.
func written[T fmt.Stringer](t *testing.T, want string, v T) {
	t.Helper()
	require.Equal(t, want, v.String())
	again, err := parse[T](v.String())
	require.NoError(t, err)
	require.Equal(t, v, again)
	content, err := json.Marshal(v)
	require.NoError(t, err)
	require.JSONEq(t, `"`+want+`"`, string(content))
}

func TestValues_SayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	bad[Arrivals](t, "poisson, constant", "", "Poisson", "uniform", "\xff")
	bad[Distribution](t, "uniform, zipf, sequential, latest", "", "zipfian", "1")
	bad[Mix](t, "put=50,get=45,scan=5", "", "put", "put=", "=1", "put=1,put=1", "put=0", "put=-1", "put=NaN",
		"put=Inf", "put=1e10", "get=1,", "post=1", "put=1;get=1", "put=1=1", "GET=1")
	bad[Sizes](t, "64-4096", "", "-", "1-", "-1", "5-4", "0", "0-0", "1,5KB", "2GiB", "1-2-3", "99999999999999999999", "9e9", " 1", "KB", "1XB")
	bad[ByteCount](t, "10GB", "", "-1", "1,5GB", "10X", "9223372036854775808", "9223372036854775807KB", "GB")
	bad[Priorities](t, "0=10,3=90", "", "8", "-1", "03", "3,4", "x", "0=0", "8=1", "0=1,0=2")
}

func bad[T any](t *testing.T, allowed string, values ...string) {
	t.Helper()
	for _, s := range values {
		v, err := parse[T](s)
		require.ErrorContains(t, err, allowed, "%q", s)
		require.ErrorContains(t, err, fmt.Sprintf("%q", s))
		require.Zero(t, v, "%q", s)
	}
	_, err := parse[T](strings.Repeat("long", 1000))
	require.Error(t, err)
	require.Less(t, len(err.Error()), 300)
}

func TestValues_ZeroIsWrittenAsNothingOrItsName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "auto", Engine(0).String())
	require.Equal(t, "77", Engine(77).String())
	require.Empty(t, Sizes{}.String())
}

func FuzzValues(f *testing.F) {
	for _, s := range []string{"poisson", "zipf", "put=50,get=45,delete=0,scan=5", "64-4096", "10GB", "3", "0=10,3=90", "put=-0,get=1e-300"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		within(t, s, func(v Arrivals) bool { return v <= Constant })
		within(t, s, func(v Distribution) bool { return v <= Latest })
		within(t, s, func(v Mix) bool { return areWeights(v.weights()) })
		within(t, s, func(v Priorities) bool { return areWeights(v[:]) })
		within(t, s, func(v Sizes) bool {
			again, err := parse[Sizes](v.String())
			return err == nil && v == again && 0 <= v.Min && v.Min <= v.Max && 1 <= v.Max && v.Max <= MaxValueSize
		})
	})
}

func areWeights(weights []float64) bool {
	return slices.Max(weights) > 0 && slices.Max(weights) <= maxWeight && slices.Min(weights) >= 0
}

// within checks what was read, and that nothing is where that failed.
func within[T any](t *testing.T, s string, ok func(T) bool) {
	v, err := parse[T](s)
	if err != nil {
		require.Zero(t, v)
		return
	}
	require.True(t, ok(v), "%q was read as %+v", s, v)
}
