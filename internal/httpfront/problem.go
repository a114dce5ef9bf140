package httpfront

import (
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"
)

// Problem is an answer that says what was wrong (RFC 9457).
type Problem struct {
	Status int
	// Detail says to a person what was wrong, with the value, and what is allowed.
	Detail string
	// Lines holds further header lines, each with its CR LF.
	Lines string
	// Close ends the connection.
	Close bool
	// Members are further members of the object as JSON, each with a comma before it.
	Members string

	json []byte // what it says, if it is ready
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

// Ready makes a problem that answers often cheap to append, and returns it. It must not be
// changed from then on.
func (p *Problem) Ready() *Problem {
	p.json = p.JSON()
	return p
}

// JSON returns what the problem says.
func (p *Problem) JSON() []byte {
	if p.json != nil {
		return p.json
	}
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
	body := p.JSON()
	dst = date.append(appendStatus(dst, p.Status))
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
