package contracttest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/internal/etag"
)

// Host ends the first line of a request, and is its first header line.
const Host = " HTTP/1.1\nHost: x\n"

// Get is a GET of a target.
func Get(target string) string { return "GET " + target + Host + "\n" }

// Put is a PUT of a value under a key, which is escaped already.
func Put(id, value string) string {
	return fmt.Sprintf("PUT /v0/entity?id=%s%sContent-Length: %d\n\n%s", id, Host, len(value), value)
}

// with is a request with further header lines, and a body if it is not empty.
func with(method, target, lines, body string) string {
	if body != "" {
		lines += fmt.Sprintf("Content-Length: %d\n", len(body))
	}
	return method + " " + target + Host + lines + "\n" + body
}

func tagOf(value string) string {
	tag := etag.Of([]byte(value))
	return tag.String()
}

// batch is a request with those operations.
func batch(lines ...string) string {
	return with("POST", "/v0/entities", "Content-Type: application/x-ndjson\n", strings.Join(lines, "\n"))
}

// Rows is the table. Each row relies on those before it.
func Rows() []Row {
	long := strings.Repeat("k", 101)
	huge := strings.Repeat("x", 20_000)
	big := strings.Repeat("v", 64<<10)
	rows := []Row{
		// Entities, the happy way.
		{Name: "an absent key is 404 with an empty body", Request: Get("/v0/entity?id=a"), Status: 404, Header: "Content-Length: 0"},
		{Name: "PUT creates", Request: Put("a", "one"), Status: 201, Header: "Content-Length: 0"},
		{Name: "GET has the value", Request: Get("/v0/entity?id=a"), Status: 200, Body: "one", Header: "Content-Type: application/octet-stream"},
		{Name: "HEAD has the length alone", Request: "HEAD /v0/entity?id=a" + Host + "\n", Status: 200, Header: "Content-Length: 3"},
		{Name: "HEAD of an absent key", Request: "HEAD /v0/entity?id=b" + Host + "\n", Status: 404, Header: "Content-Length: 0"},
		{Name: "PUT replaces", Request: Put("a", "two"), Status: 201},
		{Name: "the new value", Request: Get("/v0/entity?id=a"), Status: 200, Body: "two"},
		{Name: "a value may be empty", Request: Put("a", ""), Status: 201},
		{Name: "an empty value is a value", Request: Get("/v0/entity?id=a"), Status: 200, Body: "", Header: "Content-Length: 0"},
		{Name: "PUT without a length has an empty value", Request: "PUT /v0/entity?id=a" + Host + "\n", Status: 201},
		{Name: "DELETE", Request: "DELETE /v0/entity?id=a" + Host + "\n", Status: 202, Header: "Content-Length: 0"},
		{Name: "DELETE of an absent key", Request: "DELETE /v0/entity?id=a" + Host + "\n", Status: 202},
		{Name: "it is gone", Request: Get("/v0/entity?id=a"), Status: 404},
		{Name: "the largest value", Request: Put("big", big), Status: 201},
		{Name: "comes back", Request: Get("/v0/entity?id=big"), Status: 200, Body: big},
		{Name: "DELETE big", Request: "DELETE /v0/entity?id=big" + Host + "\n", Status: 202},
		{Name: "the longest key", Request: Put(long[1:], "long"), Status: 201},
		{Name: "the longest key, every byte escaped, beside another", Request: Get("/v0/entity?x=" + strings.Repeat("%78", 100) + "&id=" + strings.Repeat("%6b", 100)), Status: 200, Body: "long"},
		{Name: "DELETE long", Request: "DELETE /v0/entity?id=" + long[1:] + Host + "\n", Status: 202},
		{Name: "a key is any bytes", Request: Put("%00%ff+%2B%26%0a", "bytes"), Status: 201},
		{Name: "escapes have two cases, and the parameter's name may have them", Request: Get("/v0/entity?%69d=%00%FF%20%2b%26%0A"), Status: 200, Body: "bytes"},
		{Name: "DELETE bytes", Request: "DELETE /v0/entity?id=%00%ff+%2B%26%0a" + Host + "\n", Status: 202},
		{Name: "unknown parameters are ignored", Request: Get("/v0/entity?foo=1&foo=2&id=a&&bar"), Status: 404},
		{Name: "a target in absolute form", Request: Get("http://example.org/v0/entity?id=a"), Status: 404},
		{Name: "empty lines before a request", Raw: "\r\n\r\nGET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n", Status: 404},
		{Name: "a chunked value", Request: "PUT /v0/entity?id=c" + Host + "Transfer-Encoding: chunked\n\n4;x=y\r\nchun\r\n3\r\nked\r\n0\r\nX-Sum: 7\r\n\r\n", Status: 201},
		{Name: "is put together", Request: Get("/v0/entity?id=c"), Status: 200, Body: "chunked"},
		{Name: "DELETE c", Request: "DELETE /v0/entity?id=c" + Host + "\n", Status: 202},
		{Name: "the body of a GET is dropped", Request: "GET /v0/entity?id=a" + Host + "Content-Length: 5\n\nhello", Status: 404},
		{Name: "so is a chunked one", Request: "GET /v0/entity?id=a" + Host + "Transfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n", Status: 404},
		{Name: "so is a large one of DELETE", Request: "DELETE /v0/entity?id=a" + Host + "Content-Length: 65536\n\n" + big, Status: 202},
		{Name: "wishes", Request: "GET /v0/entity?id=a" + Host + "Spillway-Timeout-Ms: 3600000\nspillway-priority: 7\nSPILLWAY-CLIENT: me\nSpillway-Consistency: quorum\n\n", Status: 404},

		{Name: "a Priority that does not fit is ignored", Request: "GET /v0/entity?id=a" + Host + "Priority: u=8, \"\nX-Request-Start: never\n\n", Status: 404},

		// Ranges.
		{Name: "PUT 1", Request: Put("r1", "one"), Status: 201},
		{Name: "PUT 2", Request: Put("r2", ""), Status: 201},
		{Name: "PUT 3", Request: Put("r3", "th\nree"), Status: 201},
		{Name: "a range without an end", Request: Get("/v0/entities?start=r1"), Status: 200, Body: "r1\noner2\nr3\nth\nree", Header: "Content-Type: application/octet-stream"},
		{Name: "the start is included, the end is not", Request: Get("/v0/entities?start=r1&end=r3"), Status: 200, Body: "r1\noner2\n"},
		{Name: "a limit", Request: Get("/v0/entities?start=r1&limit=1"), Status: 200, Body: "r1\none"},
		{Name: "a limit beyond any number", Request: Get("/v0/entities?start=r3&limit=99999999999999999999999"), Status: 200, Body: "r3\nth\nree"},
		{Name: "a start at the end", Request: Get("/v0/entities?start=r1&end=r1"), Status: 200},
		{Name: "a start past the end", Request: Get("/v0/entities?start=r2&end=r1"), Status: 200},
		{Name: "nothing there", Request: Get("/v0/entities?start=zzz"), Status: 200},
		{Name: "lines of JSON", Request: "GET /v0/entities?start=r1&end=r3" + Host + "Accept: text/plain, Application/X-NDJSON;q=0.5\n\n", Status: 200,
			Body: `{"key":"cjE=","value":"b25l"}` + "\n" + `{"key":"cjI=","value":""}` + "\n", Header: "Content-Type: application/x-ndjson"},
		{Name: "unless they are not acceptable", Request: "GET /v0/entities?start=r2&end=r3" + Host + "Accept: application/x-ndjson;q=0.00, */*\n\n", Status: 200, Body: "r2\n"},
		{Name: "a second header of that name counts", Request: "GET /v0/entities?start=r2&end=r3" + Host + "Accept: text/plain\nAccept: application/x-ndjson\n\n", Status: 200,
			Body: `{"key":"cjI=","value":""}` + "\n"},
		{Name: "a range to HTTP/1.0 ends with the connection", Request: "GET /v0/entities?start=r1&end=r3 HTTP/1.0\nConnection: keep-alive\n\n", Status: 200, Body: "r1\noner2\n", Closes: true},
		{Name: "lines of JSON to HTTP/1.0", Request: "GET /v0/entities?start=r2&end=r3 HTTP/1.0\nAccept: application/x-ndjson\n\n", Status: 200, Body: `{"key":"cjI=","value":""}` + "\n", Closes: true},

		// Conditions.
		{Name: "PUT tells the validator", Request: Put("e", "one"), Status: 201, Header: `ETag: "` + tagOf("one") + `"`},
		{Name: "GET tells it", Request: Get("/v0/entity?id=e"), Status: 200, Body: "one", Header: `ETag: "` + tagOf("one") + `"`},
		{Name: "HEAD tells it", Request: "HEAD /v0/entity?id=e" + Host + "\n", Status: 200, Header: `ETag: "` + tagOf("one") + `"`},
		{Name: "what is known already", Request: with("GET", "/v0/entity?id=e", `If-None-Match: "x", W/"`+tagOf("one")+"\"\n", ""), Status: 304, Header: `ETag: "` + tagOf("one") + `"`},
		{Name: "HEAD of what is known already", Request: with("HEAD", "/v0/entity?id=e", "If-None-Match: *\n", ""), Status: 304},
		{Name: "what is not known", Request: with("GET", "/v0/entity?id=e", `If-None-Match: "`+tagOf("two")+"\"\n", ""), Status: 200, Body: "one"},
		{Name: "an absent key is no match", Request: with("GET", "/v0/entity?id=none", "If-None-Match: *\n", ""), Status: 404},
		{Name: "GET of another value than wanted", Request: with("GET", "/v0/entity?id=e", `If-Match: "`+tagOf("two")+"\"\n", ""), Status: 412, Detail: "validator"},
		{Name: "GET of the value that is wanted", Request: with("GET", "/v0/entity?id=e", `If-Match: "`+tagOf("one")+"\"\n", ""), Status: 200, Body: "one"},
		{Name: "PUT if it is this one", Request: with("PUT", "/v0/entity?id=e", `If-Match: "x" , "`+tagOf("one")+"\"\n", "two"), Status: 201, Header: `ETag: "` + tagOf("two") + `"`},
		{Name: "PUT if it still is", Request: with("PUT", "/v0/entity?id=e", `If-Match: "`+tagOf("one")+"\"\n", "three"), Status: 412, Header: `ETag: "` + tagOf("two") + `"`, Detail: "validator of ETag"},
		{Name: "a weak validator matches nothing", Request: with("PUT", "/v0/entity?id=e", `If-Match: W/"`+tagOf("two")+"\"\n", "three"), Status: 412},
		{Name: "PUT if there is none", Request: with("PUT", "/v0/entity?id=e", "If-None-Match: *\n", "three"), Status: 412, Header: `ETag: "` + tagOf("two") + `"`},
		{Name: "nothing has changed", Request: Get("/v0/entity?id=e"), Status: 200, Body: "two"},
		{Name: "PUT if there is any", Request: with("PUT", "/v0/entity?id=e", "If-Match: *\n", "three"), Status: 201},
		{Name: "DELETE if it is another", Request: with("DELETE", "/v0/entity?id=e", `If-Match: "`+tagOf("two")+"\"\n", ""), Status: 412, Header: `ETag: "` + tagOf("three") + `"`},
		{Name: "DELETE if there is none", Request: with("DELETE", "/v0/entity?id=e", "If-None-Match: *\n", ""), Status: 412},
		{Name: "DELETE if it is this one", Request: with("DELETE", "/v0/entity?id=e", `If-Match: "`+tagOf("three")+"\"\n", ""), Status: 202},
		{Name: "DELETE of an absent key that must be there", Request: with("DELETE", "/v0/entity?id=e", "If-Match: *\n", ""), Status: 412, Detail: "no value"},
		{Name: "PUT of an absent key that must be there", Request: with("PUT", "/v0/entity?id=e", "If-Match: *\n", "x"), Status: 412, Detail: "no value"},
		{Name: "PUT of an absent key that must be so", Request: with("PUT", "/v0/entity?id=e", "If-None-Match: *\n", "x"), Status: 201},
		{Name: "conditions that contradict each other", Request: with("PUT", "/v0/entity?id=e", "If-None-Match: *\nIf-Match: *\n", "x"), Status: 400, Detail: "contradict"},
		{Name: "a write unless it is this one", Request: with("PUT", "/v0/entity?id=e", "If-None-Match: \"x\"\n", "x"), Status: 400, Detail: "If-None-Match"},
		{Name: "a validator without quotes", Request: with("PUT", "/v0/entity?id=e", "If-Match: "+tagOf("x")+"\n", "x"), Status: 400, Detail: "If-Match"},
		{Name: "a validator that does not end", Request: with("GET", "/v0/entity?id=e", "If-None-Match: \"x\n", ""), Status: 400, Detail: "If-None-Match"},
		{Name: "two validators without a comma", Request: with("GET", "/v0/entity?id=e", "If-None-Match: \"x\" \"y\"\n", ""), Status: 400, Detail: "If-None-Match"},
		{Name: "a condition twice", Request: with("PUT", "/v0/entity?id=e", "If-Match: *\nIf-Match: *\n", ""), Status: 400, Detail: "more than once", Closes: true},

		// Expiry.
		{Name: "PUT for a time", Request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 1000\n", "x"), Status: 201},
		{Name: "GET tells how long", Request: Get("/v0/entity?id=e"), Status: 200, Body: "x", Header: "Spillway-Ttl: 1000"},
		{Name: "HEAD tells how long", Request: "HEAD /v0/entity?id=e" + Host + "\n", Status: 200, Header: "Spillway-Ttl: 1000"},
		{Name: "the longest time", Local: true, Request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 630720000\n", "x"), Status: 201},
		{Name: "a time of 0", Request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 0\n", "x"), Status: 400, Detail: "Spillway-Ttl"},
		{Name: "too long a time", Request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 630720001\n", "x"), Status: 400, Detail: "from 1 to 630720000"},
		{Name: "a time that is no number", Request: with("PUT", "/v0/entity?id=e", "Spillway-Ttl: 1s\n", "x"), Status: 400, Detail: "Spillway-Ttl"},
		{Name: "DELETE e", Request: "DELETE /v0/entity?id=e" + Host + "\n", Status: 202},

		// Batches.
		{Name: "a batch", Request: batch(`{"op":"put","key":"YjE=","value":"b25l"}`, `{"op":"get","key":"YjE="}`, `{"op":"put","key":"YjE=","value":"dHdv","ttl":60,"if_match":"`+tagOf("one")+`"}`,
			`{"op":"get","key":"YjE="}`, `{"op":"delete","key":"YjE="}`, `{"op":"get","key":"YjE="}`, ` { "value" : "\u0064HdvLy\/v" , "key":"YjI=", "if_none_match":"*", "op":"put" } `+"\r", ""), Status: 200, Header: "Content-Type: application/x-ndjson",
			Body: `{"status":201,"etag":"` + tagOf("one") + `"}` + "\n" + `{"status":200,"value":"b25l","etag":"` + tagOf("one") + `"}` + "\n" + `{"status":201,"etag":"` + tagOf("two") + `"}` + "\n" +
				`{"status":200,"value":"dHdv","etag":"` + tagOf("two") + `","ttl":60}` + "\n" + `{"status":202}` + "\n" + `{"status":404}` + "\n" + `{"status":201,"etag":"` + tagOf("two//\xef") + `"}` + "\n"},
		{Name: "its writes are there", Local: true, Request: Get("/v0/entity?id=b2"), Status: 200, Body: "two//\xef"},
		{Name: "and its deletes", Request: Get("/v0/entity?id=b1"), Status: 404},
		{Name: "a batch that only reads", Request: batch(`{"op":"get","key":"YjI="}`, `{"op":"get","key":"YjE="}`), Status: 200,
			Body: `{"status":200,"value":"dHdvLy/v","etag":"` + tagOf("two//\xef") + `"}` + "\n" + `{"status":404}` + "\n"},
		{Name: "an empty batch", Request: with("POST", "/v0/entities", "Content-Type: application/x-ndjson\n", ""), Status: 200, Header: "Content-Length: 0"},
		{Name: "a batch some of whose conditions do not hold", Request: batch(`{"op":"put","key":"YjE=","value":""}`, `{"op":"delete","key":"YjI=","if_match":"x"}`, `{"op":"put","key":"YjM=","value":"","if_match":"*"}`), Status: 412,
			Header: "Content-Type: application/problem+json", Body: `{"title":"Precondition Failed","status":412,"detail":"nothing was written: each operation listed has a condition that does not hold","operations":[{"index":1,"status":412,"etag":"` + tagOf("two//\xef") + `"},{"index":2,"status":412}]}`},
		{Name: "has had no effect", Request: Get("/v0/entity?id=b1"), Status: 404},
		{Name: "PUT big2", Request: Put("big2", big), Status: 201, Header: `ETag: "` + tagOf(big) + `"`},
		{Name: "GET big2", Request: Get("/v0/entity?id=big2"), Status: 200, Body: big, Header: `ETag: "` + tagOf(big) + `"`},
		{Name: "a batch whose answer is too large", Request: batch(append([]string{`{"op":"put","key":"YjE=","value":""}`}, slices.Repeat([]string{`{"op":"get","key":"YmlnMg=="}`}, 4)...)...), Status: 413, Detail: tooLarge},
		{Name: "has had no effect either", Request: Get("/v0/entity?id=b1"), Status: 404},
		{Name: "a batch that only reads whose answer is too large", Request: batch(slices.Repeat([]string{`{"op":"get","key":"YmlnMg=="}`}, 4)...), Status: 413, Detail: tooLarge},
		{Name: "DELETE big2", Request: "DELETE /v0/entity?id=big2" + Host + "\n", Status: 202},
		{Name: "DELETE b", Request: batch(`{"op":"delete","key":"YjI="}`, `{"op":"delete","key":"YjE="}`), Status: 200, Body: `{"status":202}` + "\n" + `{"status":202}` + "\n"},
		{Name: "a batch of another type", Request: with("POST", "/v0/entities", "Content-Type: text/plain\n", `{"op":"get","key":"YjE="}`), Status: 415, Detail: "application/x-ndjson"},
		{Name: "too many operations", Request: batch(slices.Repeat([]string{`{"op":"get","key":"YjE="}`}, 1001)...), Status: 400, Detail: "1001 lines, allowed: at most 1000"},
		{Name: "too large a batch", Request: batch(strings.Repeat(" ", 256<<10), ""), Status: 413, Detail: "the batch has 262145 bytes", Closes: true},
		{Name: "a line that is no object", Request: batch(`{"op":"put","key":"YjE=","value":""}`, `[1]`), Status: 400, Detail: "line 2 of the batch: it is no JSON object; nothing was written"},
		{Name: "an empty line", Request: batch(`{"op":"put","key":"YjE=","value":""}`, ``, `{"op":"get","key":"YjE="}`), Status: 400, Detail: "line 2 "},
		{Name: "a line that does not end", Request: batch(`{"op":"get","key":"YjE="`), Status: 400, Detail: "line 1 of the batch: it ends"},
		{Name: "a string that does not end", Request: batch(`{"op":"get","key":"YjE=`), Status: 400, Detail: "does not end"},
		{Name: "more behind an object", Request: batch(`{"op":"get","key":"YjE="}{}`), Status: 400, Detail: "behind the object"},
		{Name: "a broken escape in a batch", Request: batch(`{"op":"get","key":"\x"}`), Status: 400, Detail: "broken escape"},
		{Name: "half of a character", Request: batch(`{"op":"get","key":"\ud800"}`), Status: 400, Detail: "broken escape"},
		{Name: "a field that is not known", Request: batch(`{"op":"get","key":"YjE=","kee":1}`), Status: 400, Detail: "kee"},
		{Name: "a field twice", Request: batch(`{"op":"get","key":"YjE=","key":"YjE="}`), Status: 400, Detail: "more than once"},
		{Name: "a field that means nothing", Request: batch(`{"op":"get","key":"YjE=","value":""}`), Status: 400, Detail: "means nothing"},
		{Name: "no operation", Request: batch(`{"key":"YjE="}`), Status: 400, Detail: "allowed: put, delete and get"},
		{Name: "no key", Request: batch(`{"op":"get"}`), Status: 400, Detail: "key is missing"},
		{Name: "an empty key", Request: batch(`{"op":"get","key":""}`), Status: 400, Detail: "key is empty"},
		{Name: "too long a key in a batch", Request: batch(`{"op":"get","key":"` + base64.StdEncoding.EncodeToString([]byte(long)) + `"}`), Status: 400, Detail: "101 bytes"},
		{Name: "no value", Request: batch(`{"op":"put","key":"YjE="}`), Status: 400, Detail: "value is missing"},
		{Name: "too long a value in a batch", Request: batch(`{"op":"put","key":"YjE=","value":"` + base64.StdEncoding.EncodeToString([]byte(big+"v")) + `"}`), Status: 413, Detail: "65537 bytes"},
		{Name: "what is no base64", Request: batch(`{"op":"get","key":"YjE"}`), Status: 400, Detail: "base64"},
		{Name: "base64 whose last digit has bits beyond the key", Request: batch(`{"op":"get","key":"YjF="}`), Status: 400, Detail: "base64"},
		{Name: "base64 with a line end", Request: batch(`{"op":"get","key":"Yj\nE="}`), Status: 400, Detail: "line end at byte 2"},
		{Name: "If-Match of a batch", Request: with("POST", "/v0/entities", "Content-Type: application/x-ndjson\nIf-Match: *\n", `{"op":"put","key":"YjE=","value":""}`), Status: 400, Detail: "if_match"},
		{Name: "If-None-Match of a batch", Request: with("POST", "/v0/entities", "Content-Type: application/x-ndjson\nIf-None-Match: *\n", `{"op":"put","key":"YjE=","value":""}`), Status: 400, Detail: "if_none_match"},
		{Name: "Spillway-Ttl of a batch", Request: with("POST", "/v0/entities", "Content-Type: application/x-ndjson\nSpillway-Ttl: 1\n", `{"op":"put","key":"YjE=","value":""}`), Status: 400, Detail: "ttl"},
		{Name: "a ttl of 0", Request: batch(`{"op":"put","key":"YjE=","value":"","ttl":0}`), Status: 400, Detail: `ttl is "0", allowed`},
		{Name: "a ttl beyond the bound", Request: batch(`{"op":"put","key":"YjE=","value":"","ttl":630720001}`), Status: 400, Detail: "630720001"},
		{Name: "a ttl that is no whole number", Request: batch(`{"op":"put","key":"YjE=","value":"","ttl":1.5}`), Status: 400, Detail: "1.5"},
		{Name: "conditions of an operation that contradict each other", Request: batch(`{"op":"put","key":"YjE=","value":"","if_match":"*","if_none_match":"*"}`), Status: 400, Detail: "contradict"},
		{Name: "an if_none_match that is no star", Request: batch(`{"op":"put","key":"YjE=","value":"","if_none_match":"x"}`), Status: 400, Detail: "if_none_match"},
		{Name: "nothing of these was written", Request: Get("/v0/entity?id=b1"), Status: 404},
		{Name: "PUT on all entities", Request: with("PUT", "/v0/entities?start=a", "", "x"), Status: 405, Header: "Allow: GET, POST"},

		// Lists.
		{Name: "PUT outside of the prefix", Request: Put("q", "other"), Status: 201},
		{Name: "PUT behind the prefix", Request: Put("s", "other"), Status: 201},
		{Name: "PUT at the end of all", Request: Put("%ff%ff", "last"), Status: 201},
		{Name: "a prefix", Request: Get("/v0/entities?prefix=r"), Status: 200, Body: "r1\noner2\nr3\nth\nree", Header: "Content-Type: application/octet-stream"},
		{Name: "a key is a prefix of itself", Request: Get("/v0/entities?prefix=r2"), Status: 200, Body: "r2\n"},
		{Name: "a prefix that nothing can follow", Request: Get("/v0/entities?prefix=%ff"), Status: 200, Body: "\xff\xff\nlast"},
		{Name: "a prefix of no key", Request: Get("/v0/entities?prefix=r4"), Status: 200},
		{Name: "only keys after one", Request: Get("/v0/entities?prefix=r&after=r1"), Status: 200, Body: "r2\nr3\nth\nree"},
		{Name: "which need not be there", Request: Get("/v0/entities?start=r1&end=r3&after=r1%00"), Status: 200, Body: "r2\n"},
		{Name: "the same in base64url", Request: Get("/v0/entities?prefix=r&after64=cjE"), Status: 200, Body: "r2\nr3\nth\nree"},
		{Name: "padded", Request: Get("/v0/entities?prefix=r&after64=cjE%3d"), Status: 200, Body: "r2\nr3\nth\nree"},
		{Name: "with the digits that base64 has otherwise", Request: Get("/v0/entities?start=q&after64=__8&order=desc&limit=1"), Status: 200, Body: "s\nother"},
		{Name: "after a key in front of the list is all of it", Request: Get("/v0/entities?prefix=r&after=a&keys=only"), Status: 200, Body: "r1\nr2\nr3\n"},
		{Name: "after a key behind the list is none of it", Request: Get("/v0/entities?prefix=r&after=s"), Status: 200},
		{Name: "downwards", Request: Get("/v0/entities?start=r1&end=r3&order=desc"), Status: 200, Body: "r2\nr1\none"},
		{Name: "a prefix downwards", Request: Get("/v0/entities?prefix=r&order=desc&limit=2"), Status: 200, Body: "r3\nth\nreer2\n"},
		{Name: "after goes downwards too", Request: Get("/v0/entities?prefix=r&order=desc&after=r3"), Status: 200, Body: "r2\nr1\none"},
		{Name: "downwards after a key above the list is all of it", Request: Get("/v0/entities?prefix=r&order=desc&after=z&keys=only"), Status: 200, Body: "r3\nr2\nr1\n"},
		{Name: "downwards after a key below the list is none of it", Request: Get("/v0/entities?prefix=r&order=desc&after=q"), Status: 200},
		{Name: "upwards is said", Request: Get("/v0/entities?prefix=r&order=asc&keys=only&limit=1"), Status: 200, Body: "r1\n"},
		{Name: "keys in lines of JSON", Request: "GET /v0/entities?prefix=r&keys=only" + Host + "Accept: application/x-ndjson\n\n", Status: 200,
			Body: `{"key":"cjE="}` + "\n" + `{"key":"cjI="}` + "\n" + `{"key":"cjM="}` + "\n"},
		{Name: "the last line of a page tells how to go on", Request: "GET /v0/entities?prefix=r&keys=only&limit=2" + Host + "Accept: application/x-ndjson\n\n", Status: 200,
			Body: `{"key":"cjE="}` + "\n" + `{"key":"cjI="}` + "\n" + `{"next":"cjI"}` + "\n"},
		{Name: "the next page is the last", Request: "GET /v0/entities?prefix=r&keys=only&limit=2&after64=cjI" + Host + "Accept: application/x-ndjson\n\n", Status: 200,
			Body: `{"key":"cjM="}` + "\n"},
		{Name: "a page that ends with the list is the last", Request: "GET /v0/entities?start=r3&end=s&limit=1" + Host + "Accept: application/x-ndjson\n\n", Status: 200,
			Body: `{"key":"cjM=","value":"dGgKcmVl"}` + "\n"},
		{Name: "pages downwards", Request: "GET /v0/entities?prefix=r&keys=only&limit=1&order=desc" + Host + "Accept: application/x-ndjson\n\n", Status: 200,
			Body: `{"key":"cjM="}` + "\n" + `{"next":"cjM"}` + "\n"},
		{Name: "next is a line of JSON only", Request: Get("/v0/entities?prefix=r&keys=only&limit=2"), Status: 200, Body: "r1\nr2\n"},
		{Name: "a list to HTTP/1.0", Request: "GET /v0/entities?prefix=r&keys=only&limit=1 HTTP/1.0\nAccept: application/x-ndjson\n\n", Status: 200,
			Body: `{"key":"cjE="}` + "\n" + `{"next":"cjE"}` + "\n", Closes: true},
		{Name: "DELETE outside", Request: "DELETE /v0/entity?id=q" + Host + "\n", Status: 202},
		{Name: "DELETE behind", Request: "DELETE /v0/entity?id=s" + Host + "\n", Status: 202},
		{Name: "DELETE last", Request: "DELETE /v0/entity?id=%ff%ff" + Host + "\n", Status: 202},

		// Connections.
		{Name: "close is obeyed", Request: "GET /v0/entity?id=r1" + Host + "Connection: Foo, Close\n\n", Status: 200, Body: "one", Closes: true},
		{Name: "HTTP/1.0 closes", Request: "GET /v0/entity?id=r1 HTTP/1.0\n\n", Status: 200, Body: "one", Closes: true},
		{Name: "HTTP/1.0 may go on", Request: "GET /v0/entity?id=r1 HTTP/1.0\nConnection: Keep-Alive\n\n", Status: 200, Body: "one", Header: "Connection: keep-alive"},

		// Bad queries: the connection goes on.
		{Name: "no query", Request: Get("/v0/entity"), Status: 400, Detail: "id is missing"},
		{Name: "an empty key", Request: Get("/v0/entity?id="), Status: 400, Detail: "id is empty"},
		{Name: "a key without an equals sign", Request: Get("/v0/entity?id"), Status: 400, Detail: "id is empty"},
		{Name: "two keys", Request: Get("/v0/entity?id=a&id=b"), Status: 400, Detail: "more than once"},
		{Name: "two keys, one empty", Request: Get("/v0/entity?id&id=b"), Status: 400, Detail: "more than once"},
		{Name: "a broken escape", Request: Get("/v0/entity?id=a%g1b"), Status: 400, Detail: "%g1"},
		{Name: "half an escape", Request: Get("/v0/entity?id=a%4"), Status: 400, Detail: "%4"},
		{Name: "a broken escape in a parameter that is ignored", Request: Get("/v0/entity?id=a&x=%"), Status: 400, Detail: "%"},
		{Name: "a bad PUT whose body is there does not end the connection", Request: Put("", "value"), Status: 400},
		{Name: "no start", Request: Get("/v0/entities?end=a"), Status: 400, Detail: "start is missing"},
		{Name: "an empty start", Request: Get("/v0/entities?start="), Status: 400, Detail: "start is empty"},
		{Name: "two starts", Request: Get("/v0/entities?start=a&start=b"), Status: 400, Detail: "more than once"},
		{Name: "an empty end", Request: Get("/v0/entities?start=a&end="), Status: 400, Detail: "end is empty"},
		{Name: "two ends", Request: Get("/v0/entities?start=a&end=b&end=b"), Status: 400, Detail: "more than once"},
		{Name: "limit 0", Request: Get("/v0/entities?start=a&limit=0"), Status: 400, Detail: `limit is "0"`},
		{Name: "a negative limit", Request: Get("/v0/entities?start=a&limit=-1"), Status: 400, Detail: "limit"},
		{Name: "an empty limit", Request: Get("/v0/entities?start=a&limit="), Status: 400, Detail: "limit"},
		{Name: "no number", Request: Get("/v0/entities?start=a&limit=many"), Status: 400, Detail: "many"},
		{Name: "two limits", Request: Get("/v0/entities?start=a&limit=1&limit=1"), Status: 400, Detail: "more than once"},
		{Name: "start and prefix", Request: Get("/v0/entities?start=a&prefix=a"), Status: 400, Detail: "start and prefix are both given"},
		{Name: "end and prefix", Request: Get("/v0/entities?prefix=a&end=b"), Status: 400, Detail: "end and prefix are both given"},
		{Name: "an empty prefix", Request: Get("/v0/entities?prefix="), Status: 400, Detail: "prefix is empty"},
		{Name: "two prefixes", Request: Get("/v0/entities?prefix=a&prefix=b"), Status: 400, Detail: "more than once"},
		{Name: "after alone", Request: Get("/v0/entities?after=a"), Status: 400, Detail: "start is missing"},
		{Name: "an empty after", Request: Get("/v0/entities?prefix=a&after="), Status: 400, Detail: "after is empty"},
		{Name: "an empty after64", Request: Get("/v0/entities?prefix=a&after64="), Status: 400, Detail: "after64 is empty"},
		{Name: "both of them", Request: Get("/v0/entities?prefix=a&after=b&after64=Yg"), Status: 400, Detail: "after and after64 are both given"},
		{Name: "another base64", Request: Get("/v0/entities?prefix=a&after64=%2b%2b"), Status: 400, Detail: `after64 is "++"`},
		{Name: "a cut base64", Request: Get("/v0/entities?prefix=a&after64=YWJjY"), Status: 400, Detail: "YWJjY"},
		{Name: "a second spelling of a key", Request: Get("/v0/entities?prefix=a&after64=cjF"), Status: 400, Detail: "cjF"},
		{Name: "a line feed in base64", Request: Get("/v0/entities?prefix=a&after64=cj%0aE"), Status: 400, Detail: "after64"},
		{Name: "other keys", Request: Get("/v0/entities?prefix=a&keys=all"), Status: 400, Detail: `keys is "all"`},
		{Name: "no keys", Request: Get("/v0/entities?prefix=a&keys="), Status: 400, Detail: `keys is ""`},
		{Name: "another order", Request: Get("/v0/entities?prefix=a&order=DESC"), Status: 400, Detail: `order is "DESC"`},
		{Name: "no order", Request: Get("/v0/entities?prefix=a&order="), Status: 400, Detail: `order is ""`},
		{Name: "another path", Request: Get("/v0/entitys?id=a"), Status: 400, Detail: "/v0/entitys"},
		{Name: "the root", Request: Get("/"), Status: 400},
		{Name: "a slash too many", Request: Get("/v0/entity/?id=a"), Status: 400},
		{Name: "an escape in the path", Request: Get("/v0/%65ntity?id=a"), Status: 400},
		{Name: "no path", Request: Get("http://example.org?id=a"), Status: 400},
		{Name: "an asterisk", Request: "OPTIONS *" + Host + "\n", Status: 400},
		{Name: "another path with another method", Request: "POST /admin" + Host + "Content-Length: 2\n\nhi", Status: 400},
		{Name: "another method", Request: "POST /v0/entity?id=a" + Host + "Content-Length: 2\n\nhi", Status: 405, Header: "Allow: GET, HEAD, PUT, DELETE"},
		{Name: "a method nobody knows", Request: "BREW /v0/entity?id=a" + Host + "\n", Status: 405, Detail: "BREW"},
		{Name: "methods have a case", Request: "get /v0/entity?id=a" + Host + "\n", Status: 405},
		{Name: "another method for ranges", Request: "HEAD /v0/entities?start=a" + Host + "\n", Status: 405, Header: "Allow: GET, POST"},
		{Name: "a key that is too long", Request: Get("/v0/entity?id=" + long), Status: 414, Detail: "101"},
		{Name: "a start that is too long", Request: Get("/v0/entities?start=" + long), Status: 414},
		{Name: "an end that is too long", Request: Get("/v0/entities?start=a&end=" + long), Status: 414},
		{Name: "a prefix that is too long", Request: Get("/v0/entities?prefix=" + long), Status: 414, Detail: "prefix has 101"},
		{Name: "an after that is too long", Request: Get("/v0/entities?prefix=a&after=" + long), Status: 414, Detail: "after has 101"},
		{Name: "an after64 that is too long", Request: Get("/v0/entities?prefix=a&after64=" + strings.Repeat("a2", 76)), Status: 414, Detail: "after64 has 114"},

		// Bad headers.
		{Name: "timeout 0", Request: "GET /v0/entity?id=a" + Host + "Spillway-Timeout-Ms: 0\n\n", Status: 400, Detail: "Spillway-Timeout-Ms"},
		{Name: "timeout too long", Request: "GET /v0/entity?id=a" + Host + "Spillway-Timeout-Ms: 3600001\n\n", Status: 400, Detail: "3600001"},
		{Name: "timeout with a unit", Request: "GET /v0/entity?id=a" + Host + "Spillway-Timeout-Ms: 5ms\n\n", Status: 400, Detail: "5ms"},
		{Name: "timeout empty", Request: "GET /v0/entity?id=a" + Host + "Spillway-Timeout-Ms:\n\n", Status: 400, Detail: "Spillway-Timeout-Ms"},
		{Name: "priority 8", Request: "GET /v0/entity?id=a" + Host + "Spillway-Priority: 8\n\n", Status: 400, Detail: "Spillway-Priority"},
		{Name: "priority -1", Request: "GET /v0/entity?id=a" + Host + "Spillway-Priority: -1\n\n", Status: 400, Detail: "Spillway-Priority"},
		{Name: "a client's name too long", Request: "GET /v0/entity?id=a" + Host + "Spillway-Client: " + strings.Repeat("c", 129) + "\n\n", Status: 400, Detail: "Spillway-Client"},
		{Name: "a client's name just right", Request: "GET /v0/entity?id=a" + Host + "Spillway-Client: " + strings.Repeat("c", 128) + "\n\n", Status: 404},
		{Name: "an unknown consistency", Request: "GET /v0/entity?id=a" + Host + "Spillway-Consistency: most\n\n", Status: 400, Detail: "Spillway-Consistency"},
		{Name: "a wish twice", Request: "GET /v0/entity?id=a" + Host + "Spillway-Priority: 1\nSpillway-Priority: 1\n\n", Status: 400, Detail: "Spillway-Priority", Closes: true},
		{Name: "another expectation", Request: "PUT /v0/entity?id=a" + Host + "Expect: a miracle\n\n", Status: 417, Detail: "miracle"},

		// What is too large.
		{Name: "a value that is too large", Request: "PUT /v0/entity?id=a" + Host + "Content-Length: 65537\n\n", Status: 413, Detail: "65537", Closes: true},
		{Name: "a body of a GET that is too large", Request: "GET /v0/entity?id=a" + Host + "Content-Length: 65537\n\n", Status: 413, Closes: true},
		{Name: "chunks that are too large", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding: chunked\n\n10001\r\n", Status: 413, Closes: true},
		{Name: "413 instead of 100", Request: "PUT /v0/entity?id=a" + Host + "Content-Length: 65537\nExpect: 100-continue\n\n", Status: 413, Closes: true},
		{Name: "400 instead of 100", Request: "PUT /v0/entity?id=" + Host + "Content-Length: 5\nExpect: 100-continue\n\n", Status: 400, Closes: true},
		{Name: "a target that is too long", Request: Get("/v0/entity?id=" + huge), Status: 414, Closes: true},
		{Name: "headers that are too long", Request: "GET /v0/entity?id=a" + Host + "X: " + huge + "\n\n", Status: 431, Closes: true},
		{Name: "headers that are too many", Request: "GET /v0/entity?id=a" + Host + strings.Repeat("X: y\n", 2000) + "\n", Status: 431, Closes: true},
		{Name: "a head that just fits", Request: "GET /v0/entity?id=a" + Host + "X: " + strings.Repeat("x", 8000) + "\n\n", Status: 404},
		{Name: "trailers that are too long", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding: chunked\n\n0\r\nX: " + huge + "\r\n\r\n", Status: 431, Closes: true},

		// What could be read in two ways.
		{Name: "length and chunks", Request: "PUT /v0/entity?id=a" + Host + "Content-Length: 5\nTransfer-Encoding: chunked\n\n0\r\n\r\n", Status: 400, Closes: true},
		{Name: "chunks and length", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding: chunked\nContent-Length: 5\n\n0\r\n\r\n", Status: 400, Closes: true},
		{Name: "two lengths", Request: "PUT /v0/entity?id=a" + Host + "Content-Length: 5\nContent-Length: 5\n\nhello", Status: 400, Closes: true},
		{Name: "a list of lengths", Request: "PUT /v0/entity?id=a" + Host + "Content-Length: 5, 5\n\nhello", Status: 400, Closes: true},
		{Name: "a signed length", Request: "PUT /v0/entity?id=a" + Host + "Content-Length: +5\n\nhello", Status: 400, Closes: true},
		{Name: "an empty length", Request: "PUT /v0/entity?id=a" + Host + "Content-Length:\n\n", Status: 400, Closes: true},
		{Name: "a length beyond any number", Request: "PUT /v0/entity?id=a" + Host + "Content-Length: 99999999999999999999\n\n", Status: 400, Closes: true},
		{Name: "two codings", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding: gzip, chunked\n\n0\r\n\r\n", Status: 400, Closes: true},
		{Name: "identity", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding: identity\nContent-Length: 0\n\n", Status: 400, Closes: true},
		{Name: "an empty coding", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding:\n\n", Status: 400, Closes: true},
		{Name: "chunks in HTTP/1.0", Request: "PUT /v0/entity?id=a HTTP/1.0\nTransfer-Encoding: chunked\n\n0\r\n\r\n", Status: 400, Closes: true},
		{Name: "a folded line", Request: "GET /v0/entity?id=a" + Host + "X: y\n z\n\n", Status: 400, Closes: true},
		{Name: "a folded length", Request: "PUT /v0/entity?id=a" + Host + "X: y\n Content-Length: 5\n\nhello", Status: 400, Closes: true},
		{Name: "a space before the colon", Request: "PUT /v0/entity?id=a" + Host + "Content-Length : 5\n\nhello", Status: 400, Closes: true},
		{Name: "a space in a name", Request: "PUT /v0/entity?id=a" + Host + "Content Length: 5\n\nhello", Status: 400, Closes: true},
		{Name: "a line without a colon", Request: "GET /v0/entity?id=a" + Host + "nonsense\n\n", Status: 400, Closes: true},
		{Name: "a line without a name", Request: "GET /v0/entity?id=a" + Host + ": nonsense\n\n", Status: 400, Closes: true},
		{Name: "a control byte in a value", Request: "GET /v0/entity?id=a" + Host + "X: a\x00b\n\n", Status: 400, Closes: true},
		{Name: "lines that end in LF", Raw: "GET /v0/entity?id=a HTTP/1.1\nHost: x\n\n", Status: 400, Closes: true},
		{Name: "one line that ends in LF", Raw: "GET /v0/entity?id=a HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", Status: 400, Closes: true},
		{Name: "no host", Request: "GET /v0/entity?id=a HTTP/1.1\n\n", Status: 400, Closes: true},
		{Name: "two hosts", Request: "GET /v0/entity?id=a" + Host + "Host: y\n\n", Status: 400, Closes: true},
		{Name: "a chunk without a length", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding: chunked\n\nhello\r\n", Status: 400, Closes: true},
		{Name: "a chunk that is longer than it says", Request: "PUT /v0/entity?id=a" + Host + "Transfer-Encoding: chunked\n\n1\r\nhello\r\n0\r\n\r\n", Status: 400, Closes: true},
		{Name: "HTTP/2.0", Request: "GET /v0/entity?id=a HTTP/2.0\nHost: x\n\n", Status: 505, Closes: true},
		{Name: "the preface of HTTP/2", Raw: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Status: 505, Closes: true},
		{Name: "HTTP/0.9", Raw: "GET /v0/entity?id=a\r\n\r\n", Status: 400, Closes: true},
		{Name: "no HTTP", Raw: "\x16\x03\x01\x02\x00\r\n\r\n", Status: 400, Closes: true},
		{Name: "a space too many", Request: "GET  /v0/entity?id=a" + Host + "\n", Status: 400, Closes: true},
	}
	for i := range rows {
		r := &rows[i]
		r.Local = r.Local || r.names("/v0/entities")
	}
	return rows
}
