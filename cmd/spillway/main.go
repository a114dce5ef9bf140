// Command spillway is the service. With no arguments it serves; see
// spillway --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/logging"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/version"
	_ "github.com/spillway-go/spillway/strategies/custom"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code. The end of ctx is
// to a serving process what SIGTERM is.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	memory := config.Memory(os.DirFS("/"), debug.SetMemoryLimit(-1))
	in := config.Input{
		Args: args,
		Env:  env,
		// Since Go 1.25 GOMAXPROCS follows the limit of a container.
		Machine:  config.Machine{CPUs: runtime.GOMAXPROCS(0), Memory: memory},
		ReadFile: secure.ReadFile,
		Version:  "spillway " + version.Get().String(),
	}
	inv, err := config.Parse(in)
	if err != nil {
		complain(stderr, err)
		return exitUsage
	}
	switch inv.Command {
	case config.Print, config.CheckConfig:
		for _, warning := range inv.Warnings {
			complain(stderr, errors.New(warning))
		}
		_, _ = io.WriteString(stdout, inv.Text)
		return exitOK
	case config.Healthcheck:
		err = healthcheck(ctx, &inv.Config)
	case config.Backup:
		err = writeBackup(ctx, &inv.Config, inv.Dir, stdout)
	case config.Restore:
		err = restore(ctx, &inv.Config, inv.Dir, stdout, stderr)
	case config.Check:
		err = check(ctx, &inv.Config, inv.Dir, stdout, stderr)
	case config.Copy:
		err = copyStore(ctx, inv, stdout, stderr)
	default: // Serve and Proxy
		// Whoever reads stderr must not be able to stop the service, nor its end.
		log := logging.Open(stderr, func(missing uint64) error { return reportMissing(&inv.Config, stderr, missing) })
		defer log.Close(lastLines)
		stderr = log
		settings := &settings{in: in, stdout: stdout}
		if inv.Command == config.Proxy {
			err = serveProxy(ctx, inv, settings, memory, log)
		} else {
			err = serve(ctx, inv, settings, memory, log)
		}
	}
	switch {
	case errors.Is(err, errDamage), errors.Is(err, errDifferent):
		return exitFailed // said line by line
	case err != nil:
		complain(stderr, err)
		return exitFailed
	}
	return exitOK
}

// complain writes the error as one line.
func complain(stderr io.Writer, err error) {
	_, _ = fmt.Fprintln(stderr, "spillway:", strings.Join(strings.Fields(err.Error()), " "))
}
