package lab

import (
	"context"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strconv"
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

// Command is a program that listens on a port of the loopback interface, with whatever it has
// started. Its methods may be called from several goroutines, Kill once.
type Command struct{ s *service }

// Start starts the command of the shell that is returned for a free port, in a process group of
// its own, and returns when it takes connections. It fails if the command ends before or does not within a minute.
func Start(ctx context.Context, command func(port string) (string, error)) (*Command, error) {
	number := freePort()
	line, err := command(number)
	if err != nil {
		return nil, err
	}
	s, err := launch(exec.Command("sh", "-c", line))
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", number)
	s.data, s.port = "http://"+address, number
	dialer := net.Dialer{Timeout: time.Second}
	takesConnections := func() bool {
		c, err := dialer.DialContext(ctx, "tcp", address)
		return err == nil && c.Close() == nil
	}
	return &Command{s}, s.await(ctx, takesConnections, "; it has to stay in the foreground, and to listen at "+address)
}

// Port returns where it listens.
func (c *Command) Port() string { return c.s.port }

// CPU returns the processor time that its processes have used so far. It fails once the command has
// ended, and where it is not Linux.
func (c *Command) CPU() (time.Duration, error) { return c.s.cpu() }

// Processes returns their ids.
func (c *Command) Processes() []int { return processGroup(c.s.process.Pid) }

// Kill ends them at once.
func (c *Command) Kill() { c.s.kill() }

// freePort returns a port of the loopback interface at which nobody answers. It is below
// those that systems give to whoever asks for any, from 32768 on, so that nobody gets it
// before the service does. It is not tried by listening there: a process that is being made
// meanwhile would have the listener too, and take connections for a moment.
func freePort() (number string) {
	const lowest, beyond = 20000, 32768
	for range 100 {
		number = strconv.Itoa(lowest + rand.IntN(beyond-lowest))
		c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", number), time.Second)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	return number
}
