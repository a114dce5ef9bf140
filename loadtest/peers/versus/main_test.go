package versus

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/loadtest/peers"
)

// TestMain makes the test binary a peer as well, when it is started with a data
// folder.
func TestMain(m *testing.M) {
	if os.Getenv("SPILLWAY_DATA_DIR") != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := peers.Serve(ctx, os.Getenv, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		return
	}
	// Otherwise the race detector holds up the end of every peer by a second.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testenv.Main(m)
}
