package httpfront

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"
)

// Problem is an answer that says what was wrong (RFC 9457).
type Problem struct {
	Status int
	// Detail tells a person what was wrong, with the value, and what is allowed.
	Detail string
	// Lines holds further header lines, each with its CR LF.
	Lines string
	// Close ends the connection.
	Close bool
	// Members are further members of the object as JSON, each with a comma before it.
	Members string
}

// BadRequest is a request that cannot be carried out as it is.
func BadRequest(detail string) *Problem {
	return &Problem{Status: fasthttp.StatusBadRequest, Detail: detail}
}

// malformed is a request whose end cannot be relied on.
func malformed(detail string) *Problem {
	return &Problem{Status: fasthttp.StatusBadRequest, Detail: "malformed request: " + detail, Close: true}
}

// Quote makes bytes from outside readable, and short.
func Quote(b []byte) string {
	const most = 80
	if len(b) > most {
		return strconv.QuoteToASCII(string(b[:most])) + "… (" + strconv.Itoa(len(b)) + " bytes)"
	}
	return strconv.QuoteToASCII(string(b))
}

// body returns what the problem says, as JSON.
func (p *Problem) body() []byte {
	b, err := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{fasthttp.StatusMessage(p.Status), p.Status, p.Detail})
	if err != nil { // strings and a number cannot fail
		return []byte("{}")
	}
	return append(append(b[:len(b)-1], p.Members...), '}')
}

// append appends the whole answer with those further lines, without its body to answer HEAD.
func (p *Problem) append(dst []byte, date *clock, lines string, ends, head bool) []byte {
	body := p.body()
	dst = appendStatus(dst, p.Status)
	if date != nil {
		dst = date.append(dst)
	}
	dst = append(append(dst, p.Lines...), lines...)
	if ends {
		dst = append(dst, "Connection: close\r\n"...)
	}
	dst = append(dst, "Content-Type: application/problem+json\r\nContent-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	if head {
		return dst
	}
	return append(dst, body...)
}

// statusLines are the first lines of answers.
var statusLines = func() (lines [600]string) {
	for status := range lines {
		lines[status] = "HTTP/1.1 " + strconv.Itoa(status) + " " + fasthttp.StatusMessage(status) + lineEnd
	}
	return lines
}()

func appendStatus(dst []byte, status int) []byte { return append(dst, statusLines[status]...) }

// Ready is a problem that answers often: to answer costs no more than to copy it. It
// carries no Date, which an answer of class 5xx may leave out.
type Ready struct {
	problem           *Problem
	status            int
	goOn, end         []byte // of connections that go on and that do not
	goOnHead, endHead int    // how much of them answers HEAD
}

// NewReady makes a problem ready.
func NewReady(p *Problem) *Ready {
	return &Ready{
		problem:  p,
		status:   p.Status,
		goOn:     p.append(nil, nil, "", false, false),
		goOnHead: len(p.append(nil, nil, "", false, true)),
		end:      p.append(nil, nil, "", true, false),
		endHead:  len(p.append(nil, nil, "", true, true)),
	}
}

// Problem returns what was made ready.
func (r *Ready) Problem() *Problem { return r.problem }

// append appends the answer with those further lines.
func (r *Ready) append(dst []byte, lines string, ends, head bool) []byte {
	b, n := r.goOn, r.goOnHead
	if ends {
		b, n = r.end, r.endHead
	}
	if head {
		b = b[:n]
	}
	if lines != "" {
		status := bytes.IndexByte(b, '\n') + 1
		dst = append(append(dst, b[:status]...), lines...)
		b = b[status:]
	}
	return append(dst, b...)
}
