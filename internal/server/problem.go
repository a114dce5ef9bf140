package server

import (
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"
)

// problem is an answer that says what was wrong (RFC 9457).
type problem struct {
	status int
	// detail tells a person what was wrong, with the value, and what is
	// allowed.
	detail string
	// header holds further header lines, each with its CR LF.
	header string
	// close ends the connection.
	close bool
	// operations are those of a batch whose conditions do not hold.
	operations []problemOperation
	// shed says that the queueing layer turns the request away.
	shed bool
}

// problemOperation is an operation of a batch, with the validator of the value that its
// key has.
type problemOperation struct {
	Index  int    `json:"index"`
	Status int    `json:"status"`
	ETag   string `json:"etag,omitempty"`
}

func badRequest(detail string) *problem {
	return &problem{status: fasthttp.StatusBadRequest, detail: detail}
}

// malformed is a request whose end cannot be relied on.
func malformed(detail string) *problem {
	return &problem{status: fasthttp.StatusBadRequest, detail: "malformed request: " + detail, close: true}
}

func badHeader(name string, value []byte, allowed string) *problem {
	return badRequest("header " + name + " is " + quote(value) + ", allowed: " + allowed)
}

// quote makes bytes from outside readable, and short.
func quote(b []byte) string {
	const most = 80
	if len(b) > most {
		return strconv.QuoteToASCII(string(b[:most])) + "… (" + strconv.Itoa(len(b)) + " bytes)"
	}
	return strconv.QuoteToASCII(string(b))
}

// body returns what the problem says, as JSON.
func (p *problem) body() []byte {
	b, err := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`

		Operations []problemOperation `json:"operations,omitempty"`
	}{fasthttp.StatusMessage(p.status), p.status, p.detail, p.operations})
	if err != nil { // strings and a number cannot fail
		return []byte("{}")
	}
	return b
}

// append appends the whole answer, without its body to answer HEAD.
func (p *problem) append(dst []byte, date *clock, ends, head bool) []byte {
	body := p.body()
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(p.status), 10)
	dst = append(dst, ' ')
	dst = append(dst, fasthttp.StatusMessage(p.status)...)
	dst = append(dst, "\r\n"...)
	if date != nil {
		dst = date.append(dst)
	}
	dst = append(dst, p.header...)
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
