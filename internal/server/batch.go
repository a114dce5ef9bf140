package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/store"
)

// maxSteps is how many operations a batch may have.
const maxSteps = 1000

// checkBatchFields checks the fields of a batch that mean something for it.
func checkBatchFields(f *fields) *httpfront.Problem {
	if !isNDJSON(f.contentType) {
		// Anything else a browser would send for any page, without asking first.
		return &httpfront.Problem{Status: fasthttp.StatusUnsupportedMediaType,
			Detail: "header Content-Type is " + httpfront.Quote(f.contentType) + ", allowed: " + typeNDJSON}
	}
	if f.ifMatch != nil || f.ifNoneMatch != nil || f.ttl != nil {
		return httpfront.BadRequest("the headers If-Match, If-None-Match and Spillway-Ttl mean nothing for a batch: its operations have the fields if_match, if_none_match and ttl")
	}
	return nil
}

// serveBatch has the operations in the body run as one task, and returns the answer.
func (c *call) serveBatch() httpfront.Answer {
	steps, bad := c.parseBatch()
	if bad != nil {
		return httpfront.Answer{Problem: bad}
	}
	c.op = executor.Op{Kind: executor.Batch, Steps: steps, Buf: c.x.Room()}
	c.run()
	a, failed := c.failure()
	switch err := c.op.Err; {
	case errors.Is(err, store.ErrCondition):
		a.Problem = refusedBatch(steps.Refused)
	case errors.Is(err, executor.ErrTooLarge):
		a.Problem = &httpfront.Problem{Status: fasthttp.StatusRequestEntityTooLarge,
			Detail: "the answer has more bytes than are allowed, at most " + strconv.Itoa(steps.MaxBytes) + ", and nothing was written"}
	case errors.Is(err, errors.ErrUnsupported):
		a.Problem = &httpfront.Problem{Status: fasthttp.StatusNotImplemented,
			Detail: "the distributed store cannot write several keys as one step: write each by " + pathEntity + ", or use the embedded store"}
	case !failed:
		a.Status, a.Type = fasthttp.StatusOK, typeNDJSON
	}
	return a
}

// problemOperation is an operation of a batch, with the validator of the value that its
// key has.
type problemOperation struct {
	Index  int    `json:"index"`
	Status int    `json:"status"`
	ETag   string `json:"etag,omitempty"`
}

// refusedBatch is the answer to a batch of which some conditions do not hold.
func refusedBatch(refusals []executor.Refusal) *httpfront.Problem {
	bad := &httpfront.Problem{Status: fasthttp.StatusPreconditionFailed,
		Detail: "nothing was written: each operation listed has a condition that does not hold"}
	var operations []problemOperation
	for _, r := range refusals {
		of := problemOperation{Index: r.Index, Status: fasthttp.StatusPreconditionFailed}
		if r.Found {
			of.ETag = r.Tag.String()
		}
		operations = append(operations, of)
	}
	if b, err := json.Marshal(operations); err == nil { // strings and numbers cannot fail
		bad.Members = `,"operations":` + string(b)
	}
	return bad
}

// parseBatch parses the lines of the body, in whose place it decodes them. What they
// take up beside is reserved as well.
func (c *call) parseBatch() (*executor.Steps, *httpfront.Problem) {
	o := c.server.limited.Load()
	body := c.x.Body
	lines := bytes.Count(body, lineFeed)
	if n := len(body); n > 0 && body[n-1] != '\n' {
		lines++
	}
	if lines > maxSteps {
		return nil, httpfront.BadRequest("the batch has " + strconv.Itoa(lines) + " lines, allowed: at most " + strconv.Itoa(maxSteps))
	}
	beside := int64(lines) * int64(unsafe.Sizeof(executor.Step{}))
	if all := int64(len(body)) + beside; all > o.MaxBodyBytes {
		return nil, &httpfront.Problem{Status: fasthttp.StatusRequestEntityTooLarge,
			Detail: "the batch and its operations take " + strconv.FormatInt(all, 10) + " bytes, allowed: at most " + strconv.FormatInt(o.MaxBodyBytes, 10)}
	}
	if !c.x.Reserve(beside) {
		return nil, c.NoRoom()
	}
	s := &executor.Steps{Ops: make([]executor.Step, lines), MaxBytes: o.MaxBatchBytes}
	s.Encode = func(dst []byte, i int, r executor.Result) []byte { return appendResult(dst, s.Ops[i].Kind, r) }
	for i := range s.Ops {
		var line []byte
		line, body, _ = bytes.Cut(body, lineFeed)
		if err := parseStep(&s.Ops[i], line, o); err != nil {
			err.Detail = "line " + strconv.Itoa(i+1) + " of the batch: " + err.Detail + "; nothing was written"
			return nil, err
		}
	}
	return s, nil
}

var lineFeed = []byte("\n")

// appendResult appends the line of an operation of that kind.
func appendResult(dst []byte, kind executor.Kind, r executor.Result) []byte {
	need := 64 + etag.Length + base64.StdEncoding.EncodedLen(len(r.Value))
	if cap(dst)-len(dst) < need {
		dst = bufpool.Grow(dst, max(need, len(dst)))
	}
	switch {
	case kind == executor.Delete:
		return append(dst, `{"status":202}`+"\n"...)
	case kind == executor.Put:
		dst = append(dst, `{"status":201,"etag":"`...)
	case !r.Found:
		return append(dst, `{"status":404}`+"\n"...)
	default:
		dst = append(dst, `{"status":200,"value":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, r.Value)
		dst = append(dst, `","etag":"`...)
	}
	dst = append(r.Tag.Append(dst), '"')
	if kind == executor.Get && r.TTL != 0 {
		dst = append(dst, `,"ttl":`...)
		dst = strconv.AppendUint(dst, uint64(r.TTL), 10)
	}
	return append(dst, "}\n"...)
}

// The fields of an operation.
const (
	stepOp = 1 << iota
	stepKey
	stepValue
	stepTTL
	stepIfMatch
	stepIfNoneMatch
)

// parseStep parses a line. Key and value are decoded in its place.
func parseStep(step *executor.Step, line []byte, o *Options) *httpfront.Problem {
	p := jsonLine{rest: line}
	seen := 0
	var op []byte
	for name, more := p.first(); more; name, more = p.next() {
		field := 0
		switch string(name) {
		case "op":
			field, op = stepOp, p.text()
		case "key":
			field, step.Key = stepKey, p.base64("key")
		case "value":
			field, step.Value = stepValue, p.base64("value")
		case "ttl":
			field, step.TTL = stepTTL, p.ttl()
		case "if_match":
			field = stepIfMatch
			p.ifMatch(&step.If)
		case "if_none_match":
			field, step.If.Absent = stepIfNoneMatch, true
			if text := p.text(); p.bad == "" && string(text) != "*" {
				p.bad = "if_none_match is " + httpfront.Quote(text) + `, allowed: "*"`
			}
		default:
			p.fail("the field " + httpfront.Quote(name) + " is not known, allowed: op, key, value, ttl, if_match, if_none_match")
		}
		if seen&field != 0 {
			p.fail("the field " + httpfront.Quote(name) + " is given more than once")
		}
		seen |= field
	}
	if p.bad != "" {
		return httpfront.BadRequest(p.bad)
	}
	allowed := stepOp | stepKey
	switch string(op) {
	case "get":
		step.Kind = executor.Get
	case "delete":
		step.Kind, allowed = executor.Delete, allowed|stepIfMatch|stepIfNoneMatch
	case "put":
		step.Kind, allowed = executor.Put, allowed|stepValue|stepTTL|stepIfMatch|stepIfNoneMatch
	default:
		return httpfront.BadRequest("op is " + httpfront.Quote(op) + ", allowed: put, delete and get")
	}
	switch {
	case seen&^allowed != 0:
		return httpfront.BadRequest("a " + string(op) + " has a field that means nothing for it")
	case seen&stepKey == 0:
		return httpfront.BadRequest("the field key is missing")
	case len(step.Key) == 0:
		return httpfront.BadRequest("the field key is empty, allowed: at least one byte")
	case len(step.Key) > o.MaxKeyBytes:
		return httpfront.BadRequest("the key has " + strconv.Itoa(len(step.Key)) + " bytes, allowed: at most " + strconv.Itoa(o.MaxKeyBytes))
	case step.Kind == executor.Put && seen&stepValue == 0:
		return httpfront.BadRequest("the field value is missing")
	case len(step.Value) > o.MaxValueBytes:
		return &httpfront.Problem{Status: fasthttp.StatusRequestEntityTooLarge,
			Detail: "the value has " + strconv.Itoa(len(step.Value)) + " bytes, allowed: at most " + strconv.Itoa(o.MaxValueBytes)}
	case seen&stepIfMatch != 0 && seen&stepIfNoneMatch != 0:
		return httpfront.BadRequest("if_match and if_none_match contradict each other: no key has a value and none")
	}
	return nil
}
