package server

import (
	"bytes"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/store"
)

// tagList is what If-Match or If-None-Match says. Its zero value stands for a header
// that was not sent.
type tagList struct {
	any  bool       // it is *
	tags []etag.Tag // otherwise; nil if it was not sent
}

func (l *tagList) given() bool { return l.any || l.tags != nil }

// has reports whether the list has the tag of a value.
func (l *tagList) has(tag etag.Tag) bool {
	return l.any || slices.Contains(l.tags, tag)
}

// parseTags parses the list of a header (RFC 9110, 13.1). What is no validator of ours is
// that of no value. A weak one counts if weak is set.
func parseTags(name string, list []byte, weak bool) (l tagList, bad *httpfront.Problem) {
	if list == nil {
		return l, nil
	}
	if string(list) == "*" {
		return tagList{any: true}, nil
	}
	l.tags = []etag.Tag{}
	for rest := list; ; {
		for len(rest) > 0 && (rest[0] == ',' || rest[0] == ' ' || rest[0] == '\t') {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			break
		}
		text, strong := rest, true
		if bytes.HasPrefix(text, weakMark) {
			text, strong = text[len(weakMark):], false
		}
		end := -1
		if text[0] == '"' {
			end = bytes.IndexByte(text[1:], '"')
		}
		if end < 0 {
			return l, badTags(name, list)
		}
		if tag, ok := etag.Parse(text[1 : 1+end]); ok && (strong || weak) {
			l.tags = append(l.tags, tag)
		}
		if rest = httpfront.Trim(text[end+2:]); len(rest) > 0 && rest[0] != ',' {
			return l, badTags(name, list)
		}
	}
	return l, nil
}

var weakMark = []byte("W/")

func badTags(name string, list []byte) *httpfront.Problem {
	return httpfront.BadHeader(name, list, `* or validators in double quotes, as ETag has them`)
}

// setConditions checks and notes what the request makes depend on what is stored.
func (q *request) setConditions(method string, f *fields) (bad *httpfront.Problem) {
	if f.ifMatch == nil && f.ifNoneMatch == nil {
		return nil
	}
	if q.ifMatch, bad = parseTags("If-Match", f.ifMatch, false); bad != nil {
		return bad
	}
	if q.ifNoneMatch, bad = parseTags("If-None-Match", f.ifNoneMatch, true); bad != nil {
		return bad
	}
	if method != fasthttp.MethodPut && method != fasthttp.MethodDelete || !q.ifNoneMatch.given() {
		return nil
	}
	if !q.ifNoneMatch.any {
		return httpfront.BadHeader("If-None-Match", f.ifNoneMatch, "* for "+method)
	}
	if q.ifMatch.given() {
		return httpfront.BadRequest("the headers If-Match and If-None-Match contradict each other: no key has a value and none")
	}
	return nil
}

// condition returns what must hold for a write.
func (q *request) condition() store.Condition {
	return store.Condition{Absent: q.ifNoneMatch.any, Present: q.ifMatch.any, Tags: q.ifMatch.tags}
}

func appendETag(dst []byte, tag etag.Tag) []byte {
	dst = append(dst, "ETag: \""...)
	dst = tag.Append(dst)
	return append(dst, "\"\r\n"...)
}

// refused is the answer to a request whose condition does not hold, as there is a value
// of that tag, or none if it is zero.
func refused(tag etag.Tag) *httpfront.Problem {
	bad := &httpfront.Problem{Status: fasthttp.StatusPreconditionFailed, Detail: "the key has no value"}
	if !tag.IsZero() {
		bad.Lines = string(appendETag(nil, tag))
		bad.Detail = "the key has a value with the validator of ETag"
	}
	return bad
}
