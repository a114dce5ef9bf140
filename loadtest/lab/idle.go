package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// idlers are connections that do nothing, but for one request now and then. They
// are used by one goroutine.
type idlers []net.Conn

// openIdle opens n connections that stay, and learns how much memory each takes.
func (r *rival) openIdle(ctx context.Context, n int) error {
	before, err := r.resident(ctx)
	if err != nil {
		return err
	}
	var dialer net.Dialer
	for range n {
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(r.server.data, "http://"))
		if err != nil {
			return fmt.Errorf("%d idle connections: %w", n, err)
		}
		r.idle = append(r.idle, conn)
		// Each asks before the next is opened, so that none waits in the server's
		// backlog.
		if err := r.idle[len(r.idle)-1:].ask(r.server.data); err != nil {
			return fmt.Errorf("%d idle connections: %w", n, err)
		}
	}
	after, err := r.resident(ctx)
	r.idleBytes = (after - before) / float64(n)
	return err
}

// ask sends a request over each connection, and waits for the answer: it fails if
// one of them has been closed.
func (all idlers) ask(url string) error {
	request := "GET /v0/entity?id=key000000000000 HTTP/1.1\r\nHost: " + strings.TrimPrefix(url, "http://") + "\r\n\r\n"
	reader := bufio.NewReader(nil)
	for i, conn := range all {
		if err := askOver(conn, reader, request); err != nil {
			return fmt.Errorf("connection %d of %d: %w", i+1, len(all), err)
		}
	}
	return nil
}

func askOver(conn net.Conn, reader *bufio.Reader, request string) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	reader.Reset(conn)
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || answer.Close {
		return fmt.Errorf("%s, to be closed: %v", answer.Status, answer.Close)
	}
	return nil
}

// close resets them, as the generator does: nothing of them stays behind.
func (all idlers) close() {
	for _, conn := range all {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// resident returns how many bytes of memory the contestant has, once it is quiet.
func (r *rival) resident(ctx context.Context) (float64, error) {
	if _, err := r.quiet(ctx, 1); err != nil {
		return 0, err
	}
	return r.server.resident()
}
