package lab

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// System is how a contestant is started, filled and asked that knows nothing of the
// service: neither its settings, nor its admin plane, nor perhaps its protocol.
type System struct {
	// Command of the shell starts it in the foreground; {port} stands for the port that
	// it must listen on, and {dir} for its folder, which is empty.
	Command string
	// Fill writes so many keys.
	Fill func(ctx context.Context, at Place, keys uint64) error

	// What follows may be left out.

	// Targets are what it is sent in place of an operation.
	Targets func(op workload.Op, keys uint64) []workload.Target
	// Send sends a closed loop where the generator does not speak the protocol. What is
	// paced it is not sent then.
	Send func(ctx context.Context, at Place, o *workload.Options) (*result.Result, error)
}

// Place is where a system is.
type Place struct{ Port, Dir string }

// place is where r is.
func (r *rival) place() Place {
	u, err := url.Parse(r.server.data)
	if err != nil {
		return Place{Dir: r.dir}
	}
	return Place{Port: u.Port(), Dir: r.dir}
}

// startSystem starts a contestant that is a system, and fills it.
func (r *rival) startSystem(ctx context.Context, keys uint64) (err error) {
	if err = os.Mkdir(r.dir, 0o755); err != nil {
		return err
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil { // it may change its folder
		return err
	}
	if r.server, err = startCommand(ctx, strings.ReplaceAll(r.System.Command, "{dir}", r.dir)); err != nil {
		return err
	}
	if err = r.System.Fill(ctx, r.place(), keys); err != nil {
		r.server.kill()
	}
	return err
}

// skips says that a load cannot be sent to r.
func (r *rival) skips(load PairLoad) bool {
	return r.NoRanges && load.Op == workload.Scan || r.System != nil && r.System.Send != nil && load.open()
}
