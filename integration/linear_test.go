//go:build integration

package integration

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"spillway/strategies"
)

// call is an operation on a key.
type call struct {
	method string
	key    string
	value  string // of a PUT, unique in the history
}

// outcome is what came of it.
type outcome struct {
	value   string // what a GET found, "" for nothing
	unknown bool   // cut off: it may have happened by the time of its return, or never will
}

var seed = maphash.MakeSeed()

// register is the model of a key: a register that holds a value, or nothing. It
// is nondeterministic because of writes whose outcome is not known.
func register() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := make(map[string][]porcupine.Operation)
			for _, op := range history {
				key := op.Input.(call).key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, key := range slices.Sorted(func(yield func(string) bool) {
				for key := range byKey {
					if !yield(key) {
						return
					}
				}
			}) {
				parts = append(parts, byKey[key])
			}
			return parts
		},
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			in, out := input.(call), output.(outcome)
			switch {
			case in.method == http.MethodGet:
				if out.unknown || out.value == state.(string) {
					return []any{state}
				}
				return nil
			case out.unknown:
				return []any{state, in.value}
			default: // the value that a DELETE leaves is ""
				return []any{in.value}
			}
		},
		Hash: func(state any) uint64 { return maphash.String(seed, state.(string)) },
		DescribeOperation: func(input, output any) string {
			in, out := input.(call), output.(outcome)
			s := in.method + " " + in.key
			switch {
			case in.method == http.MethodPut:
				s += " = " + in.value
			case in.method == http.MethodGet && !out.unknown:
				s += fmt.Sprintf(" → %q", out.value)
			}
			if out.unknown {
				s += " (cut off)"
			}
			return s
		},
	}
	return model.ToModel()
}

// history is what one client has done.
type history struct {
	client int
	ops    []porcupine.Operation
	shed   int
}

// epoch is the origin of the times in histories.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// operate does one random operation on one of the keys. An operation that is
// shed has not happened and leaves no trace. The error of a cut connection is
// returned after the operation was noted, with an open end.
func (h *history) operate(c *client, rng *rand.Rand, keys int, name string) (happened bool, err error) {
	in := call{method: http.MethodGet, key: fmt.Sprint("register", rng.IntN(keys))}
	expect := http.StatusOK
	switch n := rng.IntN(10); {
	case n < 4:
		in.method, in.value, expect = http.MethodPut, name, http.StatusCreated
	case n < 5:
		in.method, expect = http.MethodDelete, http.StatusAccepted
	}
	op := porcupine.Operation{ClientId: h.client, Input: in, Call: now()}
	var headers []string
	if rng.IntN(5) == 0 {
		headers = []string{"Spillway-Timeout-Ms: 1"} // many of these expire while they wait
	}
	a, err := c.do(in.method, entity(in.key), in.value, headers...)
	op.Return = now()
	switch {
	case err != nil:
		op.Return = math.MaxInt64
		op.Output = outcome{unknown: true}
		h.ops = append(h.ops, op)
		return false, err
	case a.shed() != "": // 503 or, if it has expired, 504
		h.shed++
		return false, nil
	case a.status == http.StatusNotFound && in.method == http.MethodGet:
		op.Output = outcome{}
	case a.status == expect:
		op.Output = outcome{value: a.body}
	default:
		return false, fmt.Errorf("%s %s: status %d: %s", in.method, in.key, a.status, a.body)
	}
	h.ops = append(h.ops, op)
	return true, nil
}

// requireLinearizable checks histories. The picture of a bad one is kept with
// go test -artifacts.
func requireLinearizable(t *testing.T, name string, histories []history) {
	t.Helper()
	var ops []porcupine.Operation
	shed := 0
	for _, h := range histories {
		ops = append(ops, h.ops...)
		shed += h.shed
	}
	model := register()
	result, info := porcupine.CheckOperationsVerbose(model, ops, patience)
	if result == porcupine.Illegal {
		path := filepath.Join(t.ArtifactDir(), "history-"+name+".html")
		require.NoError(t, porcupine.VisualizePath(model, info, path))
		t.Fatalf("%s: the history of %d operations is not linearizable, see %s (kept with -artifacts)", name, len(ops), path)
	}
	if result == porcupine.Unknown {
		t.Logf("%s: gave up checking after %v", name, patience)
	}
	t.Logf("%s: %d operations, %d more shed: %s", name, len(ops), shed, result)
}

// The history of each key is linearizable under every strategy, with queues so
// short that many requests are shed, and across live switches.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for i, strategy := range strategies.Names() {
		for j, pools := range []string{"shared", "split"} {
			t.Run(strategy+"/"+pools, func(t *testing.T) {
				t.Parallel()
				s := start(t, raced, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_POOLS="+pools,
					"SPILLWAY_WORKERS=2", "SPILLWAY_QUEUE_CAPACITY=2")
				const clients, keys = 12, 3
				target := int64(longer(t, "SPILLWAY_TORTURE_OPERATIONS", 3000))
				names := strategies.Names()
				var operations atomic.Int64
				var switching atomic.Bool
				histories := make([]history, clients)
				err := concurrently(clients, func(client int) error {
					c, err := dial(s.data)
					if err != nil {
						return err
					}
					defer c.close()
					rng := rand.New(rand.NewPCG(uint64(i*2+j), uint64(client)))
					h := &histories[client]
					h.client = client
					for n := 0; operations.Load() < target; n++ {
						happened, err := h.operate(c, rng, keys, fmt.Sprintf("%d.%d", client, n))
						if err != nil {
							return err
						}
						if !happened {
							continue
						}
						// The first half is the strategy's own; then it alternates with
						// all others.
						done := operations.Add(1)
						if done > target/2 && done%50 == 0 && switching.CompareAndSwap(false, true) {
							to := strategy
							if done%100 == 0 {
								to = names[rng.IntN(len(names))]
							}
							if err := s.trySwitch(to); err != nil {
								return err
							}
							switching.Store(false)
						}
					}
					return nil
				})
				require.NoError(t, err)
				requireLinearizable(t, strategy+"-"+pools, histories)
				s.awaitConserved(names...)
				s.stop()
			})
		}
	}
}

// One history over many lives of the service, each of which ends by SIGKILL in
// the midst of things: what a read has seen is not taken back, a write that was
// cut off has happened by the time of the kill or never happens.
func TestLinearizable_AcrossCrashes(t *testing.T) {
	t.Parallel()
	const clients, keys = 8, 4
	folder := filepath.Join(t.TempDir(), "data")
	start0 := rand.Uint64()
	t.Logf("seed %d", start0)
	rng := rand.New(rand.NewPCG(start0, 0))
	names := strategies.Names()
	histories := make([]history, clients)
	for life := range longer(t, "SPILLWAY_TORTURE_CYCLES", 20) {
		s := start(t, plain, "SPILLWAY_DATA_DIR="+folder, "SPILLWAY_STRATEGY="+names[life%len(names)], "SPILLWAY_WORKERS=4")
		last := 50 + rng.Int64N(300)
		var operations atomic.Int64
		_ = concurrently(clients, func(client int) error {
			h := &histories[client]
			h.client = client
			rng := rand.New(rand.NewPCG(start0, uint64(life*clients+client)))
			c, err := dial(s.data)
			if err != nil {
				return err
			}
			defer c.close()
			for n := 0; ; n++ {
				happened, err := h.operate(c, rng, keys, fmt.Sprintf("%d.%d.%d", life, client, n))
				if err != nil {
					return err // the connection is cut
				}
				if happened && operations.Add(1) == last {
					_ = s.cmd.Process.Kill()
				}
			}
		})
		s.kill()
		require.GreaterOrEqual(t, operations.Load(), last, "the service ended before it was killed")
		// From now on nothing of this life can happen any more.
		end := now()
		for i := range histories {
			for j := range histories[i].ops {
				if op := &histories[i].ops[j]; op.Return == math.MaxInt64 {
					op.Return = end
				}
			}
		}
	}
	requireLinearizable(t, "crashes", histories)
}
