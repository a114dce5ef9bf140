//go:build integration

package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// live returns what the garbage collector finds in use, stacks included, in
// bytes.
func (s *service) live() float64 {
	s.t.Helper()
	for range 3 { // pools give back what they hold in two cycles
		a := s.request(http.MethodGet, s.adminURL("/debug/pprof/heap?gc=1"), "")
		require.Equal(s.t, http.StatusOK, a.status)
	}
	m := s.metrics()
	return m.sum("go_memstats_heap_alloc_bytes") + m.sum("go_memstats_stack_inuse_bytes")
}

// resident returns the memory of the process that is in RAM: now, and at most so
// far, in bytes.
func (s *service) resident() (now, most float64) {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(s.t, err)
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "VmRSS:" && fields[0] != "VmHWM:" {
			continue
		}
		n, err := strconv.ParseFloat(fields[1], 64)
		require.NoError(s.t, err)
		if fields[0] == "VmRSS:" {
			now = n * kib
		} else {
			most = n * kib
		}
	}
	return now, most
}

// Clients that do everything at once which takes memory of the service, and go on
// doing it, get no more than the settings allow. The formula is in SECURITY.md.
func TestAbuse_MemoryIsBounded(t *testing.T) {
	t.Parallel()
	const (
		budget, cache = 8 * mib, 8 * mib
		idle          = 1000
		heads         = 200 // that do not end
		fields        = 300 // heads of very many fields, whose body does not come
		bodies        = 200 // announced, most of them beyond the budget
		chunks        = 50  // the same
		ranges        = 200 // that nobody reads
		values        = 20  // that nobody reads
		connections   = idle + heads + fields + bodies + chunks + ranges + values
		head          = 2*3*4096 + 8*kib
		arrived       = 100_000 // of each body and chunk
	)
	s := start(t, plain, "SPILLWAY_MAX_CONNECTIONS=2000", fmt.Sprint("SPILLWAY_MAX_BODY_BYTES=", budget), fmt.Sprint("SPILLWAY_CACHE_BYTES=", cache),
		"SPILLWAY_READ_TIMEOUT=10m", "SPILLWAY_WRITE_TIMEOUT=10m", "SPILLWAY_IDLE_TIMEOUT=10m", "SPILLWAY_SYNC=never")
	good := s.dial()
	value := strings.Repeat("v", mib)
	good.mustPut(t, "large", value)
	good.fillRange(t)
	liveBefore := s.live()
	residentBefore, _ := s.resident()

	body := func(headers string) string { return putStart + headers + "\r\n\r\n" }
	s.openMany(idle, wholeGet, twoHundred)
	s.openMany(heads, headStart+"X: "+strings.Repeat("x", head-100), 0)
	s.openMany(fields, body(strings.Repeat("X:\r\n", (head-1000)/4)+"Content-Length: 1"), 0)
	s.openMany(bodies, body("Content-Length: 1000000")+value[:arrived], 0)
	s.openMany(chunks, body("Transfer-Encoding: chunked")+fmt.Sprintf("%x\r\n", mib)+value[:arrived], 0)
	s.openMany(ranges, wholeRange, twoHundred)
	s.openMany(values, "GET /v0/entity?id=large HTTP/1.1\r\nHost: x\r\n\r\n", twoHundred)
	// Those beyond the budget have been refused, and closed: each body that is
	// being read has as much of it as has arrived.
	const refused = bodies + chunks - budget/arrived
	s.eventually("all have done what they can", func() bool {
		m := s.metrics()
		return m.sum("spillway_requests_total", `code="503"`) >= refused && m.sum("spillway_connections") <= connections-refused+1
	})

	held := idle*12*kib + // and what is being done:
		(heads+fields)*(8*kib+3*head) +
		2*budget +
		ranges*384*kib +
		values*1.25*mib +
		(connections-idle)*12*kib
	live := s.live()
	resident, most := s.resident()
	t.Logf("live: %.1f MiB more than before, the formula has %.1f MiB; resident: %.1f MiB before, %.1f MiB, %.1f MiB at most",
		(live-liveBefore)/mib, float64(held)/mib, residentBefore/mib, resident/mib, most/mib)
	require.LessOrEqual(t, live-liveBefore, float64(held))
	// Not all that is resident is in use: the collector waits until as much again
	// has been allocated.
	require.LessOrEqual(t, most, residentBefore+2*(liveBefore+float64(held))+2*cache)

	// The one that behaves is answered meanwhile: reads are served, and writes if they find room.
	for range 20 {
		a, err := good.do(http.MethodGet, entity("large"), "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, value, a.body)
		a, err = good.do(http.MethodPut, entity("good"), "value")
		require.NoError(t, err)
		require.Contains(t, []int{http.StatusCreated, http.StatusServiceUnavailable}, a.status)
	}
	s.kill()
}

// The container that docs/operations.md names for values of 1 MiB has room for all
// of 127 clients that do not read, with what lies in their sockets.
func TestAbuse_SlowReadersFit(t *testing.T) {
	t.Parallel()
	const (
		container = 512_000_000
		clients   = 127
		inSockets = clients * 512 * kib // internal/socket TestBound
	)
	for kind, request := range map[string]string{
		"GET":    "GET /v0/entity?id=k001 HTTP/1.1\r\nHost: x\r\n\r\n",
		"range":  "GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\n\r\n",
		"NDJSON": "GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n",
	} {
		t.Run(kind, func(t *testing.T) {
			// What the service takes from the limit of a container of that size.
			s := start(t, plain, fmt.Sprint("GOMEMLIMIT=", container/10*9), fmt.Sprint("SPILLWAY_CACHE_BYTES=", container/4),
				fmt.Sprint("SPILLWAY_MAX_BODY_BYTES=", container/8), "SPILLWAY_SYNC=never", "SPILLWAY_WRITE_TIMEOUT=10m")
			good := s.dial()
			value := strings.Repeat("v", mib)
			for i := range 200 { // more than the cache
				good.mustPut(t, fmt.Sprintf("k%03d", i), value)
			}
			for i := range 200 {
				a, err := good.do(http.MethodGet, entity(fmt.Sprintf("k%03d", i)), "")
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, a.status)
			}
			s.openMany(clients, request, twoHundred)
			_, most := s.resident()
			t.Logf("resident: %.0f MiB at most, and %d MiB in sockets", most/mib, inSockets/mib)
			require.Less(t, most+inSockets, float64(container))
			s.kill()
		})
	}
}

// Ranges that nobody reads and that began at different times, while much was
// written, keep a memtable each and no more. The formula is in SECURITY.md.
func TestAbuse_MemoryOfRangesIsBounded(t *testing.T) {
	t.Parallel()
	const (
		cache    = 32 * mib
		memtable = cache / 8
		ranges   = 24
		value    = 200_000
	)
	s := start(t, plain, fmt.Sprint("SPILLWAY_CACHE_BYTES=", cache), fmt.Sprint("SPILLWAY_MAX_BODY_BYTES=", mib),
		"SPILLWAY_WRITE_TIMEOUT=10m", "SPILLWAY_IDLE_TIMEOUT=10m", "SPILLWAY_SYNC=never")
	good := s.dial()
	good.fillRange(t)
	// write fills nine tenths of a memtable, so that there are no more new ones
	// than ranges.
	write := func() {
		for range memtable * 9 / 10 / value {
			good.mustPut(t, "good", strings.Repeat("v", value))
		}
	}
	for range 5 { // until memtables have their full size
		write()
	}
	liveBefore := s.live()
	residentBefore, _ := s.resident()
	for range ranges {
		s.openMany(1, wholeRange, twoHundred)
		write()
	}
	live := s.live()
	resident, most := s.resident()
	held := float64(ranges*(12*kib+384*kib) + 2*mib)
	t.Logf("live: %.1f MiB more than before; resident: %.1f MiB before, %.1f MiB, %.1f MiB at most; %d memtables are %d MiB",
		(live-liveBefore)/mib, residentBefore/mib, resident/mib, most/mib, ranges, ranges*memtable/mib)
	require.Greater(t, resident, residentBefore+ranges*memtable/2, "most have kept a memtable, or this shows nothing")
	require.LessOrEqual(t, most, residentBefore+2*(liveBefore+held)+2*cache+ranges*memtable)
	s.kill()
}

const (
	twoHundred = len("HTTP/1.1 200 OK")
	wholeRange = "GET /v0/entities?start=range HTTP/1.1\r\nHost: x\r\n\r\n"
)

// openMany opens connections, which are closed with the test, sends each the same,
// and waits for as much of the answer as is asked for.
func (s *service) openMany(n int, what string, answer int) {
	s.t.Helper()
	require.NoError(s.t, concurrently(min(n, 8), func(worker int) error {
		for i := worker; i < n; i += 8 {
			c, err := dial(s.data)
			if err != nil {
				return err
			}
			s.t.Cleanup(c.close)
			if _, err := io.WriteString(c.conn, what); err != nil {
				return err
			}
			if _, err := io.ReadFull(c.r, make([]byte, answer)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// mustPut writes a key.
func (c *client) mustPut(t testing.TB, key, value string) {
	t.Helper()
	a, err := c.do(http.MethodPut, entity(key), value)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.status)
}

// fillRange writes what wholeRange finds, which is more than the buffers of two
// sockets hold.
func (c *client) fillRange(t *testing.T) {
	t.Helper()
	for i := range 1000 {
		c.mustPut(t, fmt.Sprintf("range%04d", i), strings.Repeat("v", 20_000))
	}
}
