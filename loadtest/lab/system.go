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

// System says how to start, fill and ask a contestant that has neither the service's
// settings nor its admin plane, and perhaps another protocol.
type System struct {
	// Command starts it in the foreground, by the shell. {port} stands for the port to
	// listen on, and {dir} for an empty folder.
	Command string
	// Fill writes that many keys.
	Fill func(ctx context.Context, at Place, keys uint64) error

	// What follows may be left out.

	// Targets returns the requests that stand for an operation.
	Targets func(op workload.Op, keys uint64) []workload.Target
	// Send sends a closed loop, if the generator does not speak the protocol. Such a system
	// gets no paced loads.
	Send func(ctx context.Context, at Place, o *workload.Options) (*result.Result, error)
}

// Place says where a system listens, and where its folder is.
type Place struct{ Port, Dir string }

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
