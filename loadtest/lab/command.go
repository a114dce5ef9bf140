package lab

import (
	"context"
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
	dialer := net.Dialer{Timeout: time.Second}
	takesConnections := func() bool {
		c, err := dialer.DialContext(ctx, "tcp", address)
		return err == nil && c.Close() == nil
	}
	return s, s.await(ctx, takesConnections, "; it has to stay in the foreground, and to listen at "+address)
}
