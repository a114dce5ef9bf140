package lab

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// port stands for the port in a command, and in the URL of a target.
const port = "{port}"

// withPort returns targets in which the port is known.
func withPort(targets []workload.Target, number string) []workload.Target {
	targets = slices.Clone(targets)
	for i := range targets {
		targets[i].Name = targets[i].String() // which is the same in every run
		targets[i].URL = strings.ReplaceAll(targets[i].URL, port, number)
	}
	return targets
}

// startCommand starts a service by a command of the shell, on a free port of the loopback
// interface, and returns when it takes connections.
func startCommand(ctx context.Context, command string) (*service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	s, err := launch(exec.Command("sh", "-c", strings.ReplaceAll(command, port, number)))
	if err != nil {
		return nil, err
	}
	s.data, s.port = "http://"+address, number
	if err := s.awaitConnection(ctx, address); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// awaitConnection waits until the service takes connections.
func (s *service) awaitConnection(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: time.Second}
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("the service did not start (%v)%s; it has to stay in the foreground", s.outcome(), s.log.last())
		case <-timer.C:
			return fmt.Errorf("the service takes no connections at %s %v after its start%s", address, startPatience, s.log.last())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
