//go:build integration

package integration

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// Whatever the configuration, clients one by one get the answers of a plain
// ordered map, over several lives of the service on one folder, each of which has
// a random configuration of its own and ends gracefully. Clients run side by
// side on keys that only they use, so that what each must get is exactly known.
func TestMetamorphic_AnswersLikeAMap(t *testing.T) {
	t.Parallel()
	first := seedOr(t, rand.Uint64())
	for i := range longer(t, "SPILLWAY_TORTURE_CONFIGURATIONS", 24) {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 0))
			folder := filepath.Join(t.TempDir(), "data")
			users := make([]*user, 1+rng.IntN(len(prefixes)))
			for i := range users {
				users[i] = &user{prefix: prefixes[i], rng: rand.New(rand.NewPCG(seed, uint64(i)+1)), holds: make(model)}
			}
			for range 2 + rng.IntN(2) {
				l := randomLimits(rng)
				binary := plain
				if rng.IntN(8) == 0 {
					binary = raced
				}
				s := start(t, binary, append(randomSettings(rng, l), "SPILLWAY_DATA_DIR="+folder)...)
				message := fmt.Sprintf("run again with SPILLWAY_TORTURE_SEED=%d SPILLWAY_TORTURE_CONFIGURATIONS=1", seed)
				requireHolds(t, s, users, message)
				require.NoError(t, concurrently(len(users), func(i int) error { return users[i].run(s, l, 100) }), message)
				requireServed(t, s, users, message)
				requireHolds(t, s, users, message)
				s.stop()
			}
		})
	}
}

// limits are the settings that an answer may depend on.
type limits struct{ key, value, capacity int }

func randomLimits(rng *rand.Rand) limits {
	return limits{
		key:   []int{8, 100, 4096}[rng.IntN(3)],
		value: []int{1, 300, 300, 300, 5000, 5000, 70_000, 300_000}[rng.IntN(8)],
		// From the third on, all users at once may wait.
		capacity: []int{1, 2, len(prefixes), 5, 256, 100_000}[rng.IntN(6)],
	}
}

// randomSettings are settings on which no answer may depend, and the limits.
func randomSettings(rng *rand.Rand, l limits) []string {
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	return []string{
		"SPILLWAY_STRATEGY=" + one(strategies.Names()...),
		"SPILLWAY_POOLS=" + one("shared", "split"),
		"SPILLWAY_WORKERS=" + one("2", "3", "4", "16"),
		"SPILLWAY_ACCEPT_LOOPS=" + one("1", "2", "5"),
		"SPILLWAY_SYNC=" + one("always", "interval:1ms", "interval:1h", "never"),
		"SPILLWAY_CACHE_BYTES=" + one("1", "10000", "1MB", "32MB"),
		"SPILLWAY_MAX_BODY_BYTES=" + one("", "4MiB", "1GiB"),
		"SPILLWAY_STORE_DELAY=" + one("0", "0", "0", "100us", "exp:300us"),
		"SPILLWAY_SLO=" + one("", "100ms", "1s", "none"),
		"SPILLWAY_LOG_LEVEL=" + one("debug", "info"),
		fmt.Sprint("SPILLWAY_MAX_KEY_BYTES=", l.key),
		fmt.Sprint("SPILLWAY_MAX_VALUE_BYTES=", l.value),
		fmt.Sprint("SPILLWAY_QUEUE_CAPACITY=", l.capacity),
		// So that no machine is too slow.
		"SPILLWAY_READ_TIMEOUT=1h", "SPILLWAY_WRITE_TIMEOUT=1h", "SPILLWAY_IDLE_TIMEOUT=1h",
	}
}

// model is an ordered map.
type model map[string]string

// entries returns the entries of a range, at most limit of them unless that is 0.
// An empty end is no bound.
func (m model) entries(start, end string, limit int) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if key >= start && (end == "" || key < end) && (limit == 0 || len(keys) < limit) {
			keys = append(keys, key)
		}
	}
	return keys
}

// body returns what a range is answered with.
func (m model) body(keys []string, asJSON bool) string {
	var b strings.Builder
	for _, key := range keys {
		if asJSON {
			encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
			fmt.Fprintf(&b, "{\"key\":%q,\"value\":%q}\n", encode(key), encode(m[key]))
		} else {
			b.WriteString(key + "\n" + m[key])
		}
	}
	return b.String()
}

// requireServed asserts that not too much of what the users have sent in a life of
// the service was shed, and that those alone have given up what waited long, or would,
// whose law that is, also what had been submitted to another strategy before a switch.
func requireServed(t *testing.T, s *service, users []*user, message string) {
	t.Helper()
	done, shed := 0, 0
	for _, u := range users {
		done += u.done
		shed += u.shed
	}
	t.Logf("%d of %d requests were shed", shed, done)
	require.Less(t, shed, done*3/4, message)
	m := s.metrics()
	if m.sum("spillway_strategy_switches_total") > 0 {
		return
	}
	for reason, strategies := range map[string][]string{"codel": {"codel"}, "late": {"auto", "edf"}} {
		by := 0.0
		for _, strategy := range strategies {
			by += m.sum("spillway_shed_total", fmt.Sprintf("reason=%q", reason), strategyLabel(strategy))
		}
		require.Equal(t, by, m.sum("spillway_shed_total", fmt.Sprintf("reason=%q", reason)), message)
	}
}

// requireHolds asserts that the store holds what the users have written and
// nothing else.
func requireHolds(t *testing.T, s *service, users []*user, message string) {
	t.Helper()
	all := make(model)
	for _, u := range users {
		maps.Copy(all, u.holds)
	}
	var a answer
	s.eventually("a range is not shed", func() bool {
		a = s.request(http.MethodGet, s.dataURL("/v0/entities?start=%00"), "")
		return a.shed() == ""
	})
	require.Equal(t, http.StatusOK, a.status, a.body)
	if want := all.body(all.entries("", "", 0), false); a.body != want {
		t.Fatalf("the store holds %s, want %s; %s", abridged(a.body), abridged(want), message)
	}
}

// prefixes begin the keys of a user each. Those of the last one are the last of
// all, so that it may leave the end of a range open.
var prefixes = []string{"\x00", "%", "k", "\xff"}

// user is a client who knows what its keys hold.
type user struct {
	prefix string
	rng    *rand.Rand
	holds  model
	// done is how many requests it has sent in this life of the service, and shed
	// how many of them were turned away.
	done, shed int
}

// operation is a request, and what comes of it.
type operation struct {
	method, target, body string
	headers              []string
	// want returns the right answer and applies what the request does. It is
	// called if the request was not shed, when all before it have been answered.
	want func() expected
}

// expected is what an answer must be like.
type expected struct {
	status int
	body   string // of a 200; otherwise a problem, or nothing
	length int    // of a HEAD, which has no body
}

// run does that many random operations, some of them pipelined. At random it
// switches the strategy.
func (u *user) run(s *service, l limits, operations int) error {
	c, err := dial(s.data)
	if err != nil {
		return err
	}
	defer func() { c.close() }()
	for u.done, u.shed = 0, 0; u.done < operations; {
		// Large requests go alone, since the service may not read them before its
		// answers to those ahead have been read. What follows one that is refused
		// for its length may be thrown away with its body.
		batch := []operation{u.random(l)}
		for o := batch[0]; u.rng.IntN(3) == 0 && len(o.body) <= min(l.value, 1000); {
			if o = u.random(l); len(o.body) <= 1000 {
				batch = append(batch, o)
			}
		}
		for _, o := range batch {
			if err := c.send(o.method, o.target, o.body, o.headers...); err != nil {
				return err
			}
		}
		for _, o := range batch {
			a, err := c.receive()
			if err != nil {
				return fmt.Errorf("%s: %w", o, err)
			}
			u.done++
			if a.shed() != "" {
				u.shed++
				err = o.checkShed(a, l)
			} else {
				err = o.check(a)
			}
			if err != nil {
				return err
			}
			if a.close {
				c.close()
				if c, err = dial(s.data); err != nil {
					return err
				}
				break
			}
		}
		if u.rng.IntN(30) == 0 {
			names := strategies.Names()
			if err := s.trySwitch(names[u.rng.IntN(len(names))]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o operation) String() string {
	return fmt.Sprintf("%s %s %v with %s", o.method, abridged(o.target), o.headers, abridged(o.body))
}

// shortTime is the header of a request that may expire while it waits.
const shortTime = "Spillway-Timeout-Ms: 1"

// checkShed checks the answer to an operation that was turned away. Those that
// have time may be if there is no room for all users at once, or if they have waited
// long, or would, as on a slow machine.
func (o operation) checkShed(a answer, l limits) error {
	status, may := http.StatusServiceUnavailable, false
	switch a.shed() {
	case "expired":
		status, may = http.StatusGatewayTimeout, slices.Contains(o.headers, shortTime)
	case "full", "displaced", "fair":
		may = l.capacity < len(prefixes)
	case "codel", "late":
		may = true
	}
	if !may || a.status != status {
		return fmt.Errorf("%s: shed for the reason %s with status %d, where %d may wait", o, a.shed(), a.status, l.capacity)
	}
	return nil
}

func (o operation) check(a answer) error {
	want := o.want()
	var wrong error
	switch {
	case a.status != want.status:
		wrong = fmt.Errorf("status %d, want %d", a.status, want.status)
	case o.method == http.MethodHead && want.status == http.StatusOK:
		if got := a.header.Get("Content-Length"); a.body != "" || got != fmt.Sprint(want.length) {
			wrong = fmt.Errorf("a body of %d bytes and Content-Length %s, want %d", len(a.body), got, want.length)
		}
	case want.status < 400 || want.status == http.StatusNotFound:
		if a.body != want.body {
			wrong = fmt.Errorf("%s, want %s", abridged(a.body), abridged(want.body))
		}
	case o.method != http.MethodHead && a.header.Get("Content-Type") != "application/problem+json":
		wrong = errors.New("the answer is no problem")
	}
	if wrong != nil {
		return fmt.Errorf("%s: %w", o, wrong)
	}
	return nil
}

// abridged shows a text that may be long.
func abridged(s string) string {
	if len(s) > 300 {
		return fmt.Sprintf("%q… (%d bytes)", s[:300], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// random returns an operation.
func (u *user) random(l limits) operation {
	var o operation
	switch n := u.rng.IntN(100); {
	case n < 35:
		o = u.put(l)
	case n < 45:
		o = u.remove(l)
	case n < 65:
		o = u.get(l)
	case n < 95:
		o = u.list(l)
	default:
		o = u.bad()
	}
	header := func(one int, h string) {
		if u.rng.IntN(one) == 0 {
			o.headers = append(o.headers, h)
		}
	}
	header(10, shortTime)
	header(10, fmt.Sprint("Spillway-Priority: ", u.rng.IntN(8)))
	header(10, fmt.Sprint("Spillway-Client: ", u.rng.IntN(3)))
	header(10, "Spillway-Consistency: quorum")
	return o
}

// key returns one of the user's keys, every other time one that is there.
func (u *user) key(l limits) string {
	if len(u.holds) > 0 && u.rng.IntN(2) == 0 {
		keys := slices.Sorted(maps.Keys(u.holds))
		return keys[u.rng.IntN(len(keys))]
	}
	length := u.rng.IntN(5)
	if u.rng.IntN(10) == 0 {
		length = l.key - 2 + u.rng.IntN(3) // with the prefix, one too long at the most
	}
	b := []byte(u.prefix)
	const alphabet = "\x00\x01\n\r +&=%/?#a\x7f\x80\xfe\xff"
	for range length {
		b = append(b, alphabet[u.rng.IntN(len(alphabet))])
	}
	return string(b)
}

// value returns a value, which may be too long.
func (u *user) value(l limits) string {
	length := u.rng.IntN(min(200, l.value+1))
	odds := 12
	if l.value > 10_000 {
		odds = 40 // since ranges would hold megabytes
	}
	switch u.rng.IntN(odds) {
	case 0:
		length = 0
	case 1:
		length = u.rng.IntN(l.value + 1)
	case 2:
		length = l.value
	case 3:
		length = l.value + 1
	}
	unique := fmt.Sprintf("%x\n", u.rng.Uint64())
	return strings.Repeat(unique, length/len(unique)+1)[:length]
}

// escape writes a key as a form value, in one of the ways in which that can be
// done.
func (u *user) escape(key string) string {
	if u.rng.IntN(2) == 0 {
		return url.QueryEscape(key)
	}
	var b strings.Builder
	for _, c := range []byte(key) {
		fmt.Fprintf(&b, []string{"%%%02x", "%%%02X"}[u.rng.IntN(2)], c)
	}
	return b.String()
}

func (u *user) put(l limits) operation {
	key, value := u.key(l), u.value(l)
	return operation{method: http.MethodPut, target: "/v0/entity?id=" + u.escape(key), body: value, want: func() expected {
		switch {
		case len(key) > l.key:
			return expected{status: http.StatusRequestURITooLong}
		case len(value) > l.value:
			return expected{status: http.StatusRequestEntityTooLarge}
		}
		u.holds[key] = value
		return expected{status: http.StatusCreated}
	}}
}

func (u *user) remove(l limits) operation {
	key := u.key(l)
	return operation{method: http.MethodDelete, target: "/v0/entity?id=" + u.escape(key), want: func() expected {
		if len(key) > l.key {
			return expected{status: http.StatusRequestURITooLong}
		}
		delete(u.holds, key)
		return expected{status: http.StatusAccepted}
	}}
}

func (u *user) get(l limits) operation {
	key := u.key(l)
	method := []string{http.MethodGet, http.MethodGet, http.MethodHead}[u.rng.IntN(3)]
	return operation{method: method, target: "/v0/entity?id=" + u.escape(key), want: func() expected {
		if len(key) > l.key {
			return expected{status: http.StatusRequestURITooLong}
		}
		value, ok := u.holds[key]
		if !ok {
			return expected{status: http.StatusNotFound}
		}
		return expected{status: http.StatusOK, body: value, length: len(value)}
	}}
}

// list returns a range of the user's own keys.
func (u *user) list(l limits) operation {
	start, end, limit := u.key(l), "", 0
	if u.rng.IntN(3) == 0 {
		start = u.prefix
	}
	if u.prefix != prefixes[len(prefixes)-1] {
		end = string([]byte{u.prefix[0] + 1})
	}
	if u.rng.IntN(2) == 0 {
		end = u.key(l)
	}
	o := operation{method: http.MethodGet, target: "/v0/entities?start=" + u.escape(start)}
	if end != "" {
		o.target += "&end=" + u.escape(end)
	}
	if u.rng.IntN(2) == 0 {
		limit = 1 + u.rng.IntN(10)
		o.target += fmt.Sprint("&limit=", limit)
	}
	asJSON := u.rng.IntN(2) == 0
	if asJSON {
		o.headers = []string{"Accept: application/x-ndjson"}
	}
	o.want = func() expected {
		if len(start) > l.key || len(end) > l.key {
			return expected{status: http.StatusRequestURITooLong}
		}
		keys := u.holds.entries(start, end, limit)
		body := u.holds.body(keys, asJSON)
		if asJSON && len(keys) < len(u.holds.entries(start, end, 0)) { // there is more
			body += `{"next":"` + base64.RawURLEncoding.EncodeToString([]byte(keys[len(keys)-1])) + "\"}\n"
		}
		return expected{status: http.StatusOK, body: body}
	}
	return o
}

// bad returns a request that must be refused, and has no effect.
func (u *user) bad() operation {
	id := u.escape(u.prefix)
	targets := []string{
		"/v0/entity", "/v0/entity?id=", "/v0/entity?id=" + id + "&id=" + id, "/v0/entity?id=" + id + "%4",
		"/v0/entities", "/v0/entities?start=" + id + "&end=", "/v0/entities?start=" + id + "&limit=0",
		"/v0/entities?start=" + id + "&limit=x", "/v0/entitys?id=" + id,
	}
	return operation{method: http.MethodGet, target: targets[u.rng.IntN(len(targets))], want: func() expected {
		return expected{status: http.StatusBadRequest}
	}}
}
