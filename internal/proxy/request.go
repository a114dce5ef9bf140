package proxy

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/strategies"
)

// request is the head of a request, whichever protocol it came by.
type request struct {
	target, host []byte
	fields       []field
	version      string // of HTTP that the client speaks
	secure       bool   // so does it over TLS
	framed       bool   // it says how long its body is, be it 0
	length       int    // of the body, less than 0 if that is not known
}

type field struct {
	name, value []byte
	kind        kind
}

// check returns what is wrong with the method, or with what else the first lines for the upstream
// are made of, if anything is.
func (r *request) check(method []byte) *httpfront.Problem {
	switch {
	case string(method) == http.MethodConnect:
		return &httpfront.Problem{Status: http.StatusMethodNotAllowed, Lines: "Allow: GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS\r\n", Detail: "the method CONNECT is not supported"}
	case !isToken(method):
		return httpfront.BadRequest("the method has a byte that is not allowed: " + httpfront.Quote(method))
	case !isTarget(r.target):
		return httpfront.BadRequest("the target has a byte that is not allowed: " + httpfront.Quote(r.target))
	case len(r.host) > 0 && !isTarget(r.host):
		return httpfront.BadRequest("the host has a byte that is not allowed: " + httpfront.Quote(r.host))
	}
	return nil
}

// methodOf returns a method that HTTP defines as a string that is not made anew.
func methodOf(method []byte) string {
	for _, m := range [...]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, http.MethodTrace,
	} {
		if string(method) == m {
			return m
		}
	}
	return "other"
}

// writeHead makes the head for the upstream, in the room of h. The options are those of
// Connection.
func (t *turn) writeHead(h, method []byte, of options) {
	r := &t.request
	h = append(append(h[:0], method...), ' ')
	h = append(append(h, r.target...), " HTTP/1.1\r\n"...)
	h = appendField(h, []byte("Host"), r.host)
	te, traced := false, t.s.o.Tracer != nil
	var before forwardedBy
	var traceparent, tracestate []byte
	for i := range r.fields {
		switch f := &r.fields[i]; f.kind {
		case hop, hopConnection, hopUpgrade, framedLength, framedEncoding, expected, host:
		case hopTE:
			te = bytes.Contains(bytes.ToLower(f.value), []byte("trailers"))
		case forwarded:
			before.note(f)
		case traceParent, traceState:
			if f.kind == traceParent {
				traceparent = f.value
			} else {
				tracestate = f.value
			}
			if !traced {
				h = appendField(h, f.name, f.value)
			}
		default:
			if len(of) == 0 || !of.has(f.name) {
				h = appendField(h, f.name, f.value)
			}
		}
	}
	proto := "http"
	if r.secure {
		proto = "https"
	}
	h = t.trace(h, traceparent, tracestate)
	if !t.s.live.Load().TrustHeaders {
		before = forwardedBy{}
	}
	h = before.append(h, t.peer, proto, r.host)
	h = append(append(append(h, "Via: "...), r.version...), " "+via+"\r\n"...)
	switch {
	case t.protocol != nil:
		h = append(h, "Connection: Upgrade\r\n"...)
		h = appendField(h, []byte("Upgrade"), t.protocol)
	case te:
		h = append(h, "TE: trailers\r\nConnection: TE\r\n"...)
	}
	switch {
	case r.length < 0:
		h = append(h, "Transfer-Encoding: chunked\r\n"...)
	case r.length > 0 || r.framed:
		h = append(h, "Content-Length: "...)
		h = append(strconv.AppendInt(h, int64(r.length), 10), "\r\n"...)
	}
	t.head = append(h, "\r\n"...)
}

// forwardedBy is what earlier proxies, or a client, said of whom a request is forwarded for.
type forwardedBy struct {
	address     []byte // all lines, as one list
	proto, host []byte
}

// note takes a field of that kind. Forwarded is dropped: no line says the same in two ways.
func (b *forwardedBy) note(f *field) {
	switch {
	case is(f.name, "X-Forwarded-For") && b.address != nil:
		b.address = append(append(b.address[:len(b.address):len(b.address)], ", "...), f.value...)
	case is(f.name, "X-Forwarded-For"):
		b.address = f.value
	case is(f.name, "X-Forwarded-Proto"):
		b.proto = f.value
	case is(f.name, "X-Forwarded-Host"):
		b.host = f.value
	}
}

// append appends the lines for the upstream.
func (b *forwardedBy) append(h []byte, peer, proto string, hostName []byte) []byte {
	h = append(h, "X-Forwarded-For: "...)
	if len(b.address) > 0 {
		h = append(append(h, b.address...), ", "...)
	}
	h = append(append(h, peer...), "\r\nX-Forwarded-Proto: "...)
	if len(b.proto) > 0 {
		h = append(h, b.proto...)
	} else {
		h = append(h, proto...)
	}
	h = append(h, "\r\nX-Forwarded-Host: "...)
	if len(b.host) > 0 {
		h = append(h, b.host...)
	} else {
		h = append(h, hostName...)
	}
	return append(h, "\r\n"...)
}

// path returns the decoded path.
func (r *request) path() string {
	path, _, _ := bytes.Cut(r.target, []byte("?"))
	if bytes.IndexByte(path, '%') >= 0 {
		if decoded, err := url.PathUnescape(string(path)); err == nil {
			return decoded
		}
	}
	return string(path)
}

// header returns the first value of a field.
func (r *request) header(name string) string {
	for i := range r.fields {
		if f := &r.fields[i]; is(f.name, name) {
			return string(f.value)
		}
	}
	return ""
}

// ask finds out whose the request is, how important it is, and whether it waits, or what is
// wrong with what it says of that.
func (t *turn) ask(look *rules.Request) *httpfront.Problem {
	o := t.s.live.Load()
	look.Peer = t.peer
	t.asked = admission.Request{Client: o.Client.Of(look), Priority: o.Priorities.Of(look)}
	if o.TrustHeaders {
		if bad := t.takeWishes(); bad != nil {
			return bad
		}
	}
	if len(o.Routes) > 0 {
		t.route = o.Routes.Of(t.path())
		t.asked.Route = t.route
	}
	t.exempt = len(o.Exempt) > 0 && o.Exempt.Has(t.path()) || t.method[0] != 'P' && isHealthCheck(t.method, t.path())
	return nil
}

// takeWishes takes what a client says that is trusted.
func (t *turn) takeWishes() *httpfront.Problem {
	var qos httpfront.QoS
	var lower httpfront.Lower
	for i := range t.fields {
		f := &t.fields[i]
		if bad := qos.Note(lower.Of(f.name), f.name, f.value); bad != nil {
			return bad
		}
	}
	const unset = -1
	client, class, timeout, bad := qos.Read(unset)
	if bad != nil {
		return bad
	}
	if len(client) > 0 {
		t.asked.Client = string(client)
	}
	if class != unset {
		t.asked.Priority = strategies.Urgency(class)
	}
	t.timeout = timeout
	return nil
}

// options are those of Connection, each with a comma behind it.
type options []byte

func (o options) has(name []byte) bool {
	for rest := []byte(o); len(rest) > 0; {
		var option []byte
		option, rest, _ = bytes.Cut(rest, comma)
		if is(httpfront.Trim(option), string(name)) {
			return true
		}
	}
	return false
}

var comma = []byte(",")

// is compares a name with another in ASCII, without regard to case.
func is(name []byte, other string) bool {
	return len(name) == len(other) && httpfront.EqualFold(name, other)
}
