//go:build integration

package integration

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/strategies"
)

// rangeOf is the method of a call that reads a key by a range which holds nothing
// else.
const rangeOf = "RANGE"

// swap is the method of a call that reads a key and writes it in one batch.
const swap = "SWAP"

// call is an operation on a key.
type call struct {
	method string
	key    string
	value  string // of a PUT, unique in the history and not empty
	// cond is what must hold for a PUT, a DELETE or a swap: nothing, or one of those
	// below. Of a GET it may be isNot.
	cond   string
	expect string // the value that cond is about
}

const (
	is      = "is"      // the value is that one
	isNot   = "is not"  // it is another, or none
	present = "present" // there is one
	absent  = "absent"  // there is none
)

func (in *call) holds(state string) bool {
	switch in.cond {
	case is:
		return state != "" && state == in.expect
	case isNot:
		return state != in.expect
	case present:
		return state != ""
	case absent:
		return state == ""
	}
	return true
}

// outcome is what came of it.
type outcome struct {
	value   string // what a GET or a range found, "" for nothing
	length  int    // what a HEAD found, 0 for nothing
	unknown bool   // cut off: it may have happened by the time of its return, or never will
	refused bool   // the condition did not hold: 412, or 304 of a GET
	tag     string // the validator of what is there instead, "" for nothing
	at      int64  // when it was answered
}

// perishing marks values that expire after a second, with when their PUT began.
const perishing = "perishing since "

// mayBeGone reports whether a value may have expired by that time.
func mayBeGone(value string, at int64) bool {
	rest, found := strings.CutPrefix(value, perishing)
	if !found {
		return false
	}
	var since int64
	_, _ = fmt.Sscan(rest, &since)
	const slack = 50 * time.Millisecond // between two clocks
	return at >= since+int64(time.Second-slack)
}

func quotedTag(value string) string {
	tag := etag.Of([]byte(value))
	return `"` + tag.String() + `"`
}

// after returns what a key may hold after an operation that found that, nothing if it
// cannot have found it.
func after(in *call, out *outcome, state string) []any {
	writes := in.method == http.MethodPut || in.method == http.MethodDelete || in.method == swap
	switch {
	case out.unknown && writes && in.holds(state):
		return []any{state, in.value}
	case out.unknown:
		return []any{state}
	case out.refused:
		if !in.holds(state) && (state == "" && out.tag == "" || state != "" && out.tag == quotedTag(state)) {
			return []any{state}
		}
		return nil
	case !in.holds(state):
		return nil
	case in.method == swap && out.value != state:
		return nil
	case writes: // the value that a DELETE leaves is ""
		return []any{in.value}
	case in.method == http.MethodHead && out.length == len(state), in.method != http.MethodHead && out.value == state:
		return []any{state}
	}
	return nil
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
			for _, key := range slices.Sorted(maps.Keys(byKey)) {
				parts = append(parts, byKey[key])
			}
			return parts
		},
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			in, out, holds := input.(call), output.(outcome), state.(string)
			states := after(&in, &out, holds)
			if mayBeGone(holds, out.at) {
				states = append(states, after(&in, &out, "")...)
			}
			return states
		},
		Hash: func(state any) uint64 { return maphash.String(seed, state.(string)) },
		DescribeOperation: func(input, output any) string {
			in, out := input.(call), output.(outcome)
			s := in.method + " " + in.key
			switch {
			case in.method == http.MethodPut || in.method == swap:
				s += " = " + in.value
			case out.unknown || in.method == http.MethodDelete:
			case in.method == http.MethodHead:
				s += fmt.Sprintf(" → %d bytes", out.length)
			default:
				s += fmt.Sprintf(" → %q", out.value)
			}
			if in.cond != "" {
				s += fmt.Sprintf(" if it %s %q", in.cond, in.expect)
			}
			if out.refused {
				s += ": refused"
			}
			if out.unknown {
				s += " (cut off)"
			}
			return s
		},
	}
	return model.ToModel()
}

// epoch is the origin of the times in histories.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// errGone says that a connection has ended.
var errGone = errors.New("the connection has ended")

// operate does one operation. One that is shed has not happened. One that is cut
// off comes with errGone, and its end is open.
func operate(c *client, in call, headers ...string) (op porcupine.Operation, happened bool, err error) {
	method, target, expect := in.method, entity(in.key), http.StatusOK
	switch in.method {
	case http.MethodPut:
		expect = http.StatusCreated
	case http.MethodDelete:
		expect = http.StatusAccepted
	case rangeOf:
		id := url.QueryEscape(in.key)
		method, target = http.MethodGet, "/v0/entities?start="+id+"&end="+id+"%00"
	}
	body := in.value
	switch in.cond {
	case is:
		headers = append(headers, "If-Match: "+quotedTag(in.expect))
	case isNot:
		headers = append(headers, "If-None-Match: "+quotedTag(in.expect))
	case present:
		headers = append(headers, "If-Match: *")
	case absent:
		headers = append(headers, "If-None-Match: *")
	}
	if strings.HasPrefix(in.value, perishing) {
		headers = append(headers, "Spillway-Ttl: 1")
	}
	if in.method == swap {
		method, target, body = http.MethodPost, "/v0/entities", swapLines(in.key, in.value)
		headers = append(headers, "Content-Type: application/x-ndjson")
	}
	op = porcupine.Operation{Input: in, Call: now()}
	a, err := c.do(method, target, body, headers...)
	op.Return = now()
	out := outcome{value: a.body, at: op.Return}
	switch {
	case err != nil:
		op.Return, op.Output = math.MaxInt64, outcome{unknown: true, at: math.MaxInt64}
		return op, true, errGone
	case in.cond != "" && (a.status == http.StatusPreconditionFailed || a.status == http.StatusNotModified):
		happened, out.refused, out.tag = true, true, a.header.Get("ETag")
	case in.method == swap && a.status == http.StatusOK:
		happened = true
		out.value, err = swapped(a.body, in.value)
	case a.shed() != "": // 503 or, if it has expired, 504
		happened = false
	case a.status == http.StatusNotFound && (in.method == http.MethodGet || in.method == http.MethodHead):
		happened, out.value = true, ""
	case a.status != expect:
		return op, false, fmt.Errorf("%s of %s: status %d: %s", in.method, in.key, a.status, a.body)
	case in.method == http.MethodHead:
		happened = true
		out.length, err = strconv.Atoi(a.header.Get("Content-Length"))
	case in.method == rangeOf && a.body != "":
		value, found := strings.CutPrefix(a.body, in.key+"\n")
		if !found {
			return op, false, fmt.Errorf("a range of %s holds %q", in.key, a.body)
		}
		happened, out.value = true, value
	default:
		happened = true
	}
	op.Output = out
	if err == nil && a.close {
		err = errGone // after this answer
	}
	return op, happened, err
}

// swapLines is a batch that reads a key, writes it, and reads it again.
func swapLines(key, value string) string {
	k, v := base64.StdEncoding.EncodeToString([]byte(key)), base64.StdEncoding.EncodeToString([]byte(value))
	return fmt.Sprintf(`{"op":"get","key":%q}`+"\n"+`{"op":"put","key":%q,"value":%q}`+"\n"+`{"op":"get","key":%q}`+"\n", k, k, v, k)
}

// swapped returns what the first operation of swapLines has found, having checked the
// others.
func swapped(body, value string) (before string, err error) {
	var found [3]struct {
		Status int
		Value  []byte
		ETag   string
	}
	d := json.NewDecoder(strings.NewReader(body))
	for i := range found {
		if err := d.Decode(&found[i]); err != nil {
			return "", err
		}
	}
	if found[1].Status != http.StatusCreated || string(found[2].Value) != value || `"`+found[1].ETag+`"` != quotedTag(value) {
		return "", fmt.Errorf("a batch that puts %q is answered %s", value, body)
	}
	return string(found[0].Value), nil
}

// cell is a few clients and the few keys that only they use. Its history is
// checked in pieces, since the check takes the longer the more operations of a
// key there are. A piece ends when each client has done its share, and so nothing
// is under way, with a read of every key; the next one begins with what that has
// read. So nothing goes unchecked between two pieces. One that the end of the
// service interrupts goes on in its next life.
type cell struct {
	clients []*operator
	before  []porcupine.Operation // writes of what the keys held at the start of the piece
	pieces  int
}

// operator is a client of a cell.
type operator struct {
	number int // in the test
	cell   int
	rng    *rand.Rand
	values int
	ops    []porcupine.Operation // of the piece
	seen   map[string]string     // what it has found last, by key
	shed   int
	// refused is since when it has had nothing but refusals, zero if it has not.
	refused time.Time
}

const (
	cells          = 4
	clientsOfCell  = 6
	keysOfCell     = 2
	shareOfAClient = 20 // operations in a piece
)

func newCell(number int, seed uint64) *cell {
	c := new(cell)
	for i := range clientsOfCell {
		own := number*clientsOfCell + i
		c.clients = append(c.clients, &operator{number: own, cell: number, seen: map[string]string{}, rng: rand.New(rand.NewPCG(seed, uint64(own)))})
	}
	return c
}

func keyOfCell(cell, i int) string { return fmt.Sprintf("register %d.%d", cell, i) }

// random returns an operation. Its value, if it has one, nobody else writes.
func (o *operator) random() (in call, headers []string) {
	in = call{method: http.MethodGet, key: keyOfCell(o.cell, o.rng.IntN(keysOfCell))}
	switch n := o.rng.IntN(20); {
	case n < 8:
		in.method, in.value = http.MethodPut, o.value("")
	case n < 10:
		in.method = http.MethodDelete
	case n < 11:
		in.method = http.MethodHead
	case n < 13:
		in.method = rangeOf
	case n < 14:
		in.method, in.value = swap, o.value("")
	case n < 15:
		in.method, in.value = http.MethodPut, o.value(fmt.Sprint(perishing, now(), " "))
	}
	seen := o.seen[in.key]
	switch n := o.rng.IntN(8); {
	case in.method == http.MethodGet && n < 2 && seen != "":
		in.cond, in.expect = isNot, seen
	case in.method != http.MethodPut && in.method != http.MethodDelete:
	case n < 3 && seen != "":
		in.cond, in.expect = is, seen
	case n == 3:
		in.cond = present
	case n == 4:
		in.cond = absent
	}
	if o.rng.IntN(5) == 0 {
		headers = []string{"Spillway-Timeout-Ms: 1"} // many of these expire while they wait
	}
	return in, headers
}

// value returns a value that nobody else writes, which begins so.
func (o *operator) value(head string) string {
	o.values++
	return head + fmt.Sprintf("%d.%d", o.number, o.values) + strings.Repeat(".", o.rng.IntN(100))
}

// do does one operation and notes it. A client that is refused for too long gets
// an error.
func (o *operator) do(c *client, in call, headers ...string) (out outcome, happened bool, err error) {
	op, happened, err := operate(c, in, headers...)
	if !happened && err == nil {
		o.shed++
		if o.refused.IsZero() {
			o.refused = time.Now()
		} else if time.Since(o.refused) > patience {
			err = fmt.Errorf("client %d has had nothing but refusals for %v", o.number, patience)
		}
		return outcome{}, false, err
	}
	o.refused = time.Time{}
	if !happened {
		return outcome{}, false, err
	}
	op.ClientId = o.number
	o.ops = append(o.ops, op)
	out = op.Output.(outcome)
	switch {
	case out.unknown || out.refused:
	case in.value != "":
		o.seen[in.key] = in.value
	case in.method == http.MethodGet || in.method == rangeOf:
		o.seen[in.key] = out.value
	}
	return out, true, err
}

// close ends the piece: it reads every key, checks the history, and begins the
// next piece. If the service ends before that has been read, the piece goes on.
func (c *cell) close(t testing.TB, conn *client, name string) error {
	var next []porcupine.Operation
	for i := range keysOfCell {
		in := call{method: http.MethodGet, key: keyOfCell(c.clients[0].cell, i)}
		out, happened, err := c.clients[0].do(conn, in)
		for !happened && err == nil {
			out, happened, err = c.clients[0].do(conn, in)
		}
		if err != nil {
			return err
		}
		write := call{method: http.MethodPut, key: in.key, value: out.value}
		next = append(next, porcupine.Operation{ClientId: -1, Input: write, Output: outcome{}})
	}
	if err := checkLinearizable(t, name, c.history()); err != nil {
		return err
	}
	for i := range next {
		next[i].Call = now()
		next[i].Return = next[i].Call
	}
	c.before = next
	c.pieces++
	for _, o := range c.clients {
		o.ops = o.ops[:0]
	}
	return nil
}

// history returns what has happened in the piece.
func (c *cell) history() []porcupine.Operation {
	history := slices.Clone(c.before)
	for _, o := range c.clients {
		history = append(history, o.ops...)
	}
	return history
}

// settle says that nothing which was cut off can happen any more.
func (c *cell) settle() {
	end := now()
	for _, o := range c.clients {
		for i := range o.ops {
			o.ops[i].Return = min(o.ops[i].Return, end)
		}
	}
}

// checkLinearizable checks a history. The picture of a bad one is kept with go
// test -artifacts.
func checkLinearizable(t testing.TB, name string, history []porcupine.Operation) error {
	model := register()
	switch porcupine.CheckOperationsTimeout(model, history, patience) {
	case porcupine.Illegal:
		_, info := porcupine.CheckOperationsVerbose(model, history, patience)
		path := filepath.Join(t.ArtifactDir(), "history-"+name+".html")
		return cmp.Or(porcupine.VisualizePath(model, info, path),
			fmt.Errorf("a history of %d operations is not linearizable, see %s (kept with -artifacts)", len(history), path))
	case porcupine.Unknown:
		return fmt.Errorf("a history of %d operations could not be checked in %v", len(history), patience)
	}
	return nil
}

// life is one life of the service under a strategy. It ends by that signal when last
// operations have happened, or, if there is no signal, the clients end then.
type life struct {
	*service
	strategy   string
	last       int64
	by         syscall.Signal // 0 for none
	operations atomic.Int64
	switching  atomic.Bool
	switches   int         // by who has set switching
	ended      atomic.Bool // set before the signal is sent
}

// run lets a cell do random operations until the life ends.
func (l *life) run(c *cell) (err error) {
	defer func() {
		if err != nil { // for the others
			l.ended.Store(true)
			_ = l.cmd.Process.Kill()
		}
	}()
	conns := make([]*client, len(c.clients))
	for i := range conns {
		conn, err := dial(l.data)
		if err != nil {
			return l.excuse(errGone)
		}
		defer conn.close()
		conns[i] = conn
	}
	for !l.ended.Load() && (l.by != 0 || l.operations.Load() < l.last) {
		err := concurrently(len(conns), func(i int) error { return l.excuse(l.share(c.clients[i], conns[i])) })
		if err == nil && !l.ended.Load() {
			err = l.excuse(c.close(l.t, conns[0], l.strategy))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// excuse returns the error unless it is a cut connection, and the end of the
// service explains it.
func (l *life) excuse(err error) error {
	if errors.Is(err, errGone) && l.ended.Load() {
		return nil
	}
	return err
}

// share does a client's share of a piece.
func (l *life) share(o *operator, conn *client) error {
	for len(o.ops) < shareOfAClient {
		in, headers := o.random()
		_, happened, err := o.do(conn, in, headers...)
		if happened {
			err = errors.Join(err, l.happened(o.rng))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// happened counts an operation and does what it is time for. The first half of a
// life is under its own strategy; then that takes turns with all others.
func (l *life) happened(rng *rand.Rand) error {
	done := l.operations.Add(1)
	if done == l.last && l.by != 0 {
		l.ended.Store(true)
		return l.cmd.Process.Signal(l.by)
	}
	every := max(50, l.last/20)
	if done < l.last/2 || done%every != 0 || !l.switching.CompareAndSwap(false, true) {
		return nil
	}
	defer l.switching.Store(false)
	to := l.strategy
	if done/every%2 == 0 {
		names := strategies.Names()
		to = names[rng.IntN(len(names))]
	}
	err := l.trySwitch(to)
	if err != nil && l.ended.Load() {
		return nil
	}
	l.switches++
	return err
}

// The history of each key is linearizable under every strategy: with queues so
// short that many requests are shed, across live switches, and from one life of
// the service to the next, whether it was drained or killed in the midst of
// things. What a read has seen is not taken back, and what was cut off has
// happened by the end of that life or never happens.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	target := int64(longer(t, "SPILLWAY_TORTURE_OPERATIONS", 3000))
	for _, strategy := range strategies.Names() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			seed := seedOr(t, rand.Uint64())
			t.Logf("run again with SPILLWAY_TORTURE_SEED=%d", seed)
			rng := rand.New(rand.NewPCG(seed, math.MaxUint64))
			folder := filepath.Join(t.TempDir(), "data")
			var all []*cell
			for i := range cells {
				all = append(all, newCell(i, seed))
			}
			var kills, drains, switches int
			var operations int64
			for number := 0; operations < target; number++ {
				// The shorter the queue, the more is shed of what 24 clients send who try
				// again at once, which is most of the work.
				binary, length, capacity := plain, min(target/4, 20_000), 8+rng.IntN(16)
				if number%10 == 0 {
					binary, length, capacity = raced, min(length, 2000), 1+rng.IntN(2)
				}
				length = length/2 + rng.Int64N(length)
				s := start(t, binary, "SPILLWAY_DATA_DIR="+folder, "SPILLWAY_STRATEGY="+strategy,
					"SPILLWAY_POOLS="+[]string{"shared", "split"}[number%2], cacheSizes[(number+1)%len(cacheSizes)],
					fmt.Sprint("SPILLWAY_WORKERS=", 2+rng.IntN(3)),
					fmt.Sprint("SPILLWAY_QUEUE_CAPACITY=", capacity),
					"SPILLWAY_READ_TIMEOUT=1h", "SPILLWAY_IDLE_TIMEOUT=1h")
				l := &life{service: s, strategy: strategy, last: length}
				switch {
				case operations+length >= target:
				case number%3 == 1:
					l.by = syscall.SIGTERM
					drains++
				default:
					l.by = syscall.SIGKILL
					kills++
				}
				err := concurrently(cells, func(i int) error { return l.run(all[i]) })
				require.NoError(t, err, "life %d", number)
				if l.by == 0 {
					s.awaitConserved(strategies.Names()...)
					l.by = syscall.SIGTERM
					s.signal(l.by)
				}
				code := s.wait()
				if l.by == syscall.SIGTERM {
					require.Equal(t, 0, code, "exit code after SIGTERM")
				}
				for _, c := range all {
					c.settle()
				}
				operations += l.operations.Load()
				switches += l.switches
			}
			pieces, shed := 0, 0
			for _, c := range all {
				pieces += c.pieces
				for _, o := range c.clients {
					shed += o.shed
				}
			}
			t.Logf("%d operations in %d histories, %d more shed; %d kills, %d drains, %d switches", operations, pieces, shed, kills, drains, switches)
		})
	}
}
