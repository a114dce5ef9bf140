package workload

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Target is a request that is sent as it stands, to any HTTP service.
type Target struct {
	// Name is how figures call it, by default "METHOD URL".
	Name   string `json:"name,omitempty"`
	Method string `json:"method"`
	// URL is absolute, http or https, or a path such as /search?q=x, which is then one
	// of Options.URL.
	URL string `json:"url"`
	// Headers are sent beside Options.Headers, and in the place of those with the same
	// name; each "Name: value".
	Headers []string `json:"headers,omitempty"`
	Body    []byte   `json:"body,omitempty"`
	// Weight is how often the target is sent in relation to the others, above 0, at
	// most 1e9; 0 is 1.
	Weight float64 `json:"weight,omitempty"`
	// Source is where the target was read, for errors; by default "target".
	Source string `json:"-"`
}

const (
	// MaxTargets is how many targets a load may have.
	MaxTargets = 100_000
	// maxBodies is how many bytes their bodies may have together, each file once.
	maxBodies = 1 << 30
)

// String returns how figures call the target: "GET http://127.0.0.1:8080/search", or its
// Name.
func (t *Target) String() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Method + " " + t.URL
}

// Fault is an error of the target, which it says where to find.
func (t *Target) Fault(err error) error {
	return fmt.Errorf("%s: %q: %w", cmp.Or(t.Source, "target"), Redacted(t.String()), err)
}

// begins is how a target begins: its method, with or without a weight before it.
var begins = regexp.MustCompile(`^([0-9.]+\s+)?[A-Z][A-Z-]*\s`)

// ParseTarget reads "METHOD URL", or "WEIGHT METHOD URL".
func ParseTarget(text string) (t Target, err error) {
	words := strings.Fields(text)
	if len(words) == 3 {
		if t.Weight, err = strconv.ParseFloat(words[0], 64); err != nil || !(t.Weight > 0 && t.Weight <= maxWeight) {
			return t, badValue("target", text, "a weight above 0, at most 1e9, before the method")
		}
		words = words[1:]
	}
	if len(words) != 2 || !begins.MatchString(words[0]+" ") {
		return t, badValue("target", text, "METHOD URL, such as GET http://127.0.0.1:8080/, or a weight before them, such as 3 GET /search")
	}
	t.Method, t.URL = words[0], words[1]
	return t, nil
}

// ReadTargets reads targets in the text format of vegeta: a line with the method and
// the URL, lines with headers, and perhaps a line with @ and the name of a file that
// is the body, which read returns. Empty lines and lines that begin with # are skipped. A
// weight may stand before a method, which vegeta does not have. As in vegeta, a target that
// is listed twice is sent twice as often. Errors name the line.
func ReadTargets(from io.Reader, read func(name string) ([]byte, error)) ([]Target, error) {
	var targets []Target
	var last *Target // nil after its body
	bodies, size := map[string][]byte{}, 0
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		fault := func(err error) ([]Target, error) { return nil, fmt.Errorf("line %d: %w", n, err) }
		switch {
		case line == "":
			last = nil
		case line[0] == '#':
		case begins.MatchString(line):
			t, err := ParseTarget(line)
			if err != nil {
				return fault(err)
			}
			if len(targets) == MaxTargets {
				return fault(fmt.Errorf("there are more than %d targets", MaxTargets))
			}
			targets = append(targets, t)
			last = &targets[len(targets)-1]
		case last == nil:
			return fault(badValue("target", line, "METHOD URL, such as GET http://127.0.0.1:8080/"))
		case line[0] == '@':
			name := line[1:]
			body, known := bodies[name]
			if !known {
				var err error
				if body, err = read(name); err != nil {
					return fault(err)
				}
				if size += len(body); size > maxBodies {
					return fault(fmt.Errorf("the bodies have more than %d bytes together", maxBodies))
				}
				bodies[name] = body
			}
			last.Body, last = body, nil
		default:
			header := line
			if name, value, found := strings.Cut(line, ":"); found {
				header = name + ": " + strings.TrimSpace(value)
			}
			if err := checkHeader(header); err != nil {
				return fault(err)
			}
			last.Headers = append(last.Headers, header)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(targets) == 0 {
		return nil, errors.New("there is no target")
	}
	return targets, nil
}

// checkHeader reports a header that is not of the form "Name: value", or that follows
// from the rest of the request.
func checkHeader(header string) error {
	name, _, found := strings.Cut(header, ":")
	if !found || name == "" || strings.ContainsAny(header, "\r\n\x00") || strings.ContainsAny(name, " \t") {
		return fmt.Errorf("header: %q is not of the form Name: value", header)
	}
	switch strings.ToLower(name) {
	case "content-length", "transfer-encoding", "connection":
		return fmt.Errorf("header: %q is the generator's own to send", name)
	}
	return nil
}

// checkTargets reports what of the targets cannot be sent. Their URLs are the
// generator's to check.
func (o *Options) checkTargets() error {
	if len(o.Targets) > MaxTargets {
		return fmt.Errorf("target: %d are more than %d", len(o.Targets), MaxTargets)
	}
	largest := 0
	for i := range o.Targets {
		t := &o.Targets[i]
		if !begins.MatchString(t.Method+" ") || strings.ContainsAny(t.Method, " \t\r\n") || strings.EqualFold(t.Method, "connect") {
			return t.Fault(fmt.Errorf("%q is not a method such as GET", t.Method))
		}
		if !(t.Weight >= 0 && t.Weight <= maxWeight) {
			return t.Fault(fmt.Errorf("a weight of %v is not 0 to 1e9", t.Weight))
		}
		for _, header := range t.Headers {
			if err := checkHeader(header); err != nil {
				return t.Fault(err)
			}
		}
		largest = max(largest, len(t.Body))
	}
	if largest*o.Connections > mostUnsent {
		return fmt.Errorf("body: %d bytes on each of %d connections take more than %d GiB", largest, o.Connections, mostUnsent>>30)
	}
	return nil
}

// Asked returns the names of what is asked for: of the targets if there are any, otherwise of
// the operations. See Request.Asks.
func (o *Options) Asked() []string {
	if len(o.Targets) == 0 {
		return opNames
	}
	names := make([]string, len(o.Targets))
	for i := range o.Targets {
		names[i] = o.Targets[i].String()
	}
	return names
}

// Codes is a set of status codes: "200-299,304", in which 2xx is 200-299. The zero
// value names none.
type Codes string

// UnmarshalText checks and takes a text.
func (c *Codes) UnmarshalText(text []byte) error {
	if _, ok := Codes(text).Set(); !ok {
		return badValue("status codes", string(text), "codes from 100 to 999, such as 200, 2xx or 200-204, and commas between them")
	}
	*c = Codes(text)
	return nil
}

// Set returns which codes are in the set, none for the zero value; false if the text
// cannot be read.
func (c Codes) Set() (set [1000]bool, ok bool) {
	if c == "" {
		return set, true
	}
	for part := range strings.SplitSeq(string(c), ",") {
		low, high, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if class, whole := strings.CutSuffix(low, "xx"); whole && !ranged {
			low, high = class+"00", class+"99"
		} else if !ranged {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || from < 100 || to > 999 || from > to {
			return set, false
		}
		for code := from; code <= to; code++ {
			set[code] = true
		}
	}
	return set, true
}

// Engine is what carries a load.
type Engine uint8

const (
	// AnyEngine is Epoll where it can be had, and Portable otherwise.
	AnyEngine Engine = iota
	// Epoll is on Linux alone, and speaks HTTP/1.1 in the clear. It takes the least CPU.
	Epoll
	// Portable is there on every system, and knows TLS and HTTP/2.
	Portable
)

var engineNames = []string{"auto", "epoll", "portable"}

func (e Engine) String() string { return nameOf(engineNames, e) }

// MarshalText returns the name.
func (e Engine) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText takes a name.
func (e *Engine) UnmarshalText(text []byte) error { return choose(e, engineNames, "engine", text) }

// HTTP is the version of the protocol that is spoken.
type HTTP uint8

const (
	// HTTPAny is HTTP/2 with a server that offers it over TLS, and HTTP/1.1 otherwise.
	HTTPAny HTTP = iota
	// HTTP1 is HTTP/1.1.
	HTTP1
	// HTTP2 is HTTP/2, in the clear too (h2c, with prior knowledge).
	HTTP2
)

var httpNames = []string{"auto", "1.1", "2"}

// UnmarshalText takes a name.
func (h *HTTP) UnmarshalText(text []byte) error { return choose(h, httpNames, "version of HTTP", text) }
