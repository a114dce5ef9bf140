package server

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// framing is a message whose end two parsers might see in different places.
type framing struct {
	name   string
	raw    string // sent as it is
	status int    // 0 if it is served; negative if its end is beyond doubt all the same
	value  string // its body, if it is served
}

// framings are the known shapes of request smuggling, and their neighbours that
// are right. See RFC 9112, sections 2.2, 3.2, 5, 6 and 7, for what is asked.
func framings() []framing {
	const start = "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n"
	length := func(v string) string { return start + "Content-Length:" + v + "\r\n\r\nhello" }
	coding := func(v string) string { return start + "Transfer-Encoding:" + v + "\r\n\r\n5\r\nhello\r\n0\r\n\r\n" }
	chunks := func(v string) string { return start + "Transfer-Encoding: chunked\r\n\r\n" + v }
	trailers := func(v string) string { return chunks("5\r\nhello\r\n0\r\n" + v) }
	target := func(method, v string) string {
		return method + " " + v + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
	}
	return []framing{
		// One length, in the one way to write it. Blanks around a value are no part
		// of it, and leading zeros change nothing.
		{name: "length", raw: length(" 5"), value: "hello"},
		{name: "length without a blank", raw: length("5"), value: "hello"},
		{name: "length between blanks", raw: length(" \t 5\t "), value: "hello"},
		{name: "length with zeros", raw: length(" 0005"), value: "hello"},
		{name: "length with a plus", raw: length(" +5"), status: 400},
		{name: "length with a minus", raw: length(" -5"), status: 400},
		{name: "length in hexadecimal", raw: length(" 0x5"), status: 400},
		{name: "length with a fraction", raw: length(" 5.0"), status: 400},
		{name: "length with an exponent", raw: length(" 5e0"), status: 400},
		{name: "length with an underscore", raw: length(" 0_5"), status: 400},
		{name: "length in other digits", raw: length(" ٥"), status: 400},
		{name: "length in quotes", raw: length(` "5"`), status: 400},
		{name: "length after a vertical tab", raw: length(" \v5"), status: 400},
		{name: "length before NUL", raw: length(" 5\x00"), status: 400},
		{name: "length before a bare CR", raw: length(" 5\r"), status: 400},
		{name: "length with a blank inside", raw: length(" 5 5"), status: 400},
		{name: "a list of one length", raw: length(" 5, 5"), status: 400},
		{name: "a list of two lengths", raw: length(" 5, 6"), status: 400},
		{name: "no length", raw: length(""), status: 400},
		{name: "length that wraps at 64 bits", raw: length(" 18446744073709551621"), status: 400},
		{name: "length that wraps at 32 bits", raw: length(" 4294967301"), status: 413},
		{name: "the same length twice", raw: length(" 5\r\nContent-Length: 5"), status: 400},
		{name: "two lengths", raw: length(" 5\r\nContent-Length: 6"), status: 400},
		{name: "two lengths, in two cases", raw: length(" 5\r\ncontent-LENGTH: 0"), status: 400},
		{name: "length folded", raw: length("\r\n 5"), status: 400},

		// One coding.
		{name: "chunked", raw: coding(" chunked"), value: "hello"},
		{name: "chunked in another case", raw: coding(" CHUNKED"), value: "hello"},
		{name: "chunked, identity", raw: coding(" chunked, identity"), status: 400},
		{name: "identity, chunked", raw: coding(" identity, chunked"), status: 400},
		{name: "chunked twice in a list", raw: coding(" chunked, chunked"), status: 400},
		{name: "chunked after a comma", raw: coding(" ,chunked"), status: 400},
		{name: "xchunked", raw: coding(" xchunked"), status: 400},
		{name: "chunkedx", raw: coding(" chunkedx"), status: 400},
		{name: "chunked with a parameter", raw: coding(" chunked;q=1"), status: 400},
		{name: "chunked in quotes", raw: coding(` "chunked"`), status: 400},
		{name: "chunked after a vertical tab", raw: coding(" \vchunked"), status: 400},
		{name: "chunked before NUL", raw: coding(" chunked\x00"), status: 400},
		{name: "chunked before a bare CR", raw: coding(" chunked\r"), status: 400},
		{name: "identity", raw: coding(" identity"), status: 400},
		{name: "gzip", raw: coding(" gzip"), status: 400},
		{name: "no coding", raw: coding(""), status: 400},
		{name: "chunked twice", raw: coding(" chunked\r\nTransfer-Encoding: chunked"), status: 400},
		{name: "chunked and identity", raw: coding(" chunked\r\nTransfer-Encoding: identity"), status: 400},
		{name: "chunked folded", raw: coding("\r\n chunked"), status: 400},

		// Not both.
		{name: "length, then chunked", raw: start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 400},
		{name: "chunked, then length", raw: start + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", status: 400},
		{name: "chunked and length 0", raw: start + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n", status: 400},
		{name: "an unknown coding and length", raw: start + "Transfer-Encoding: x\r\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "chunked in HTTP/1.0", raw: "PUT /v0/entity?id=a HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", status: 400},
		{name: "both in HTTP/1.0", raw: "PUT /v0/entity?id=a HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello", status: 400},

		// Lines that hide the field from one of the two.
		{name: "a blank before the colon", raw: start + "Content-Length : 5\r\n\r\nhello", status: 400},
		{name: "a tab before the colon", raw: start + "Content-Length\t: 5\r\n\r\nhello", status: 400},
		{name: "a vertical tab before the colon", raw: start + "Transfer-Encoding\v: chunked\r\n\r\n0\r\n\r\n", status: 400},
		{name: "NUL before the colon", raw: start + "Content-Length\x00: 5\r\n\r\nhello", status: 400},
		{name: "a bare CR before the colon", raw: start + "Content-Length\r: 5\r\n\r\nhello", status: 400},
		{name: "a blank before the name", raw: start + " Content-Length: 5\r\n\r\nhello", status: 400},
		{name: "a blank before the first name", raw: "PUT /v0/entity?id=a HTTP/1.1\r\n Content-Length: 5\r\nHost: x\r\n\r\nhello", status: 400},
		{name: "a field folded into another", raw: start + "X: y\r\n Content-Length: 5\r\n\r\nhello", status: 400},
		{name: "a field folded by a tab", raw: start + "X: y\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 400},
		{name: "a field behind a bare CR", raw: start + "X: y\rContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "a field behind a bare LF", raw: start + "X: y\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "a field behind NUL", raw: start + "X: y\x00Content-Length: 5\r\n\r\nhello", status: 400},
		{name: "a line without a colon", raw: start + "Content-Length 5\r\n\r\nhello", status: 400},
		{name: "an underscore for a hyphen is another name", raw: start + "Content_Length: 99\r\nContent-Length: 5\r\n\r\nhello", value: "hello"},
		{name: "a trailing letter is another name", raw: start + "Content-Lengths: 99\r\nContent-Length: 5\r\n\r\nhello", value: "hello"},

		// Ends of lines.
		{name: "LF after the request line", raw: "PUT /v0/entity?id=a HTTP/1.1\nHost: x\r\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "LF after the request line in HTTP/1.0", raw: "PUT /v0/entity?id=a HTTP/1.0\n\r\n", status: 400},
		{name: "LF after a field", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "LF for the empty line", raw: start + "Content-Length: 5\r\n\nhello", status: 400},
		{name: "LF alone", raw: "PUT /v0/entity?id=a HTTP/1.1\nHost: x\nContent-Length: 5\n\nhello", status: 400},
		{name: "an early end by LF", raw: start + "X: y\n\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "an early end by CR", raw: start + "X: y\r\rContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "two CR", raw: "PUT /v0/entity?id=a HTTP/1.1\r\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", status: 400},

		// Request lines.
		{name: "a tab for a blank", raw: "PUT\t/v0/entity?id=a\tHTTP/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "two blanks", raw: "PUT /v0/entity?id=a  HTTP/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "a blank at the end", raw: "PUT /v0/entity?id=a HTTP/1.1 \r\nHost: x\r\n\r\n", status: 400},
		{name: "a blank at the beginning", raw: " PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "NUL in the target", raw: "PUT /v0/entity?id=a\x00 HTTP/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "a bare CR in the target", raw: "PUT /v0/entity?id=a\rb HTTP/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "NUL in the method", raw: "PU\x00T /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "a version in lower case", raw: "PUT /v0/entity?id=a http/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "a version of two digits", raw: "PUT /v0/entity?id=a HTTP/1.10\r\nHost: x\r\n\r\n", status: 400},
		{name: "a version to come", raw: "PUT /v0/entity?id=a HTTP/1.2\r\nHost: x\r\n\r\n", status: 505},
		{name: "no version", raw: "PUT /v0/entity?id=a\r\nHost: x\r\n\r\n", status: 400},
		{name: "another protocol", raw: "PUT /v0/entity?id=a ICY/1.1\r\nHost: x\r\n\r\n", status: 400},
		{name: "absolute form", raw: target("PUT", "http://y/v0/entity?id=a"), value: "hello"},
		{name: "authority form", raw: "CONNECT y:80 HTTP/1.1\r\nHost: y:80\r\nContent-Length: 5\r\n\r\nhello", status: -400},
		{name: "authority form of another method", raw: target("PUT", "y:80"), status: 400},
		{name: "no form at all", raw: target("PUT", "v0/entity?id=a"), status: 400},

		// Hosts.
		{name: "no host", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "a host and a port", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nHost: [::1]:8080\r\nContent-Length: 5\r\n\r\nhello", value: "hello"},
		{name: "an empty host", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nHost:\r\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "a list of hosts", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x, y\r\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "a host with a path", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x/y\r\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "a host with a user", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x@y\r\nContent-Length: 5\r\n\r\nhello", status: 400},
		{name: "two hosts", raw: "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", status: 400},

		// Chunks.
		{name: "chunks", raw: chunks("2\r\nhe\r\n03\r\nllo\r\n000\r\n\r\n"), value: "hello"},
		{name: "a chunk in capitals", raw: chunks("A\r\n0123456789\r\n0\r\n\r\n"), value: "0123456789"},
		{name: "an extension", raw: chunks("5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n"), value: "hello"},
		{name: "a trailer", raw: chunks("5\r\nhello\r\n0\r\nX: y\r\n\r\n"), value: "hello"},
		{name: "a chunk with a prefix", raw: chunks("0x5\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk with a plus", raw: chunks("+5\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk with a minus", raw: chunks("-5\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk after a blank", raw: chunks(" 5\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk with an underscore", raw: chunks("0_5\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk without a size", raw: chunks(";x\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk that wraps at 64 bits", raw: chunks("10000000000000005\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk that is negative", raw: chunks("ffffffffffffffff\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk that wraps at 32 bits", raw: chunks("100000005\r\nhello\r\n0\r\n\r\n"), status: 413},
		{name: "a chunk line that ends in LF", raw: chunks("5\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk line that ends in CR", raw: chunks("5\rhello\r\n0\r\n\r\n"), status: 400},
		{name: "an extension with LF", raw: chunks("5;\nx\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk that ends in LF", raw: chunks("5\r\nhello\n0\r\n\r\n"), status: 400},
		{name: "a chunk that is too long", raw: chunks("4\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a chunk that is too short", raw: chunks("6\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "a last chunk that ends in LF", raw: chunks("5\r\nhello\r\n0\n\r\n"), status: 400},
		{name: "a length among the trailers", raw: chunks("5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n"), status: 400},
		{name: "a coding among the trailers", raw: chunks("5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"), status: 400},
		{name: "a trailer without a colon", raw: trailers("XY\r\n\r\n"), status: 400},
		{name: "two trailers", raw: trailers("X: y\r\nz-1:\r\n\r\n"), value: "hello"},
		{name: "a trailer that ends in LF", raw: trailers("X: y\nZ: z\r\n\r\n"), status: 400},
		{name: "trailers that end in LF", raw: trailers("X: y\r\n\n"), status: 400},
		{name: "trailers that end in two LF", raw: trailers("X: y\n\n"), status: 400},
		{name: "trailers of one LF", raw: trailers("\n"), status: 400},
		{name: "trailers of one CR", raw: trailers("\r"), status: 400},
		{name: "a trailer folded", raw: trailers("X: y\r\n z\r\n\r\n"), status: 400},
		{name: "a trailer folded by a tab", raw: trailers("X: y\r\n\tz\r\n\r\n"), status: 400},
		{name: "a trailer that begins with a blank", raw: trailers(" X: y\r\n\r\n"), status: 400},
		{name: "a trailer with a blank before the colon", raw: trailers("X : y\r\n\r\n"), status: 400},
		{name: "a trailer with a tab before the colon", raw: trailers("X\t: y\r\n\r\n"), status: 400},
		{name: "a trailer without a name", raw: trailers(": y\r\n\r\n"), status: 400},
		{name: "a trailer with NUL", raw: trailers("X: y\x00\r\n\r\n"), status: 400},
		{name: "a trailer with a bare CR", raw: trailers("X: y\rz\r\n\r\n"), status: 400},
		{name: "a trailer with NUL in its name", raw: trailers("X\x00: y\r\n\r\n"), status: 400},
		{name: "long trailers", raw: trailers("X: " + strings.Repeat("y", 3000) + "\r\n\r\n"), value: "hello"},
		{name: "trailers that are too long", raw: trailers("X: " + strings.Repeat("y", 100_000) + "\r\n\r\n"), status: 431},

		{name: "an extension with NUL", raw: chunks("5;a=\x00\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "an extension with DEL", raw: chunks("5;a=\x7f\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "an extension with a bare CR", raw: chunks("5;a=\rb\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "an extension behind a blank", raw: chunks("5 ;a\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "extensions as long as they may be", raw: chunks(strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\na\r\n", 4) + "0\r\n\r\n"), value: "aaaa"},
		{name: "an extension that is too long", raw: chunks("5;" + strings.Repeat("x", 16<<10) + "\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "extensions that are too long together", raw: chunks(strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\na\r\n", 5) + "0\r\n\r\n"), status: 400},
		{name: "an extension of the last chunk that is too long", raw: chunks("5\r\nhello\r\n0;" + strings.Repeat("x", 20_000) + "\r\n\r\n"), status: 400},
		{name: "blanks that are too long", raw: chunks("5" + strings.Repeat(" ", 20_000) + "\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "zeros before a size", raw: chunks(strings.Repeat("0", 100) + "5\r\nhello\r\n0\r\n\r\n"), status: 400},

		// Other protocols.
		{name: "HTTP/2 with prior knowledge", raw: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", status: 505},
		{name: "TLS", raw: "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03\r\n\r\n", status: 400},
		{name: "SOCKS", raw: "\x05\x01\x00\r\n\r\n", status: 400},
		{name: "memcached", raw: "set a 0 0 5\r\nhello\r\n\r\n", status: 400},
		{name: "Redis", raw: "*3\r\n$3\r\nSET\r\n$1\r\na\r\n\r\n", status: 400},
		{name: "the PROXY protocol", raw: "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nPUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n", status: 400},
	}
}

// A message that could be read in two ways is refused, and nothing behind it on
// the connection is taken for a request. What is served, net/http reads alike.
func TestFraming(t *testing.T) {
	t.Parallel()
	const behind = "PUT /v0/entity?id=smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	for _, tt := range framings() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// What is behind must not wait for the turn of the first write to end: who
			// half-closes while he waits has gone.
			s := serve(t, "fifo", func(o *setup) { o.queue.Workers = 3 })
			c := s.dial()
			c.sendRaw(tt.raw + behind)
			require.NoError(t, c.conn.CloseWrite())
			a := c.read(http.MethodPut)
			value, _ := s.store.get("a")
			if tt.status > 0 {
				require.Equal(t, tt.status, a.status, a.body)
				require.True(t, a.close)
				c.requireClosed()
				_, smuggled := s.store.get("smuggled")
				require.False(t, smuggled, "what is behind was served")
				require.Empty(t, value)
				return
			}
			require.Equal(t, 201, c.read(http.MethodPut).status, "what is behind is served")
			if tt.status < 0 {
				require.Equal(t, -tt.status, a.status, a.body)
				return
			}
			require.Equal(t, 201, a.status, a.body)
			require.Equal(t, tt.value, value)

			r := bufio.NewReader(strings.NewReader(tt.raw + behind))
			for _, want := range []string{tt.value, ""} {
				req, err := http.ReadRequest(r)
				require.NoError(t, err)
				body, err := io.ReadAll(req.Body)
				require.NoError(t, err)
				require.Equal(t, want, string(body))
			}
		})
	}
}
