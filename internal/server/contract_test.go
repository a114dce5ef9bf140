package server

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/secure"
)

// row is a row of the table: a request, what must be answered, and what
// becomes of the connection.
type row struct {
	name    string
	request string // with "\n" for CR LF in the head
	raw     string // sent as it is instead
	status  int
	body    string
	header  string // "Name: value" that the answer must have
	detail  string // what the problem's detail must say
	closes  bool
}

const host = " HTTP/1.1\nHost: x\n"

func get(target string) string { return "GET " + target + host + "\n" }

func put(id, value string) string {
	return fmt.Sprintf("PUT /v0/entity?id=%s%sContent-Length: %d\n\n%s", id, host, len(value), value)
}

// with is a request with further header lines, and a body if it is not empty.
func with(method, target, lines, body string) string {
	if body != "" {
		lines += fmt.Sprintf("Content-Length: %d\n", len(body))
	}
	return method + " " + target + host + lines + "\n" + body
}

func tagOf(value string) string {
	tag := etag.Of([]byte(value))
	return tag.String()
}

// batch is a request with those operations.
func batch(lines ...string) string {
	return with("POST", "/v0/entities", "Content-Type: application/x-ndjson\n", strings.Join(lines, "\n"))
}

func rows() []row {
	long := strings.Repeat("k", 101)
	huge := strings.Repeat("x", 20_000)
	big := strings.Repeat("v", 64<<10)
	return []row{
		// Entities, the happy way.
		{name: "an absent key is 404 with an empty body", request: get("/v0/entity?id=a"), status: 404, header: "Content-Length: 0"},
		{name: "PUT creates", request: put("a", "one"), status: 201, header: "Content-Length: 0"},
		{name: "GET has the value", request: get("/v0/entity?id=a"), status: 200, body: "one", header: "Content-Type: application/octet-stream"},
		{name: "HEAD has the length alone", request: "HEAD /v0/entity?id=a" + host + "\n", status: 200, header: "Content-Length: 3"},
		{name: "HEAD of an absent key", request: "HEAD /v0/entity?id=b" + host + "\n", status: 404, header: "Content-Length: 0"},
		{name: "PUT replaces", request: put("a", "two"), status: 201},
		{name: "the new value", request: get("/v0/entity?id=a"), status: 200, body: "two"},
		{name: "a value may be empty", request: put("a", ""), status: 201},
		{name: "an empty value is a value", request: get("/v0/entity?id=a"), status: 200, body: "", header: "Content-Length: 0"},
		{name: "PUT without a length has an empty value", request: "PUT /v0/entity?id=a" + host + "\n", status: 201},
		{name: "DELETE", request: "DELETE /v0/entity?id=a" + host + "\n", status: 202, header: "Content-Length: 0"},
		{name: "DELETE of an absent key", request: "DELETE /v0/entity?id=a" + host + "\n", status: 202},
		{name: "it is gone", request: get("/v0/entity?id=a"), status: 404},
		{name: "the largest value", request: put("big", big), status: 201},
		{name: "comes back", request: get("/v0/entity?id=big"), status: 200, body: big},
		{name: "DELETE big", request: "DELETE /v0/entity?id=big" + host + "\n", status: 202},
		{name: "the longest key", request: put(long[1:], "long"), status: 201},
		{name: "the longest key, every byte escaped, beside another", request: get("/v0/entity?x=" + strings.Repeat("%78", 100) + "&id=" + strings.Repeat("%6b", 100)), status: 200, body: "long"},
		{name: "DELETE long", request: "DELETE /v0/entity?id=" + long[1:] + host + "\n", status: 202},
		{name: "a key is any bytes", request: put("%00%ff+%2B%26%0a", "bytes"), status: 201},
		{name: "escapes have two cases, and the parameter's name may have them", request: get("/v0/entity?%69d=%00%FF%20%2b%26%0A"), status: 200, body: "bytes"},
		{name: "DELETE bytes", request: "DELETE /v0/entity?id=%00%ff+%2B%26%0a" + host + "\n", status: 202},
		{name: "unknown parameters are ignored", request: get("/v0/entity?foo=1&foo=2&id=a&&bar"), status: 404},
		{name: "a target in absolute form", request: get("http://example.org/v0/entity?id=a"), status: 404},
		{name: "empty lines before a request", raw: "\r\n\r\nGET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n", status: 404},
		{name: "a chunked value", request: "PUT /v0/entity?id=c" + host + "Transfer-Encoding: chunked\n\n4;x=y\r\nchun\r\n3\r\nked\r\n0\r\nX-Sum: 7\r\n\r\n", status: 201},
		{name: "is put together", request: get("/v0/entity?id=c"), status: 200, body: "chunked"},
		{name: "DELETE c", request: "DELETE /v0/entity?id=c" + host + "\n", status: 202},
		{name: "the body of a GET is dropped", request: "GET /v0/entity?id=a" + host + "Content-Length: 5\n\nhello", status: 404},
		{name: "so is a chunked one", request: "GET /v0/entity?id=a" + host + "Transfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n", status: 404},
		{name: "so is a large one of DELETE", request: "DELETE /v0/entity?id=a" + host + "Content-Length: 65536\n\n" + big, status: 202},
		{name: "wishes", request: "GET /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 3600000\nspillway-priority: 7\nSPILLWAY-CLIENT: me\nSpillway-Consistency: quorum\n\n", status: 404},

		{name: "a Priority that does not fit is ignored", request: "GET /v0/entity?id=a" + host + "Priority: u=8, \"\nX-Request-Start: never\n\n", status: 404},

		// Ranges.
		{name: "PUT 1", request: put("r1", "one"), status: 201},
		{name: "PUT 2", request: put("r2", ""), status: 201},
		{name: "PUT 3", request: put("r3", "th\nree"), status: 201},
		{name: "a range without an end", request: get("/v0/entities?start=r1"), status: 200, body: "r1\noner2\nr3\nth\nree", header: "Content-Type: application/octet-stream"},
		{name: "the start is included, the end is not", request: get("/v0/entities?start=r1&end=r3"), status: 200, body: "r1\noner2\n"},
		{name: "a limit", request: get("/v0/entities?start=r1&limit=1"), status: 200, body: "r1\none"},
		{name: "a limit beyond any number", request: get("/v0/entities?start=r3&limit=99999999999999999999999"), status: 200, body: "r3\nth\nree"},
		{name: "a start at the end", request: get("/v0/entities?start=r1&end=r1"), status: 200},
		{name: "a start past the end", request: get("/v0/entities?start=r2&end=r1"), status: 200},
		{name: "nothing there", request: get("/v0/entities?start=zzz"), status: 200},
		{name: "lines of JSON", request: "GET /v0/entities?start=r1&end=r3" + host + "Accept: text/plain, Application/X-NDJSON;q=0.5\n\n", status: 200,
			body: `{"key":"cjE=","value":"b25l"}` + "\n" + `{"key":"cjI=","value":""}` + "\n", header: "Content-Type: application/x-ndjson"},
		{name: "unless they are not acceptable", request: "GET /v0/entities?start=r2&end=r3" + host + "Accept: application/x-ndjson;q=0.00, */*\n\n", status: 200, body: "r2\n"},
		{name: "a second header of that name counts", request: "GET /v0/entities?start=r2&end=r3" + host + "Accept: text/plain\nAccept: application/x-ndjson\n\n", status: 200,
			body: `{"key":"cjI=","value":""}` + "\n"},
		{name: "a range to HTTP/1.0 ends with the connection", request: "GET /v0/entities?start=r1&end=r3 HTTP/1.0\nConnection: keep-alive\n\n", status: 200, body: "r1\noner2\n", closes: true},
		{name: "lines of JSON to HTTP/1.0", request: "GET /v0/entities?start=r2&end=r3 HTTP/1.0\nAccept: application/x-ndjson\n\n", status: 200, body: `{"key":"cjI=","value":""}` + "\n", closes: true},

		// Conditions.
		{name: "PUT tells the validator", request: put("e", "one"), status: 201, header: `ETag: "` + tagOf("one") + `"`},
		{name: "GET tells it", request: get("/v0/entity?id=e"), status: 200, body: "one", header: `ETag: "` + tagOf("one") + `"`},
		{name: "HEAD tells it", request: "HEAD /v0/entity?id=e" + host + "\n", status: 200, header: `ETag: "` + tagOf("one") + `"`},
		{name: "what is known already", request: with("GET", "/v0/entity?id=e", `If-None-Match: "x", W/"`+tagOf("one")+"\"\n", ""), status: 304, header: `ETag: "` + tagOf("one") + `"`},
		{name: "HEAD of what is known already", request: with("HEAD", "/v0/entity?id=e", "If-None-Match: *\n", ""), status: 304},
		{name: "what is not known", request: with("GET", "/v0/entity?id=e", `If-None-Match: "`+tagOf("two")+"\"\n", ""), status: 200, body: "one"},
		{name: "an absent key is no match", request: with("GET", "/v0/entity?id=none", "If-None-Match: *\n", ""), status: 404},
		{name: "GET of another value than wanted", request: with("GET", "/v0/entity?id=e", `If-Match: "`+tagOf("two")+"\"\n", ""), status: 412, detail: "validator"},
		{name: "GET of the value that is wanted", request: with("GET", "/v0/entity?id=e", `If-Match: "`+tagOf("one")+"\"\n", ""), status: 200, body: "one"},
		{name: "PUT if it is this one", request: with("PUT", "/v0/entity?id=e", `If-Match: "x" , "`+tagOf("one")+"\"\n", "two"), status: 201, header: `ETag: "` + tagOf("two") + `"`},
		{name: "PUT if it still is", request: with("PUT", "/v0/entity?id=e", `If-Match: "`+tagOf("one")+"\"\n", "three"), status: 412, header: `ETag: "` + tagOf("two") + `"`, detail: "validator of ETag"},
		{name: "a weak validator matches nothing", request: with("PUT", "/v0/entity?id=e", `If-Match: W/"`+tagOf("two")+"\"\n", "three"), status: 412},
		{name: "PUT if there is none", request: with("PUT", "/v0/entity?id=e", "If-None-Match: *\n", "three"), status: 412, header: `ETag: "` + tagOf("two") + `"`},
		{name: "nothing has changed", request: get("/v0/entity?id=e"), status: 200, body: "two"},
		{name: "PUT if there is any", request: with("PUT", "/v0/entity?id=e", "If-Match: *\n", "three"), status: 201},
		{name: "DELETE if it is another", request: with("DELETE", "/v0/entity?id=e", `If-Match: "`+tagOf("two")+"\"\n", ""), status: 412, header: `ETag: "` + tagOf("three") + `"`},
		{name: "DELETE if there is none", request: with("DELETE", "/v0/entity?id=e", "If-None-Match: *\n", ""), status: 412},
		{name: "DELETE if it is this one", request: with("DELETE", "/v0/entity?id=e", `If-Match: "`+tagOf("three")+"\"\n", ""), status: 202},
		{name: "DELETE of an absent key that must be there", request: with("DELETE", "/v0/entity?id=e", "If-Match: *\n", ""), status: 412, detail: "no value"},
		{name: "PUT of an absent key that must be there", request: with("PUT", "/v0/entity?id=e", "If-Match: *\n", "x"), status: 412, detail: "no value"},
		{name: "PUT of an absent key that must be so", request: with("PUT", "/v0/entity?id=e", "If-None-Match: *\n", "x"), status: 201},
		{name: "conditions that contradict each other", request: with("PUT", "/v0/entity?id=e", "If-None-Match: *\nIf-Match: *\n", "x"), status: 400, detail: "contradict"},
		{name: "a write unless it is this one", request: with("PUT", "/v0/entity?id=e", "If-None-Match: \"x\"\n", "x"), status: 400, detail: "If-None-Match"},
		{name: "a validator without quotes", request: with("PUT", "/v0/entity?id=e", "If-Match: "+tagOf("x")+"\n", "x"), status: 400, detail: "If-Match"},
		{name: "a validator that does not end", request: with("GET", "/v0/entity?id=e", "If-None-Match: \"x\n", ""), status: 400, detail: "If-None-Match"},
		{name: "two validators without a comma", request: with("GET", "/v0/entity?id=e", "If-None-Match: \"x\" \"y\"\n", ""), status: 400, detail: "If-None-Match"},
		{name: "a condition twice", request: with("PUT", "/v0/entity?id=e", "If-Match: *\nIf-Match: *\n", ""), status: 400, detail: "more than once", closes: true},

		// Expiry.
		{name: "PUT for a time", request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 1000\n", "x"), status: 201},
		{name: "GET tells how long", request: get("/v0/entity?id=e"), status: 200, body: "x", header: "Spillway-Ttl: 1000"},
		{name: "HEAD tells how long", request: "HEAD /v0/entity?id=e" + host + "\n", status: 200, header: "Spillway-Ttl: 1000"},
		{name: "the longest time", request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 630720000\n", "x"), status: 201},
		{name: "a time of 0", request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 0\n", "x"), status: 400, detail: "Spillway-Ttl"},
		{name: "too long a time", request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 630720001\n", "x"), status: 400, detail: "from 1 to 630720000"},
		{name: "a time that is no number", request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 1s\n", "x"), status: 400, detail: "Spillway-Ttl"},
		{name: "DELETE e", request: "DELETE /v0/entity?id=e" + host + "\n", status: 202},

		// Batches.
		{name: "a batch", request: batch(`{"op":"put","key":"YjE=","value":"b25l"}`, `{"op":"get","key":"YjE="}`, `{"op":"put","key":"YjE=","value":"dHdv","ttl":60,"if_match":"`+tagOf("one")+`"}`,
			`{"op":"get","key":"YjE="}`, `{"op":"delete","key":"YjE="}`, `{"op":"get","key":"YjE="}`, ` { "value" : "\u0064HdvLy\/v" , "key":"YjI=", "if_none_match":"*", "op":"put" } `+"\r", ""), status: 200, header: "Content-Type: application/x-ndjson",
			body: `{"status":201,"etag":"` + tagOf("one") + `"}` + "\n" + `{"status":200,"value":"b25l","etag":"` + tagOf("one") + `"}` + "\n" + `{"status":201,"etag":"` + tagOf("two") + `"}` + "\n" +
				`{"status":200,"value":"dHdv","etag":"` + tagOf("two") + `","ttl":60}` + "\n" + `{"status":202}` + "\n" + `{"status":404}` + "\n" + `{"status":201,"etag":"` + tagOf("two//\xef") + `"}` + "\n"},
		{name: "its writes are there", request: get("/v0/entity?id=b2"), status: 200, body: "two//\xef"},
		{name: "and its deletes", request: get("/v0/entity?id=b1"), status: 404},
		{name: "a batch that only reads", request: batch(`{"op":"get","key":"YjI="}`, `{"op":"get","key":"YjE="}`), status: 200,
			body: `{"status":200,"value":"dHdvLy/v","etag":"` + tagOf("two//\xef") + `"}` + "\n" + `{"status":404}` + "\n"},
		{name: "an empty batch", request: with("POST", "/v0/entities", "Content-Type: application/x-ndjson\n", ""), status: 200, header: "Content-Length: 0"},
		{name: "a batch some of whose conditions do not hold", request: batch(`{"op":"put","key":"YjE=","value":""}`, `{"op":"delete","key":"YjI=","if_match":"x"}`, `{"op":"put","key":"YjM=","value":"","if_match":"*"}`), status: 412,
			header: "Content-Type: application/problem+json", body: `{"title":"Precondition Failed","status":412,"detail":"the conditions of 2 operations do not hold, and nothing was written","operations":[{"index":1,"status":412,"etag":"` + tagOf("two//\xef") + `"},{"index":2,"status":412}]}`},
		{name: "has had no effect", request: get("/v0/entity?id=b1"), status: 404},
		{name: "PUT big2", request: put("big2", big), status: 201, header: `ETag: "` + tagOf(big) + `"`},
		{name: "GET big2", request: get("/v0/entity?id=big2"), status: 200, body: big, header: `ETag: "` + tagOf(big) + `"`},
		{name: "a batch whose answer is too large", request: batch(append([]string{`{"op":"put","key":"YjE=","value":""}`}, slices.Repeat([]string{`{"op":"get","key":"YmlnMg=="}`}, 4)...)...), status: 413, detail: "nothing was written"},
		{name: "has had no effect either", request: get("/v0/entity?id=b1"), status: 404},
		{name: "a batch that only reads whose answer is too large", request: batch(slices.Repeat([]string{`{"op":"get","key":"YmlnMg=="}`}, 4)...), status: 413},
		{name: "DELETE big2", request: "DELETE /v0/entity?id=big2" + host + "\n", status: 202},
		{name: "DELETE b", request: batch(`{"op":"delete","key":"YjI="}`, `{"op":"delete","key":"YjE="}`), status: 200, body: `{"status":202}` + "\n" + `{"status":202}` + "\n"},
		{name: "a batch of another type", request: with("POST", "/v0/entities", "Content-Type: text/plain\n", `{"op":"get","key":"YjE="}`), status: 415, detail: "application/x-ndjson"},
		{name: "too many operations", request: batch(slices.Repeat([]string{`{"op":"get","key":"YjE="}`}, 1001)...), status: 400, detail: "1001 lines, allowed: at most 1000"},
		{name: "too large a batch", request: batch(strings.Repeat(" ", 256<<10), ""), status: 413, detail: "the batch has 262145 bytes", closes: true},
		{name: "a line that is no object", request: batch(`{"op":"put","key":"YjE=","value":""}`, `[1]`), status: 400, detail: "line 2 of the batch: it is no JSON object; nothing was written"},
		{name: "an empty line", request: batch(`{"op":"put","key":"YjE=","value":""}`, ``, `{"op":"get","key":"YjE="}`), status: 400, detail: "line 2 "},
		{name: "a line that does not end", request: batch(`{"op":"get","key":"YjE="`), status: 400, detail: "line 1 of the batch: it ends"},
		{name: "a string that does not end", request: batch(`{"op":"get","key":"YjE=`), status: 400, detail: "does not end"},
		{name: "more behind an object", request: batch(`{"op":"get","key":"YjE="}{}`), status: 400, detail: "behind the object"},
		{name: "a broken escape in a batch", request: batch(`{"op":"get","key":"\x"}`), status: 400, detail: "broken escape"},
		{name: "half of a character", request: batch(`{"op":"get","key":"\ud800"}`), status: 400, detail: "broken escape"},
		{name: "a field that is not known", request: batch(`{"op":"get","key":"YjE=","kee":1}`), status: 400, detail: "kee"},
		{name: "a field twice", request: batch(`{"op":"get","key":"YjE=","key":"YjE="}`), status: 400, detail: "more than once"},
		{name: "a field that means nothing", request: batch(`{"op":"get","key":"YjE=","value":""}`), status: 400, detail: "means nothing"},
		{name: "no operation", request: batch(`{"key":"YjE="}`), status: 400, detail: "allowed: put, delete and get"},
		{name: "no key", request: batch(`{"op":"get"}`), status: 400, detail: "key is missing"},
		{name: "an empty key", request: batch(`{"op":"get","key":""}`), status: 400, detail: "key is empty"},
		{name: "too long a key in a batch", request: batch(`{"op":"get","key":"` + base64.StdEncoding.EncodeToString([]byte(long)) + `"}`), status: 400, detail: "101 bytes"},
		{name: "no value", request: batch(`{"op":"put","key":"YjE="}`), status: 400, detail: "value is missing"},
		{name: "too long a value in a batch", request: batch(`{"op":"put","key":"YjE=","value":"` + base64.StdEncoding.EncodeToString([]byte(big+"v")) + `"}`), status: 413, detail: "65537 bytes"},
		{name: "what is no base64", request: batch(`{"op":"get","key":"YjE"}`), status: 400, detail: "base64"},
		{name: "a ttl of 0", request: batch(`{"op":"put","key":"YjE=","value":"","ttl":0}`), status: 400, detail: `ttl is "0", allowed`},
		{name: "a ttl beyond the bound", request: batch(`{"op":"put","key":"YjE=","value":"","ttl":630720001}`), status: 400, detail: "630720001"},
		{name: "a ttl that is no whole number", request: batch(`{"op":"put","key":"YjE=","value":"","ttl":1.5}`), status: 400, detail: "1.5"},
		{name: "conditions of an operation that contradict each other", request: batch(`{"op":"put","key":"YjE=","value":"","if_match":"*","if_none_match":"*"}`), status: 400, detail: "contradict"},
		{name: "an if_none_match that is no star", request: batch(`{"op":"put","key":"YjE=","value":"","if_none_match":"x"}`), status: 400, detail: "if_none_match"},
		{name: "nothing of these was written", request: get("/v0/entity?id=b1"), status: 404},
		{name: "PUT on all entities", request: with("PUT", "/v0/entities?start=a", "", "x"), status: 405, header: "Allow: GET, POST"},

		// Lists.
		{name: "PUT outside of the prefix", request: put("q", "other"), status: 201},
		{name: "PUT behind the prefix", request: put("s", "other"), status: 201},
		{name: "PUT at the end of all", request: put("%ff%ff", "last"), status: 201},
		{name: "a prefix", request: get("/v0/entities?prefix=r"), status: 200, body: "r1\noner2\nr3\nth\nree", header: "Content-Type: application/octet-stream"},
		{name: "a key is a prefix of itself", request: get("/v0/entities?prefix=r2"), status: 200, body: "r2\n"},
		{name: "a prefix that nothing can follow", request: get("/v0/entities?prefix=%ff"), status: 200, body: "\xff\xff\nlast"},
		{name: "a prefix of no key", request: get("/v0/entities?prefix=r4"), status: 200},
		{name: "only keys after one", request: get("/v0/entities?prefix=r&after=r1"), status: 200, body: "r2\nr3\nth\nree"},
		{name: "which need not be there", request: get("/v0/entities?start=r1&end=r3&after=r1%00"), status: 200, body: "r2\n"},
		{name: "the same in base64url", request: get("/v0/entities?prefix=r&after64=cjE"), status: 200, body: "r2\nr3\nth\nree"},
		{name: "padded", request: get("/v0/entities?prefix=r&after64=cjE%3d"), status: 200, body: "r2\nr3\nth\nree"},
		{name: "with the digits that base64 has otherwise", request: get("/v0/entities?start=q&after64=__8&order=desc&limit=1"), status: 200, body: "s\nother"},
		{name: "after a key in front of the list is all of it", request: get("/v0/entities?prefix=r&after=a&keys=only"), status: 200, body: "r1\nr2\nr3\n"},
		{name: "after a key behind the list is none of it", request: get("/v0/entities?prefix=r&after=s"), status: 200},
		{name: "downwards", request: get("/v0/entities?start=r1&end=r3&order=desc"), status: 200, body: "r2\nr1\none"},
		{name: "a prefix downwards", request: get("/v0/entities?prefix=r&order=desc&limit=2"), status: 200, body: "r3\nth\nreer2\n"},
		{name: "after goes downwards too", request: get("/v0/entities?prefix=r&order=desc&after=r3"), status: 200, body: "r2\nr1\none"},
		{name: "downwards after a key above the list is all of it", request: get("/v0/entities?prefix=r&order=desc&after=z&keys=only"), status: 200, body: "r3\nr2\nr1\n"},
		{name: "downwards after a key below the list is none of it", request: get("/v0/entities?prefix=r&order=desc&after=q"), status: 200},
		{name: "upwards is said", request: get("/v0/entities?prefix=r&order=asc&keys=only&limit=1"), status: 200, body: "r1\n"},
		{name: "keys in lines of JSON", request: "GET /v0/entities?prefix=r&keys=only" + host + "Accept: application/x-ndjson\n\n", status: 200,
			body: `{"key":"cjE="}` + "\n" + `{"key":"cjI="}` + "\n" + `{"key":"cjM="}` + "\n"},
		{name: "the last line of a page tells how to go on", request: "GET /v0/entities?prefix=r&keys=only&limit=2" + host + "Accept: application/x-ndjson\n\n", status: 200,
			body: `{"key":"cjE="}` + "\n" + `{"key":"cjI="}` + "\n" + `{"next":"cjI"}` + "\n"},
		{name: "the next page is the last", request: "GET /v0/entities?prefix=r&keys=only&limit=2&after64=cjI" + host + "Accept: application/x-ndjson\n\n", status: 200,
			body: `{"key":"cjM="}` + "\n"},
		{name: "a page that ends with the list is the last", request: "GET /v0/entities?start=r3&end=s&limit=1" + host + "Accept: application/x-ndjson\n\n", status: 200,
			body: `{"key":"cjM=","value":"dGgKcmVl"}` + "\n"},
		{name: "pages downwards", request: "GET /v0/entities?prefix=r&keys=only&limit=1&order=desc" + host + "Accept: application/x-ndjson\n\n", status: 200,
			body: `{"key":"cjM="}` + "\n" + `{"next":"cjM"}` + "\n"},
		{name: "next is a line of JSON only", request: get("/v0/entities?prefix=r&keys=only&limit=2"), status: 200, body: "r1\nr2\n"},
		{name: "a list to HTTP/1.0", request: "GET /v0/entities?prefix=r&keys=only&limit=1 HTTP/1.0\nAccept: application/x-ndjson\n\n", status: 200,
			body: `{"key":"cjE="}` + "\n" + `{"next":"cjE"}` + "\n", closes: true},
		{name: "DELETE outside", request: "DELETE /v0/entity?id=q" + host + "\n", status: 202},
		{name: "DELETE behind", request: "DELETE /v0/entity?id=s" + host + "\n", status: 202},
		{name: "DELETE last", request: "DELETE /v0/entity?id=%ff%ff" + host + "\n", status: 202},

		// Connections.
		{name: "close is obeyed", request: "GET /v0/entity?id=r1" + host + "Connection: Foo, Close\n\n", status: 200, body: "one", closes: true},
		{name: "HTTP/1.0 closes", request: "GET /v0/entity?id=r1 HTTP/1.0\n\n", status: 200, body: "one", closes: true},
		{name: "HTTP/1.0 may go on", request: "GET /v0/entity?id=r1 HTTP/1.0\nConnection: Keep-Alive\n\n", status: 200, body: "one", header: "Connection: keep-alive"},

		// Bad queries: the connection goes on.
		{name: "no query", request: get("/v0/entity"), status: 400, detail: "id is missing"},
		{name: "an empty key", request: get("/v0/entity?id="), status: 400, detail: "id is empty"},
		{name: "a key without an equals sign", request: get("/v0/entity?id"), status: 400, detail: "id is empty"},
		{name: "two keys", request: get("/v0/entity?id=a&id=b"), status: 400, detail: "more than once"},
		{name: "two keys, one empty", request: get("/v0/entity?id&id=b"), status: 400, detail: "more than once"},
		{name: "a broken escape", request: get("/v0/entity?id=a%g1b"), status: 400, detail: "%g1"},
		{name: "half an escape", request: get("/v0/entity?id=a%4"), status: 400, detail: "%4"},
		{name: "a broken escape in a parameter that is ignored", request: get("/v0/entity?id=a&x=%"), status: 400, detail: "%"},
		{name: "a bad PUT whose body is there does not end the connection", request: put("", "value"), status: 400},
		{name: "no start", request: get("/v0/entities?end=a"), status: 400, detail: "start is missing"},
		{name: "an empty start", request: get("/v0/entities?start="), status: 400, detail: "start is empty"},
		{name: "two starts", request: get("/v0/entities?start=a&start=b"), status: 400, detail: "more than once"},
		{name: "an empty end", request: get("/v0/entities?start=a&end="), status: 400, detail: "end is empty"},
		{name: "two ends", request: get("/v0/entities?start=a&end=b&end=b"), status: 400, detail: "more than once"},
		{name: "limit 0", request: get("/v0/entities?start=a&limit=0"), status: 400, detail: `limit is "0"`},
		{name: "a negative limit", request: get("/v0/entities?start=a&limit=-1"), status: 400, detail: "limit"},
		{name: "an empty limit", request: get("/v0/entities?start=a&limit="), status: 400, detail: "limit"},
		{name: "no number", request: get("/v0/entities?start=a&limit=many"), status: 400, detail: "many"},
		{name: "two limits", request: get("/v0/entities?start=a&limit=1&limit=1"), status: 400, detail: "more than once"},
		{name: "start and prefix", request: get("/v0/entities?start=a&prefix=a"), status: 400, detail: "start and prefix are both given"},
		{name: "end and prefix", request: get("/v0/entities?prefix=a&end=b"), status: 400, detail: "end and prefix are both given"},
		{name: "an empty prefix", request: get("/v0/entities?prefix="), status: 400, detail: "prefix is empty"},
		{name: "two prefixes", request: get("/v0/entities?prefix=a&prefix=b"), status: 400, detail: "more than once"},
		{name: "after alone", request: get("/v0/entities?after=a"), status: 400, detail: "start is missing"},
		{name: "an empty after", request: get("/v0/entities?prefix=a&after="), status: 400, detail: "after is empty"},
		{name: "an empty after64", request: get("/v0/entities?prefix=a&after64="), status: 400, detail: "after64 is empty"},
		{name: "both of them", request: get("/v0/entities?prefix=a&after=b&after64=Yg"), status: 400, detail: "after and after64 are both given"},
		{name: "another base64", request: get("/v0/entities?prefix=a&after64=%2b%2b"), status: 400, detail: `after64 is "++"`},
		{name: "a cut base64", request: get("/v0/entities?prefix=a&after64=YWJjY"), status: 400, detail: "YWJjY"},
		{name: "a second spelling of a key", request: get("/v0/entities?prefix=a&after64=cjF"), status: 400, detail: "cjF"},
		{name: "a line feed in base64", request: get("/v0/entities?prefix=a&after64=cj%0aE"), status: 400, detail: "after64"},
		{name: "other keys", request: get("/v0/entities?prefix=a&keys=all"), status: 400, detail: `keys is "all"`},
		{name: "no keys", request: get("/v0/entities?prefix=a&keys="), status: 400, detail: `keys is ""`},
		{name: "another order", request: get("/v0/entities?prefix=a&order=DESC"), status: 400, detail: `order is "DESC"`},
		{name: "no order", request: get("/v0/entities?prefix=a&order="), status: 400, detail: `order is ""`},
		{name: "another path", request: get("/v0/entitys?id=a"), status: 400, detail: "/v0/entitys"},
		{name: "the root", request: get("/"), status: 400},
		{name: "a slash too many", request: get("/v0/entity/?id=a"), status: 400},
		{name: "an escape in the path", request: get("/v0/%65ntity?id=a"), status: 400},
		{name: "no path", request: get("http://example.org?id=a"), status: 400},
		{name: "an asterisk", request: "OPTIONS *" + host + "\n", status: 400},
		{name: "another path with another method", request: "POST /admin" + host + "Content-Length: 2\n\nhi", status: 400},
		{name: "another method", request: "POST /v0/entity?id=a" + host + "Content-Length: 2\n\nhi", status: 405, header: "Allow: GET, HEAD, PUT, DELETE"},
		{name: "a method nobody knows", request: "BREW /v0/entity?id=a" + host + "\n", status: 405, detail: "BREW"},
		{name: "methods have a case", request: "get /v0/entity?id=a" + host + "\n", status: 405},
		{name: "another method for ranges", request: "HEAD /v0/entities?start=a" + host + "\n", status: 405, header: "Allow: GET, POST"},
		{name: "a key that is too long", request: get("/v0/entity?id=" + long), status: 414, detail: "101"},
		{name: "a start that is too long", request: get("/v0/entities?start=" + long), status: 414},
		{name: "an end that is too long", request: get("/v0/entities?start=a&end=" + long), status: 414},
		{name: "a prefix that is too long", request: get("/v0/entities?prefix=" + long), status: 414, detail: "prefix has 101"},
		{name: "an after that is too long", request: get("/v0/entities?prefix=a&after=" + long), status: 414, detail: "after has 101"},
		{name: "an after64 that is too long", request: get("/v0/entities?prefix=a&after64=" + strings.Repeat("a2", 76)), status: 414, detail: "after64 has 114"},

		// Bad headers.
		{name: "timeout 0", request: "GET /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 0\n\n", status: 400, detail: "Spillway-Timeout-Ms"},
		{name: "timeout too long", request: "GET /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 3600001\n\n", status: 400, detail: "3600001"},
		{name: "timeout with a unit", request: "GET /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 5ms\n\n", status: 400, detail: "5ms"},
		{name: "timeout empty", request: "GET /v0/entity?id=a" + host + "Spillway-Timeout-Ms:\n\n", status: 400, detail: "Spillway-Timeout-Ms"},
		{name: "priority 8", request: "GET /v0/entity?id=a" + host + "Spillway-Priority: 8\n\n", status: 400, detail: "Spillway-Priority"},
		{name: "priority -1", request: "GET /v0/entity?id=a" + host + "Spillway-Priority: -1\n\n", status: 400, detail: "Spillway-Priority"},
		{name: "a client's name too long", request: "GET /v0/entity?id=a" + host + "Spillway-Client: " + strings.Repeat("c", 129) + "\n\n", status: 400, detail: "Spillway-Client"},
		{name: "a client's name just right", request: "GET /v0/entity?id=a" + host + "Spillway-Client: " + strings.Repeat("c", 128) + "\n\n", status: 404},
		{name: "an unknown consistency", request: "GET /v0/entity?id=a" + host + "Spillway-Consistency: most\n\n", status: 400, detail: "Spillway-Consistency"},
		{name: "a wish twice", request: "GET /v0/entity?id=a" + host + "Spillway-Priority: 1\nSpillway-Priority: 1\n\n", status: 400, detail: "Spillway-Priority", closes: true},
		{name: "another expectation", request: "PUT /v0/entity?id=a" + host + "Expect: a miracle\n\n", status: 417, detail: "miracle"},

		// What is too large.
		{name: "a value that is too large", request: "PUT /v0/entity?id=a" + host + "Content-Length: 65537\n\n", status: 413, detail: "65537", closes: true},
		{name: "a body of a GET that is too large", request: "GET /v0/entity?id=a" + host + "Content-Length: 65537\n\n", status: 413, closes: true},
		{name: "chunks that are too large", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding: chunked\n\n10001\r\n", status: 413, closes: true},
		{name: "413 instead of 100", request: "PUT /v0/entity?id=a" + host + "Content-Length: 65537\nExpect: 100-continue\n\n", status: 413, closes: true},
		{name: "400 instead of 100", request: "PUT /v0/entity?id=" + host + "Content-Length: 5\nExpect: 100-continue\n\n", status: 400, closes: true},
		{name: "a target that is too long", request: get("/v0/entity?id=" + huge), status: 414, closes: true},
		{name: "headers that are too long", request: "GET /v0/entity?id=a" + host + "X: " + huge + "\n\n", status: 431, closes: true},
		{name: "headers that are too many", request: "GET /v0/entity?id=a" + host + strings.Repeat("X: y\n", 2000) + "\n", status: 431, closes: true},
		{name: "a head that just fits", request: "GET /v0/entity?id=a" + host + "X: " + strings.Repeat("x", 8000) + "\n\n", status: 404},
		{name: "trailers that are too long", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding: chunked\n\n0\r\nX: " + huge + "\r\n\r\n", status: 431, closes: true},

		// What could be read in two ways.
		{name: "length and chunks", request: "PUT /v0/entity?id=a" + host + "Content-Length: 5\nTransfer-Encoding: chunked\n\n0\r\n\r\n", status: 400, closes: true},
		{name: "chunks and length", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding: chunked\nContent-Length: 5\n\n0\r\n\r\n", status: 400, closes: true},
		{name: "two lengths", request: "PUT /v0/entity?id=a" + host + "Content-Length: 5\nContent-Length: 5\n\nhello", status: 400, closes: true},
		{name: "a list of lengths", request: "PUT /v0/entity?id=a" + host + "Content-Length: 5, 5\n\nhello", status: 400, closes: true},
		{name: "a signed length", request: "PUT /v0/entity?id=a" + host + "Content-Length: +5\n\nhello", status: 400, closes: true},
		{name: "an empty length", request: "PUT /v0/entity?id=a" + host + "Content-Length:\n\n", status: 400, closes: true},
		{name: "a length beyond any number", request: "PUT /v0/entity?id=a" + host + "Content-Length: 99999999999999999999\n\n", status: 400, closes: true},
		{name: "two codings", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding: gzip, chunked\n\n0\r\n\r\n", status: 400, closes: true},
		{name: "identity", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding: identity\nContent-Length: 0\n\n", status: 400, closes: true},
		{name: "an empty coding", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding:\n\n", status: 400, closes: true},
		{name: "chunks in HTTP/1.0", request: "PUT /v0/entity?id=a HTTP/1.0\nTransfer-Encoding: chunked\n\n0\r\n\r\n", status: 400, closes: true},
		{name: "a folded line", request: "GET /v0/entity?id=a" + host + "X: y\n z\n\n", status: 400, closes: true},
		{name: "a folded length", request: "PUT /v0/entity?id=a" + host + "X: y\n Content-Length: 5\n\nhello", status: 400, closes: true},
		{name: "a space before the colon", request: "PUT /v0/entity?id=a" + host + "Content-Length : 5\n\nhello", status: 400, closes: true},
		{name: "a space in a name", request: "PUT /v0/entity?id=a" + host + "Content Length: 5\n\nhello", status: 400, closes: true},
		{name: "a line without a colon", request: "GET /v0/entity?id=a" + host + "nonsense\n\n", status: 400, closes: true},
		{name: "a line without a name", request: "GET /v0/entity?id=a" + host + ": nonsense\n\n", status: 400, closes: true},
		{name: "a control byte in a value", request: "GET /v0/entity?id=a" + host + "X: a\x00b\n\n", status: 400, closes: true},
		{name: "lines that end in LF", raw: "GET /v0/entity?id=a HTTP/1.1\nHost: x\n\n", status: 400, closes: true},
		{name: "one line that ends in LF", raw: "GET /v0/entity?id=a HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", status: 400, closes: true},
		{name: "no host", request: "GET /v0/entity?id=a HTTP/1.1\n\n", status: 400, closes: true},
		{name: "two hosts", request: "GET /v0/entity?id=a" + host + "Host: y\n\n", status: 400, closes: true},
		{name: "a chunk without a length", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding: chunked\n\nhello\r\n", status: 400, closes: true},
		{name: "a chunk that is longer than it says", request: "PUT /v0/entity?id=a" + host + "Transfer-Encoding: chunked\n\n1\r\nhello\r\n0\r\n\r\n", status: 400, closes: true},
		{name: "HTTP/2.0", request: "GET /v0/entity?id=a HTTP/2.0\nHost: x\n\n", status: 505, closes: true},
		{name: "the preface of HTTP/2", raw: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 505, closes: true},
		{name: "HTTP/0.9", raw: "GET /v0/entity?id=a\r\n\r\n", status: 400, closes: true},
		{name: "no HTTP", raw: "\x16\x03\x01\x02\x00\r\n\r\n", status: 400, closes: true},
		{name: "a space too many", request: "GET  /v0/entity?id=a" + host + "\n", status: 400, closes: true},
	}
}

// Every line of the contract about single requests holds under every strategy,
// on one connection as long as it lasts.
func TestContract(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		c := s.dial()
		for _, r := range rows() {
			what := r.name
			text := r.raw
			if text == "" {
				head, body, _ := strings.Cut(r.request, "\n\n")
				text = strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
			}
			c.sendRaw(text)
			method, _, _ := strings.Cut(r.request, " ")
			a := c.read(method)
			require.Equal(t, r.status, a.status, what)
			if r.body != "" || a.status == 200 {
				require.Equal(t, r.body, a.body, what)
			}
			if r.header != "" {
				name, value, _ := strings.Cut(r.header, ": ")
				require.Equal(t, value, a.header.Get(name), what)
			}
			require.Contains(t, a.body, strings.ReplaceAll(r.detail, `"`, `\"`), what)
			require.NoError(t, a.broken, what)
			if r.closes {
				_ = c.conn.CloseWrite()
				c.requireClosed()
				_ = c.conn.Close()
				c = s.dial()
			}
			require.Equal(t, r.closes, a.close, what)
		}
		c.requireOpen()
	})
}

// The same table, sent a byte at a time.
func TestContract_SlowClient(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	for _, key := range []string{"big", "big2"} {
		s.store.set(key, strings.Repeat("v", 64<<10)) // its PUT is left out below
	}
	for _, r := range rows() {
		text := r.raw
		if text == "" {
			head, body, _ := strings.Cut(r.request, "\n\n")
			text = strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
		}
		if len(text) > 1000 {
			continue
		}
		c := s.dial()
		for i := range len(text) {
			if _, err := c.conn.Write([]byte{text[i]}); err != nil {
				break // it was refused before its end
			}
		}
		method, _, _ := strings.Cut(r.request, " ")
		a := c.read(method)
		require.Equal(t, r.status, a.status, r.name+a.body)
		_ = c.conn.Close()
	}
}

// A token is asked for before anything else is said.
func TestToken(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.Token = secure.NewToken("secret") })
	c := s.dial()
	for _, request := range []string{
		get("/v0/entity?id=a"), get("/other"), put("a", "value"),
		"GET /v0/entity?id=a" + host + "Authorization: Bearer wrong\n\n",
	} {
		a := c.do(request)
		require.Equal(t, 401, a.status)
		require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
	}
	require.Equal(t, 404, c.do("GET /v0/entity?id=a"+host+"Authorization: Bearer secret\n\n").status)
	a := c.do("PUT /v0/entity?id=a" + host + "Content-Length: 5\nExpect: 100-continue\n\n")
	require.Equal(t, 401, a.status)
	_, ok := s.store.get("a")
	require.False(t, ok)
}
