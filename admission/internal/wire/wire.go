// Package wire is what the adapters for HTTP have in common: the headers by which a client
// describes its request, and the answer to a request that is refused.
package wire

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// The headers that are read if they are trusted, and ShedHeader, which refusals have.
const (
	ClientHeader   = "Spillway-Client"
	PriorityHeader = "Spillway-Priority"
	TimeoutHeader  = "Spillway-Timeout-Ms"
	UrgencyHeader  = "Priority" // of RFC 9218
	ShedHeader     = "Spillway-Shed"
)

// ProblemType is the content type of refusals.
const ProblemType = "application/problem+json"

const (
	longestClient  = 128
	longestTimeout = 3_600_000 // ms
	leastImportant = 7
)

// details say what the reasons mean to a client.
var details = map[strategies.Reason]string{
	strategies.ReasonFull:      "the queue is full",
	strategies.ReasonDisplaced: "another request took the place of this one in the queue",
	strategies.ReasonCoDel:     "the request waited too long in a queue that does not get shorter",
	strategies.ReasonLate:      "the request would be answered later than the objective or its own deadline",
	strategies.ReasonFair:      "this client has more requests waiting than its share",
	strategies.ReasonAbandoned: "the client has gone",
	strategies.ReasonDraining:  "the service is stopping",
	strategies.ReasonExpired:   "the request was not started before its deadline",
}

// Refusal is the answer to a request that got no places.
type Refusal struct {
	Status     int
	Reason     string // empty if it was not turned away
	RetryAfter string // in seconds, empty if it is of no use to try again
	Body       string // of ProblemType
}

// Refuse returns the answer where Acquire returns err. With tooMany it is 429 instead of 503,
// unless the service is stopping or the client has gone. What is no ShedError is 500, as
// whoever makes the admission.Request makes a mistake.
func Refuse(err error, tooMany bool) Refusal {
	s, ok := errors.AsType[*admission.ShedError](err)
	if !ok {
		return Problem(http.StatusInternalServerError, err.Error())
	}
	status := http.StatusServiceUnavailable
	switch s.Reason {
	case strategies.ReasonExpired:
		status = http.StatusGatewayTimeout
	case strategies.ReasonDraining, strategies.ReasonAbandoned:
	default:
		if tooMany {
			status = http.StatusTooManyRequests
		}
	}
	r := Problem(status, cmp.Or(details[s.Reason], "the request was turned away: "+s.Reason.String()))
	r.Reason = s.Reason.String()
	if s.RetryAfter > 0 {
		r.RetryAfter = strconv.FormatInt(int64((s.RetryAfter+time.Second-1)/time.Second), 10)
	}
	return r
}

// Problem returns the answer with that status. Nothing in the detail has to be escaped.
func Problem(status int, detail string) Refusal {
	return Refusal{
		Status: status,
		Body:   `{"title":"` + http.StatusText(status) + `","status":` + strconv.Itoa(status) + `,"detail":"` + detail + `"}`,
	}
}

// Priority returns what a Spillway-Priority says or, if it does not fit, a Priority, of
// whose members u the last counts; and p if that does not fit either.
func Priority(spillway, priority string, p strategies.Priority) strategies.Priority {
	if u, ok := digit(spillway); ok {
		return strategies.Urgency(u)
	}
	said := p
	for len(priority) > 0 {
		var member string
		member, priority = cutMember(priority)
		name, value, _ := strings.Cut(member, "=")
		if strings.TrimSpace(name) != "u" {
			continue
		}
		value, _, _ = strings.Cut(value, ";") // parameters have no meaning
		said = p
		if u, ok := digit(strings.TrimSpace(value)); ok {
			said = strategies.Urgency(u)
		}
	}
	return said
}

func digit(s string) (int, bool) {
	if len(s) != 1 || s[0] < '0' || s[0] > '0'+leastImportant {
		return 0, false
	}
	return int(s[0] - '0'), true
}

// cutMember splits a dictionary (RFC 8941) at its first comma that is not within a
// string.
func cutMember(s string) (member, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case quoted && s[i] == '\\':
			i++
		case !quoted && s[i] == ',':
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// Client returns the name that a client gives itself, or else client.
func Client(name, client string) string {
	if name == "" || len(name) > longestClient {
		return client
	}
	return name
}

// Timeout returns how long a client waits, 0 if it does not say so.
func Timeout(ms string) time.Duration {
	n, err := strconv.ParseUint(ms, 10, 32)
	if err != nil || n > longestTimeout {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// Host returns an address without its port.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// IsHealthCheck reports whether a request asks whether the service lives.
func IsHealthCheck(method, path string) bool {
	if method != http.MethodGet && method != http.MethodHead {
		return false
	}
	switch path {
	case "/healthz", "/livez", "/readyz":
		return true
	}
	return false
}

// IsEventStream reports whether a content type is that of server-sent events, which have
// no end.
func IsEventStream(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}
