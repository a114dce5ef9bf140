package adaptertest

import (
	"bufio"
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
	strategies.ReasonFull: "503", strategies.ReasonDraining: "503", strategies.ReasonExpired: "504", strategies.ReasonAbandoned: "503",
}

// HTTP is a client of the server at that URL.
type HTTP string

// Get sends a GET.
func (url HTTP) Get(ctx context.Context, path string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(url)+path, nil)
	if err != nil {
		return nil, err
	}
	// A connection that is kept could be closed, as idle, by the end of another test at the
	// moment it is used again.
	req.Close = true
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	return http.DefaultClient.Do(req)
}

// Call is Client's.
func (url HTTP) Call(ctx context.Context, path string, headers ...string) Answer {
	resp, err := url.Get(ctx, path, headers...)
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

// Open is Client's. The context's end closes the connection.
func (url HTTP) Open(ctx context.Context, k Kind) (func() error, error) {
	var from *bufio.Reader
	if k == Hijack {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(string(url), "http://"))
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
		resp, err := url.Get(ctx, "/")
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
