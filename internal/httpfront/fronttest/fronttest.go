// Package fronttest has the tables of clients that are slow or vanish: what happens on a
// connection before, within and after the bytes of a request, in each method and version,
// and what the service behind the front sees of it. Every service on package httpfront
// runs them.
package fronttest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Subject is a service that nobody else uses. Targets begin with a slash.
type Subject struct {
	Addr string
	// Quick is a target that is answered at once, and Long one that gives GET an answer of
	// many megabytes.
	Quick, Long string
	// Hold returns a target whose requests are held: in the queue, or as they run. There
	// waits until one is, and release lets it go.
	Hold func(t *testing.T, running bool) (target string, there, release func())
	// Told returns the statuses that the service was told for this target, 499 for answers
	// that were cut.
	Told func() []int
	// GivesUp says that what runs, or is being answered, is given up when its client goes,
	// half-closing too, and that what waited counts as 499.
	GivesUp bool
	// Idle reports whether there are no connections, no bodies, and nothing held.
	Idle func() bool
}

// body is that of requests with one.
const body = "hello, this is a body"

// A phase is how far a request has come when its client leaves.
type phase struct {
	name    string
	methods []string
	sent    string // of head, body: as far as "|" in the text of a request
	held    bool   // then it is held
	running bool
	long    bool // its answer is being written

	// What is told, by way of leaving; 0 for nothing.
	closes, resets, halfCloses []int
}

var (
	all      = []string{http.MethodGet, http.MethodPut, http.MethodDelete}
	withBody = []string{http.MethodPut}

	// cannotTell are the ends of a request that is cut off: 400, cut or not, or nothing if
	// the kernel tells of a reset first.
	cannotTell = []int{0, 400, 499}
)

func phases() []phase {
	return []phase{
		{name: "before the first byte", methods: all, closes: []int{0}, resets: []int{0}, halfCloses: []int{0}},
		{name: "within the request line", methods: all, sent: "line", closes: cannotTell, resets: []int{0}, halfCloses: []int{400}},
		{name: "within the head", methods: all, sent: "head", closes: cannotTell, resets: []int{0}, halfCloses: []int{400}},
		{name: "before the body", methods: withBody, sent: "no body", closes: cannotTell, resets: []int{0}, halfCloses: []int{400}},
		{name: "within the body", methods: withBody, sent: "some body", closes: cannotTell, resets: []int{0}, halfCloses: []int{400}},
		// What waits is given up, whichever way the client goes (half-closing too), and has
		// no effect.
		{name: "while it is queued", methods: all, sent: "all", held: true, closes: []int{503}, resets: []int{503}, halfCloses: []int{503}},
		// What runs gets its true answer, if anybody takes it.
		{name: "while it runs", methods: all, sent: "all", held: true, running: true, closes: []int{200, 201, 202, 499}, resets: []int{499}, halfCloses: []int{200, 201, 202}},
		{name: "while it is answered", methods: []string{http.MethodGet}, sent: "all", long: true, closes: []int{499}, resets: []int{499}, halfCloses: []int{200}},
	}
}

// text returns as much of a request as the phase has sent.
func (p *phase) text(method, target, version string) string {
	line := method + " " + target + " " + version + "\r\n"
	head := line + "Host: x\r\n"
	if method == http.MethodPut {
		head += "Content-Length: 21\r\n"
	}
	whole := head + "\r\n"
	switch p.sent {
	case "":
		return ""
	case "line":
		return line[:len(line)/2]
	case "head":
		return head[:len(head)-4]
	case "no body":
		return whole
	case "some body":
		return whole + body[:10]
	}
	if method == http.MethodPut {
		whole += body
	}
	return whole
}

// Vanish has clients leave in each phase, by closing, by a reset, and by closing their side
// alone. Open opens a service for each.
func Vanish(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	for _, p := range phases() {
		for _, method := range p.methods {
			for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
				for how, want := range map[string][]int{"close": p.closes, "reset": p.resets, "half-close": p.halfCloses} {
					t.Run(strings.ReplaceAll(p.name+" "+method+" "+version+" "+how, " ", "-"), func(t *testing.T) {
						t.Parallel()
						vanish(t, open(t), &p, method, version, how, want)
					})
				}
			}
		}
	}
}

func vanish(t *testing.T, s Subject, p *phase, method, version, how string, want []int) {
	t.Helper()
	target, there, release := s.Quick, func() {}, func() {}
	switch {
	case p.held:
		target, there, release = s.Hold(t, p.running)
	case p.long:
		target = s.Long
	}
	nc, err := net.Dial("tcp", s.Addr)
	require.NoError(t, err)
	c := nc.(*net.TCPConn)
	defer c.Close()
	_, err = io.WriteString(c, p.text(method, target, version))
	require.NoError(t, err)
	there()
	r := bufio.NewReader(c)
	if p.long {
		_, err := r.Peek(1)
		require.NoError(t, err)
	}
	switch how {
	case "reset":
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
	case "close":
		require.NoError(t, c.Close())
	default:
		require.NoError(t, c.CloseWrite())
	}
	if p.running && !s.GivesUp {
		release()
	}
	mayBeGivenUp := s.GivesUp && (p.running || p.long)
	if s.GivesUp && (p.held || p.long) {
		want = []int{499}
		if p.running && how == "close" { // it may be answered before it is known
			want = []int{200, 499}
		}
	}
	if how == "half-close" && !mayBeGivenUp {
		answer, err := io.ReadAll(r)
		require.NoError(t, err)
		if want[0] == 0 {
			require.Empty(t, answer)
		} else {
			require.Regexp(t, "^HTTP/1.1 [1-5][0-9][0-9] ", string(answer[:min(len(answer), 20)]))
		}
	}
	if p.held && (!p.running || s.GivesUp) {
		// The client is gone before the queue moves.
		eventually(t, func() bool { return len(s.Told()) == 1 }, "it is given up")
	}
	release()
	eventually(t, s.Idle, "nothing is left of it")
	told := s.Told()
	if len(told) == 0 {
		told = []int{0}
	}
	require.Len(t, told, 1)
	require.True(t, slices.Contains(want, told[0]), "told %d, want one of %v", told[0], want)
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, what)
}

// Slow has clients send a byte a second from each phase on, over connections in memory and
// in virtual time. Each is told so when the time-out, of at least 2 s, is over, counted from
// the first byte.
func Slow(t *testing.T, target string, timeout time.Duration, dial func() net.Conn) {
	t.Helper()
	for _, p := range phases() {
		if p.sent == "" || p.sent == "all" {
			continue
		}
		for _, method := range p.methods {
			for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
				text := p.text(method, target, version)
				rest := strings.Repeat("x", 60)
				if p.sent == "no body" || p.sent == "some body" {
					rest = body[:1] // and then nothing
				}
				c := dial()
				begin := time.Now()
				go func() {
					_, _ = io.WriteString(c, text)
					for i := range len(rest) {
						time.Sleep(time.Second)
						if _, err := io.WriteString(c, rest[i:i+1]); err != nil {
							return
						}
					}
				}()
				answer, err := http.ReadResponse(bufio.NewReader(c), nil)
				require.NoError(t, err, "%s %s %s", p.name, method, version)
				require.Equal(t, http.StatusRequestTimeout, answer.StatusCode, "%s %s %s", p.name, method, version)
				require.True(t, answer.Close || version == "HTTP/1.0")
				require.Equal(t, timeout, time.Since(begin))
				require.NoError(t, answer.Body.Close())
				_ = c.Close()
			}
		}
	}
}
