//go:build integration

package integration

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// A counter that 64 clients raise by compare-and-set, through kills, is exact. Its value
// is the number, and the names of the last of those that have raised it: so after a kill
// each client knows whether what was cut off has happened.
func TestKill_CounterIsExact(t *testing.T) {
	t.Parallel()
	const clients, trail = 64, 200
	cycles := longer(t, "SPILLWAY_TORTURE_CYCLES", 20)
	seed := seedOr(t, rand.Uint64())
	t.Logf("run again with SPILLWAY_TORTURE_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 64))
	folder := filepath.Join(t.TempDir(), "data")
	names := strategies.Names()
	var raised, refused atomic.Int64
	unsure := make([]string, clients) // the name of the raise that was cut off, by client
	parse := func(value string) (n int64, by []string) {
		fields := strings.Fields(value)
		if len(fields) == 0 {
			return 0, nil
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		require.NoError(t, err)
		return n, fields[1:]
	}
	for number := range cycles + 1 {
		s := start(t, plain, "SPILLWAY_DATA_DIR="+folder, "SPILLWAY_STRATEGY="+names[number%len(names)],
			"SPILLWAY_QUEUE_CAPACITY=32", "SPILLWAY_POOLS="+[]string{"shared", "split"}[number%2], cacheSizes[number%len(cacheSizes)])
		first, err := dial(s.data)
		require.NoError(t, err)
		a, err := first.do(http.MethodGet, entity("counter"), "")
		require.NoError(t, err)
		first.close()
		n, by := parse(a.body)
		for i, name := range unsure {
			if name != "" && slices.Contains(by, name) {
				raised.Add(1)
			}
			unsure[i] = ""
		}
		require.Equal(t, raised.Load(), n, "life %d", number)
		if number == cycles {
			t.Logf("raised %d times over %d kills, %d times refused", n, cycles, refused.Load())
			s.stop()
			return
		}
		last := 1 + rng.Int64N(300)
		var acknowledged atomic.Int64
		var ended atomic.Bool
		require.NoError(t, concurrently(clients, func(i int) error {
			c, err := dial(s.data)
			if err != nil {
				return nil // the service has ended
			}
			defer c.close()
			for round := 0; !ended.Load(); round++ {
				a, err := c.do(http.MethodGet, entity("counter"), "")
				if err != nil || a.shed() != "" {
					continue
				}
				n, by := parse(a.body)
				name := fmt.Sprintf("%d.%d.%d", number, i, round)
				condition := "If-None-Match: *"
				if a.status == http.StatusOK {
					condition = "If-Match: " + a.header.Get("ETag")
				}
				by = append([]string{name}, by[:min(len(by), trail-1)]...)
				a, err = c.do(http.MethodPut, entity("counter"), fmt.Sprint(n+1, " ", strings.Join(by, " ")), condition)
				switch {
				case err != nil:
					unsure[i] = name
					return nil
				case a.status == http.StatusCreated:
					raised.Add(1)
					if acknowledged.Add(1) == last {
						ended.Store(true)
						_ = s.cmd.Process.Signal(syscall.SIGKILL)
					}
				case a.status == http.StatusPreconditionFailed:
					refused.Add(1)
				case a.shed() == "":
					return fmt.Errorf("status %d: %s", a.status, a.body)
				}
			}
			return nil
		}))
		s.wait()
	}
}

// A kill in the midst of batches leaves each as a whole or not at all, and all that were
// acknowledged. So it is across keys that several batches write at once.
func TestKill_BatchesAreWhole(t *testing.T) {
	t.Parallel()
	const writers, keys = 8, 50
	cycles := longer(t, "SPILLWAY_TORTURE_CYCLES", 20)
	seed := seedOr(t, rand.Uint64())
	t.Logf("run again with SPILLWAY_TORTURE_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1000))
	names := strategies.Names()
	for _, sync := range []string{"always", "interval:5ms", "never"} {
		t.Run(sync, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "data")
			batches := 0
			acknowledged := make([]int, writers) // the number of the last batch, by writer
			sent := make([]int, writers)
			for number := range cycles + 1 {
				s := start(t, plain, "SPILLWAY_DATA_DIR="+folder, "SPILLWAY_SYNC="+sync,
					"SPILLWAY_STRATEGY="+names[number%len(names)], "SPILLWAY_POOLS="+[]string{"shared", "split"}[number%2],
					cacheSizes[number%len(cacheSizes)])
				c, err := dial(s.data)
				require.NoError(t, err)
				// Each writer has keys of its own, and all share some.
				for w := range writers {
					found := valuesUnder(t, c, fmt.Sprintf("own %d ", w), keys)
					require.Len(t, slices.Compact(found), 1, "life %d: writer %d: %q", number, w, found)
					n, _ := strconv.Atoi(strings.TrimSpace(found[0]))
					require.LessOrEqual(t, n, sent[w])
					if sync == "always" {
						require.GreaterOrEqual(t, n, acknowledged[w])
					}
					acknowledged[w], sent[w] = n, n
				}
				shared := valuesUnder(t, c, "shared ", keys)
				require.Len(t, slices.Compact(shared), 1, "life %d: %q", number, shared)
				c.close()
				if number == cycles {
					t.Logf("%d batches acknowledged over %d kills", batches, cycles)
					s.stop()
					return
				}
				last := 1 + rng.Int64N(60)
				var done atomic.Int64
				var ended atomic.Bool
				err = concurrently(writers, func(w int) error {
					c, err := dial(s.data)
					if err != nil {
						return nil // the service has ended
					}
					defer c.close()
					for !ended.Load() {
						sent[w]++
						a, err := c.do(http.MethodPost, "/v0/entities", puts(w, sent[w], keys), "Content-Type: application/x-ndjson")
						switch {
						case err != nil:
							return nil
						case a.shed() != "":
							continue
						case a.status != http.StatusOK:
							return fmt.Errorf("status %d: %s", a.status, a.body)
						}
						acknowledged[w] = sent[w]
						if done.Add(1) == last {
							ended.Store(true)
							return s.cmd.Process.Signal(syscall.SIGKILL)
						}
					}
					return nil
				})
				require.NoError(t, err)
				if !ended.Load() {
					require.NoError(t, errors.New("the service has ended by itself"), s.stderr)
				}
				batches += int(done.Load())
				s.wait()
			}
		})
	}
}

// puts is a batch that puts a number under the keys of a writer, and its name under
// those of all.
func puts(writer, number, keys int) string {
	var b strings.Builder
	for i := range keys {
		fmt.Fprintf(&b, `{"op":"put","key":%q,"value":%q}`+"\n", encode64(fmt.Sprintf("own %d %03d", writer, i)), encode64(fmt.Sprint(number)))
		fmt.Fprintf(&b, `{"op":"put","key":%q,"value":%q}`+"\n", encode64(fmt.Sprintf("shared %03d", i)), encode64(fmt.Sprint(writer, ".", number)))
	}
	return b.String()
}

func encode64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// valuesUnder returns the values of that many keys with a prefix, "" for each that is
// missing, read as one batch.
func valuesUnder(t testing.TB, c *client, prefix string, keys int) []string {
	var b strings.Builder
	for i := range keys {
		fmt.Fprintf(&b, `{"op":"get","key":%q}`+"\n", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s%03d", prefix, i)))
	}
	a, err := c.do(http.MethodPost, "/v0/entities", b.String(), "Content-Type: application/x-ndjson")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status, a.body)
	var values []string
	for line := range strings.Lines(a.body) {
		_, encoded, _ := strings.Cut(line, `"value":"`)
		encoded, _, _ = strings.Cut(encoded, `"`)
		value, err := base64.StdEncoding.DecodeString(encoded)
		require.NoError(t, err, line)
		values = append(values, string(value))
	}
	require.Len(t, values, keys)
	return values
}
