// Command peer runs what a user would run instead of the service. SPILLWAY_PEER names it; of
// the service's variables it takes SPILLWAY_LISTEN, SPILLWAY_DATA_DIR, SPILLWAY_SYNC (always
// or never) and SPILLWAY_CACHE_BYTES.
package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spillway-go/spillway/loadtest/peers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string) error {
	env := func(name, byDefault string) string { return cmp.Or(getenv("SPILLWAY_"+name), byDefault) }
	o := peers.Options{Name: env("PEER", "plain"), Dir: env("DATA_DIR", "./data"), Sync: env("SYNC", "always") == "always"}
	if sync := env("SYNC", "always"); !o.Sync && sync != "never" {
		return fmt.Errorf("SPILLWAY_SYNC: %q is neither always nor never", sync)
	}
	var err error
	if o.CacheBytes, err = strconv.ParseInt(env("CACHE_BYTES", "268435456"), 10, 64); err != nil || o.CacheBytes < 1 {
		return fmt.Errorf("SPILLWAY_CACHE_BYTES: %q is not a number of bytes", getenv("SPILLWAY_CACHE_BYTES"))
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", env("LISTEN", "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	return peers.Serve(ctx, l, o)
}
