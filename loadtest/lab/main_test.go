package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
)

// The test binary is also a service, of a kind that its name tells: a link with
// one of these names is to the lab the service's binary.
const (
	serves       = "serves"       // until it is told to stop, or asked to /die
	refuses      = "refuses"      // to start
	panics       = "panics"       // when asked to /die
	neverStops   = "never-stops"  // when told to
	stopsBadly   = "stops-badly"  // with an exit code
	anything     = "anything"     // any HTTP service, at the port that is its argument
	servicePoint = "fake-service" // the folder in which the links are
)

func TestMain(m *testing.M) {
	if filepath.Base(filepath.Dir(os.Args[0])) == servicePoint {
		os.Exit(fakeService(filepath.Base(os.Args[0])))
	}
	// Otherwise the race detector holds up the end of every service by a second.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testenv.Main(m)
}

// fakeBinary returns the path of a fake service.
func fakeBinary(t *testing.T, kind string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), servicePoint)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Symlink(self, filepath.Join(dir, kind)))
	return filepath.Join(dir, kind)
}

func fakeService(kind string) int {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println("spillway v0 (a fake)")
		return 0
	}
	if kind == refuses {
		fmt.Fprintln(os.Stderr, "spillway: SPILLWAY_WORKERS: -1 is not at least 1")
		return 2
	}
	if kind == anything {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.URL.Path) })
		fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Args[1], handler))
		return 1
	}
	dir := os.Getenv("SPILLWAY_DATA_DIR")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "spillway_store_compactions_total 3\ngo_memstats_mallocs_total 12345")
	})
	mux.HandleFunc("/environment", func(w http.ResponseWriter, _ *http.Request) {
		var settings []string
		for _, variable := range os.Environ() {
			if strings.HasPrefix(variable, "SPILLWAY_") {
				settings = append(settings, variable)
			}
		}
		_ = json.NewEncoder(w).Encode(settings)
	})
	mux.HandleFunc("/die", func(http.ResponseWriter, *http.Request) {
		if kind == panics {
			fmt.Fprint(os.Stderr, "panic: something is wrong\n\ngoroutine 1 [running]:\nmain.main()\n")
		}
		os.Exit(3)
	})
	for _, plane := range []string{"admin", "data"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		go func() { _ = http.Serve(listener, mux) }()
		_ = json.NewEncoder(os.Stderr).Encode(map[string]string{"msg": "listening", "plane": plane, "addr": listener.Addr().String()})
	}
	for range stop {
		if kind != neverStops {
			break
		}
	}
	// What a store leaves behind: a table, and files that change.
	for _, name := range []string{"000001.sst", "MANIFEST-000001", "sub/options"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			panic(err)
		}
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			panic(err)
		}
	}
	if kind == stopsBadly {
		return 1
	}
	return 0
}
