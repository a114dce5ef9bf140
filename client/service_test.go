package client_test

import (
	"log/slog"
	"os"
	"time"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/server"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/store/pebble"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// service starts a service for an example, and returns its URL.
func service() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		panic(err)
	}
	log := slog.New(slog.DiscardHandler)
	st, err := pebble.Open(pebble.Options{Dir: dir, Sync: pebble.Never, Logger: log})
	if err != nil {
		panic(err)
	}
	exec := executor.Open(executor.Options{Store: st})
	d, err := dispatch.Open(dispatch.Options{
		Strategy: "fifo", Capacity: 256, Workers: 2, MaxBatch: 64, Run: exec.Run, Blocked: exec.Blocked,
	})
	if err != nil {
		panic(err)
	}
	s, err := server.Open(server.Options{
		Listen: "127.0.0.1:0",
		Options: httpfront.Options{
			AcceptLoops: 1, MaxBodyBytes: 64 << 20, MaxConnections: 100,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute, Logger: log,
		},
		Dispatcher: d, MaxKeyBytes: 4096, MaxValueBytes: 1 << 20, MaxBatchBytes: 4 << 20,
		Events: server.Events{Answered: func(string, string, int, served.Outcome, time.Duration) {}}, Slowest: new(slowest.Recorder),
	})
	if err != nil {
		panic(err)
	}
	return "http://" + s.Addr().String(), func() {
		s.Close()
		d.Close()
		exec.Close()
		_ = st.Close()
		_ = os.RemoveAll(dir)
	}
}
