package server

import (
	"bytes"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/secure"
)

// request is what the head of a request asks for. Its slices refer to the head, or to
// call.decoded.
type request struct {
	isRange, isBatch bool
	ndjson           bool
	preflight        bool // a browser asks whether a page may send a request
	key              []byte
	list             list // of a range, beside the key that it starts with
	options          options

	ifMatch, ifNoneMatch tagList
}

const (
	pathEntity   = "/v0/entity"
	pathEntities = "/v0/entities"
	typeNDJSON   = "application/x-ndjson"
)

// Head finds out what the request asks for, and what is done with its body.
func (c *call) Head() (httpfront.Wanted, *httpfront.Problem) {
	arrival := c.x.Arrival
	want, bad := c.parse(&c.x.Request)
	if bad == nil && c.server.opts.TrustRequestStart && c.fields.requestStart != nil {
		c.x.Arrival = movedBack(arrival, c.fields.requestStart, time.Now())
	}
	if tracer := c.server.opts.Tracer; tracer != nil {
		c.span = tracer.Start(c.fields.traceparent, c.fields.tracestate, c.x.Arrival)
	}
	return want, bad
}

// parse fills c.request from what the head says, in h and c.fields.
func (c *call) parse(h *httpfront.Request) (want httpfront.Wanted, bad *httpfront.Problem) {
	o, f, q := c.server.limited.Load(), &c.fields, &c.request
	want = httpfront.Wanted{Most: o.MaxValueBytes, Keep: h.Method == fasthttp.MethodPut, Name: "value"}
	if _, mayCall := c.server.cors.lines(f.origin); mayCall && f.preflight && h.Method == fasthttp.MethodOptions {
		q.preflight = true // which browsers send without the token
		return want, nil
	}
	if !o.Token.Allows(f.authorization) {
		return want, &httpfront.Problem{Status: fasthttp.StatusUnauthorized, Lines: "WWW-Authenticate: Bearer\r\n",
			Detail: "the header Authorization does not carry the bearer token of this service"}
	}
	if f.browser && c.server.guarded && !secure.OwnName(string(h.Host), o.AllowedHosts...) {
		return want, &httpfront.Problem{Status: fasthttp.StatusForbidden, Detail: "without SPILLWAY_DATA_TOKEN browsers are answered here under an IP address, localhost, " +
			"or a name in SPILLWAY_ALLOWED_HOSTS, not under " + httpfront.Quote(h.Host)}
	}
	path, query, _ := bytes.Cut(h.Target, questionMark)
	switch string(path) {
	case pathEntity:
		switch h.Method {
		case fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodPut, fasthttp.MethodDelete:
		default:
			return want, notAllowed(h.RawMethod, path, "GET, HEAD, PUT, DELETE")
		}
	case pathEntities:
		switch h.Method {
		case fasthttp.MethodGet:
			q.isRange = true
		case fasthttp.MethodPost:
			q.isBatch = true
			// What is larger than the budget of all bodies would never be let in.
			want = httpfront.Wanted{Most: int(min(int64(o.MaxBatchBytes), o.MaxBodyBytes)), Keep: true, Name: "batch"}
		default:
			return want, notAllowed(h.RawMethod, path, "GET, POST")
		}
	default:
		return want, httpfront.BadRequest("the path is " + httpfront.Quote(path) + ", allowed: " + pathEntity + " and " + pathEntities)
	}
	var p parameters
	if p, c.decoded, bad = parseQuery(query, c.decoded); bad != nil {
		return want, bad
	}
	switch {
	case q.isBatch:
		bad = checkBatchFields(f)
	case q.isRange:
		q.ndjson = f.ndjson
		c.decoded, bad = q.setRange(&p, o.MaxKeyBytes, c.decoded)
	default:
		q.key = p[paramID]
		if bad = p.checkKey(paramID, o.MaxKeyBytes); bad == nil {
			bad = q.setConditions(h.Method, f)
		}
	}
	if bad == nil {
		q.options, bad = f.options()
	}
	return want, bad
}

// operation returns what is to be run for a request of one key, with that body.
func (q *request) operation(method string, body []byte) executor.Op {
	op := executor.Op{Kind: executor.Get, Key: q.key, Consistency: q.options.consistency}
	switch method {
	case fasthttp.MethodPut:
		op.Kind, op.Value, op.TTL, op.If = executor.Put, body, q.options.ttl, q.condition()
	case fasthttp.MethodDelete:
		op.Kind, op.If = executor.Delete, q.condition()
	}
	return op
}

var questionMark = []byte("?")

func notAllowed(method, path []byte, allow string) *httpfront.Problem {
	return &httpfront.Problem{Status: fasthttp.StatusMethodNotAllowed, Lines: "Allow: " + allow + "\r\n",
		Detail: "the method of " + string(path) + " is " + httpfront.Quote(method) + ", allowed: " + allow}
}
