// Bare is the least that a proxy on package httpfront may do: it reads a request, writes it to
// an upstream, reads the answer, and writes that. It has no queue, no metrics, no time-outs for
// the upstream, and trusts what that sends. loadtest/figures/proxies.sh compares the
// CPU of spillway proxy with it. It serves nothing but such loads.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/socket"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: bare LISTEN UPSTREAM, both HOST:PORT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// run serves until it is told to stop.
func run(listen, upstream string) error {
	debug.SetGCPercent(400) // as spillway proxy does
	listener, err := httpfront.Listen(listen)
	if err != nil {
		return err
	}
	began := time.Now()
	p := &proxy{upstream: upstream}
	front, err := httpfront.Open(httpfront.Options{
		AcceptLoops: 2, Handler: p, Now: func() int64 { return int64(time.Since(began)) }, MaxHeadBytes: 64 << 10, MaxBodyBytes: 16 << 20,
		MaxConnections: 16384, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}, listener)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	front.Close()
	return nil
}

type proxy struct {
	upstream string
	mu       sync.Mutex
	idle     []*conn
}

type conn struct {
	nc net.Conn
	r  *bufio.Reader
}

func (p *proxy) take() (*conn, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	nc, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return nil, err
	}
	nc = socket.NewConn(nc, 10*time.Second)
	return &conn{nc, bufio.NewReaderSize(nc, 16<<10)}, nil
}

func (p *proxy) give(c *conn) {
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
}

// NewCall is httpfront.Handler's.
func (p *proxy) NewCall(x *httpfront.Exchange) httpfront.Call { return &call{p: p, x: x} }

// Refused is httpfront.Handler's.
func (p *proxy) Refused(int64) {}

type call struct {
	p      *proxy
	x      *httpfront.Exchange
	fields []byte
	head   []byte
}

// The methods are httpfront.Call's.

func (c *call) Begin()                    { c.fields = c.fields[:0] }
func (c *call) Lines() string             { return "" }
func (c *call) Answered(int, bool, int64) {}
func (c *call) NoRoom() *httpfront.Problem {
	return &httpfront.Problem{Status: 503, Detail: "the bodies of other requests leave no room for this one"}
}

func (c *call) Field(name, value []byte) *httpfront.Problem {
	if !bytes.EqualFold(name, []byte("Connection")) {
		c.fields = append(append(append(append(c.fields, name...), ": "...), value...), "\r\n"...)
	}
	return nil
}

func (c *call) Head() (httpfront.Wanted, *httpfront.Problem) {
	if c.x.ContentLength() != 0 {
		return httpfront.Wanted{}, httpfront.BadRequest("requests have no body here")
	}
	return httpfront.Wanted{Stream: true}, nil
}

func (c *call) Serve() {
	if err := c.forward(); err != nil {
		c.x.Send(httpfront.Answer{Problem: &httpfront.Problem{Status: 502, Detail: err.Error()}})
	}
}

func (c *call) forward() error {
	up, err := c.p.take()
	if err != nil {
		return err
	}
	c.head = append(append(append(c.head[:0], c.x.RawMethod...), ' '), c.x.Target...)
	c.head = append(append(append(c.head, " HTTP/1.1\r\nHost: "...), c.x.Host...), "\r\n"...)
	c.head = append(append(c.head, c.fields...), "\r\n"...)
	if _, err = up.nc.Write(c.head); err == nil {
		err = c.relay(up)
	}
	if err != nil {
		_ = up.nc.Close()
		return err
	}
	c.p.give(up)
	return nil
}

// relay passes an answer on that has a length.
func (c *call) relay(up *conn) error {
	answer := httpfront.Head{Length: httpfront.None}
	line, err := up.r.ReadSlice('\n')
	if err != nil || len(line) < len("HTTP/1.1 200\r\n") {
		return fmt.Errorf("the upstream's answer begins with %q: %w", line, err)
	}
	if answer.Status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return err
	}
	var lines []byte
	for {
		if line, err = up.r.ReadSlice('\n'); err != nil || len(line) == 2 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if answer.Length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Connection")):
		default:
			answer.Dated = answer.Dated || bytes.EqualFold(name, []byte("Date"))
			lines = append(lines, line...)
		}
	}
	if err != nil {
		return err
	}
	answer.Lines = lines
	out := c.x.Start(&answer)
	for left := max(0, answer.Length); left > 0; {
		piece, err := up.r.Peek(min(left, max(1, up.r.Buffered())))
		if err != nil {
			return err
		}
		out = append(out, piece...)
		_, _ = up.r.Discard(len(piece))
		left -= len(piece)
	}
	c.x.End(out, nil)
	return nil
}
