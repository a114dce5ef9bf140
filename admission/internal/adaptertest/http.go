package adaptertest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/strategies"
)

// HTTPCodes are the codes of refusals over HTTP.
var HTTPCodes = map[strategies.Reason]string{
	strategies.ReasonFull: "503", strategies.ReasonLate: "503", strategies.ReasonDraining: "503",
	strategies.ReasonExpired: "504", strategies.ReasonAbandoned: "503",
}

// HTTP is a client of the server at URL.
type HTTP struct {
	URL string
	// Client speaks HTTP/1.1 if it is nil.
	Client *http.Client
}

// http1 keeps no connection. One that is kept could be closed, as idle, by the end of another
// test at the moment it is used again. One that was opened for a request that was given up
// meanwhile would hold up the end of a server.
var http1 = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// HTTP2 returns a client that speaks HTTP/2 without TLS.
func HTTP2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols}}
}

// Do sends a request, a POST if it has a body.
func (c HTTP) Do(ctx context.Context, path string, body io.Reader, headers ...string) (*http.Response, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Close = true
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	return cmp.Or(c.Client, http1).Do(req)
}

// Call is Client's.
func (c HTTP) Call(ctx context.Context, path string, headers ...string) Answer {
	return answer(c.Do(ctx, path, nil, headers...))
}

// Post is Client's.
func (c HTTP) Post(ctx context.Context, path, body string) Answer {
	return answer(c.Do(ctx, path, strings.NewReader(body)))
}

func answer(resp *http.Response, err error) Answer {
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return Answer{
		Served: resp.StatusCode < 300, Code: strconv.Itoa(resp.StatusCode), Err: err,
		Reason: resp.Header.Get("Spillway-Shed"), RetryAfter: resp.Header.Get("Retry-After"),
	}
}

// Header returns the headers of the answer to a GET.
func (c HTTP) Header(ctx context.Context) (http.Header, error) {
	resp, err := c.Do(ctx, "/", nil)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Header, errors.Join(err, resp.Body.Close())
}

// Open is Client's. The context's end closes the connection.
func (c HTTP) Open(ctx context.Context, k Kind) (func() error, error) {
	var from *bufio.Reader
	if k == Hijack {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(c.URL, "http://"))
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n"); err != nil {
			return nil, err
		}
		from = bufio.NewReader(conn)
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			return nil, err
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, errors.New(resp.Status)
		}
	} else {
		resp, err := c.Do(ctx, "/", nil)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { resp.Body.Close() })
		from = bufio.NewReader(resp.Body)
	}
	return func() error {
		line, err := from.ReadString('\n')
		if err == nil && line != Message {
			return errors.New("got " + line)
		}
		return err
	}, nil
}

// Message is what a stream over HTTP consists of.
const Message = "data: x\n"

// Upgraded is what begins a connection that was hijacked.
const Upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n"
