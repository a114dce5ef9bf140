package peers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
)

// Serve runs a peer until ctx ends, and logs to stderr where it listens, as the
// service does. It takes SPILLWAY_PEER, the name of the peer, and these of the
// service's variables: SPILLWAY_LISTEN, SPILLWAY_ADMIN_LISTEN, SPILLWAY_DATA_DIR,
// SPILLWAY_SYNC (always or never), SPILLWAY_CACHE_BYTES, SPILLWAY_STORE_DELAY and
// SPILLWAY_WORKERS (of the delay alone).
func Serve(ctx context.Context, getenv func(string) string, stderr io.Writer) error {
	o, err := options(getenv)
	if err != nil {
		return err
	}
	p, err := Open(o)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	log.Info("listening", "plane", "admin", "addr", p.AdminAddr().String())
	log.Info("listening", "plane", "data", "addr", p.Addr().String())
	select {
	case <-ctx.Done():
		return p.Close()
	case err := <-p.Failed():
		return err
	}
}

func options(getenv func(string) string) (o Options, err error) {
	env := func(name, byDefault string) string { return cmp.Or(getenv("SPILLWAY_"+name), byDefault) }
	o = Options{
		Name:        env("PEER", "plain"),
		Listen:      env("LISTEN", "127.0.0.1:8080"),
		AdminListen: env("ADMIN_LISTEN", "127.0.0.1:6060"),
		Dir:         env("DATA_DIR", "./data"),
		Delay:       getenv("SPILLWAY_STORE_DELAY"),
	}
	switch sync := env("SYNC", "always"); sync {
	case "always", "never":
		o.Sync = sync == "always"
	default:
		return o, fmt.Errorf("SPILLWAY_SYNC: %q is neither always nor never", sync)
	}
	if o.CacheBytes, err = strconv.ParseInt(env("CACHE_BYTES", "268435456"), 10, 64); err != nil || o.CacheBytes < 1 {
		return o, fmt.Errorf("SPILLWAY_CACHE_BYTES: %q is not a number of bytes", getenv("SPILLWAY_CACHE_BYTES"))
	}
	if o.Workers, err = strconv.Atoi(env("WORKERS", strconv.Itoa(2*runtime.GOMAXPROCS(0)))); err != nil || o.Workers < 1 {
		return o, fmt.Errorf("SPILLWAY_WORKERS: %q is not at least 1", getenv("SPILLWAY_WORKERS"))
	}
	return o, nil
}
