package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) {
	testenv.Main(m,
		// Started by package signal with the first Notify, for the life of the process.
		goleak.IgnoreTopFunction("os/signal.signal_recv"),
		goleak.IgnoreTopFunction("os/signal.loop"),
	)
}

// instance is a service that runs within the test.
type instance struct {
	t     *testing.T
	log   lines
	addr  map[string]string // by plane
	end   context.CancelFunc
	ended chan int // the exit code
}

// lines collects a log and hands out its lines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	next chan string // has room for more lines than a test makes
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(p)) { // several may come at once
		l.next <- line
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// environment returns the environment of a small service on free ports.
func environment(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{
		"SPILLWAY_LISTEN=127.0.0.1:0", "SPILLWAY_ADMIN_LISTEN=127.0.0.1:0", "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data"),
		"SPILLWAY_CACHE_BYTES=8MiB", "SPILLWAY_LOG_FORMAT=json", "SPILLWAY_DRAIN_TIMEOUT=10m",
	}, more...)
}

// launch starts a service and waits until both planes listen.
func launch(t *testing.T, env ...string) *instance {
	t.Helper()
	s := &instance{t: t, log: lines{next: make(chan string, 1000)}, addr: map[string]string{}, ended: make(chan int, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	go func() { s.ended <- run(ctx, nil, environment(t, env...), io.Discard, &s.log) }()
	t.Cleanup(func() { s.stop() })
	for len(s.addr) < 2 {
		select {
		case line := <-s.log.next:
			var entry struct{ Msg, Plane, Addr string }
			require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
			if entry.Msg == "listening" {
				s.addr[entry.Plane] = entry.Addr
			}
		case code := <-s.ended:
			s.ended <- code
			require.Fail(t, "the service has ended", "%d: %s", code, s.log.String())
		}
	}
	return s
}

// stop drains the service and returns its exit code.
func (s *instance) stop() int {
	s.end()
	code := <-s.ended
	s.ended <- code
	return code
}

// get returns the status and the body at a URL.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestRun_ServesAndStops(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		strategy string
		capacity int
		env      []string
	}{
		{"auto", 4096, nil},
		{"auto", 9, []string{"SPILLWAY_QUEUE_CAPACITY=9", "SPILLWAY_POOLS=split", "SPILLWAY_WORKERS=2", "SPILLWAY_SYNC=never", "SPILLWAY_DRAIN_DELAY=1ms"}},
		{"lifo", 256, []string{"SPILLWAY_STRATEGY=lifo", "SPILLWAY_STORE_DELAY=1us", "SPILLWAY_SYNC=interval:1h"}},
		{"fifo", 256, []string{"SPILLWAY_STRATEGY=fifo", "SPILLWAY_WORKERS=auto"}},
		{"sync", 256, []string{"SPILLWAY_STRATEGY=sync", "SPILLWAY_WORKERS=auto"}}, // in case it is switched
		{"fifo", 256, []string{"SPILLWAY_STRATEGY=fifo", "SPILLWAY_MODE=observe"}},
		{"fifo", 256, []string{"SPILLWAY_STRATEGY=fifo", "SPILLWAY_MODE=observe", "SPILLWAY_WORKERS=auto"}},
	} {
		s := launch(t, tt.env...)
		status, _ := get(t, "http://"+s.addr["data"]+"/v0/entity?id=a")
		require.Equal(t, 404, status)
		status, _ = get(t, "http://"+s.addr["admin"]+"/readyz")
		require.Equal(t, 200, status)

		// An answer is counted when it has been written, which its client may see first.
		metrics := ""
		require.Eventually(t, func() bool {
			_, metrics = get(t, "http://"+s.addr["admin"]+"/metrics")
			return strings.Contains(metrics, `code="404",method="GET"`)
		}, time.Minute, time.Millisecond)
		for _, series := range []string{
			"spillway_build_info{", "spillway_strategy_info{strategy=", "spillway_workers_busy{strategy=", "spillway_store_writable 1",
			"spillway_store_disk_bytes ", "spillway_connections ", "spillway_shed_total{", "go_goroutines ",
		} {
			require.Contains(t, metrics, series)
		}

		_, body := get(t, "http://"+s.addr["admin"]+"/config")
		var config struct {
			Addresses map[string]string
			Settings  map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(body), &config))
		require.Equal(t, s.addr, config.Addresses)
		require.Equal(t, tt.strategy, config.Settings["SPILLWAY_STRATEGY"])
		require.EqualValues(t, tt.capacity, config.Settings["SPILLWAY_QUEUE_CAPACITY"])

		learned := slices.Contains(tt.env, "SPILLWAY_WORKERS=auto")
		require.Equal(t, learned, config.Settings["SPILLWAY_WORKERS"] == "auto")
		_, body = get(t, "http://"+s.addr["admin"]+"/strategy")
		require.Equal(t, learned, strings.Contains(body, `"learned":{"limit":`), body)
		observed := slices.Contains(tt.env, "SPILLWAY_MODE=observe")
		require.Equal(t, learned && !observed, strings.Contains(metrics, "spillway_concurrency_limit{strategy="))
		require.Equal(t, !learned || !observed, strings.Contains(metrics, "spillway_workers{strategy="))
		require.Contains(t, metrics, "spillway_would_shed_total{", "the mode can be changed")
		require.Contains(t, metrics, "\nspillway_slo_seconds 0\n")
		require.Contains(t, metrics, "\nspillway_objective_seconds 0.1\n")
		require.Empty(t, config.Settings["SPILLWAY_SLO"])

		require.Equal(t, exitOK, s.stop(), s.log.String())
		require.Contains(t, s.log.String(), `"msg":"stopped"`)
	}
}

// The first signal has the service stop. The second ends the waiting, but for a copy of the first.
func TestSignals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		second    os.Signal
		after     time.Duration
		abandoned bool
	}{
		"a copy":         {syscall.SIGTERM, 0, false},
		"a late copy":    {syscall.SIGTERM, copied, false},
		"another signal": {syscall.SIGINT, 0, true},
		"a second one":   {syscall.SIGTERM, copied + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				p := &process{settings: &settings{log: slog.New(slog.DiscardHandler)}, end: end, signals: make(chan os.Signal, 2)}
				done := make(chan error, 1)
				go func() {
					<-ctx.Done()
					time.Sleep(tt.after)
					p.signals <- tt.second
					time.Sleep(time.Second) // the drain
					done <- nil
				}()
				p.signals <- syscall.SIGTERM
				err := p.untilStopped(done, func() error { return errSecondSignal })
				if tt.abandoned {
					require.ErrorIs(t, err, errSecondSignal)
					require.NoError(t, <-done)
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

// try runs a program that does not serve.
func try(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, env, &out, &errs)
	return code, out.String(), errs.String()
}

// requireLine asserts that s is one line with those words.
func requireLine(t *testing.T, s string, words ...string) {
	t.Helper()
	require.Equal(t, 1, strings.Count(s, "\n"), s)
	require.True(t, strings.HasSuffix(s, "\n"), s)
	for _, word := range words {
		require.Contains(t, s, word)
	}
}

func TestRun_Usage(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := try(t, nil, "--version")
	require.Equal(t, exitOK, code)
	requireLine(t, stdout, "spillway ", "commit ", "go1.")
	require.Empty(t, stderr)

	code, stdout, stderr = try(t, nil, "--help")
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, "--queue-capacity")
	require.Empty(t, stderr)

	code, stdout, stderr = try(t, []string{"SPILLWAY_STRATEGY=nonsense"})
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	requireLine(t, stderr, append(strategies.Names(), "SPILLWAY_STRATEGY", `"nonsense"`)...)
}

func TestRun_FailedStarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := launch(t, "SPILLWAY_DATA_DIR="+dir)
	other := t.TempDir()
	notes := filepath.Join(other, "notes.txt")
	require.NoError(t, os.WriteFile(notes, nil, 0o600))
	for env, words := range map[string][]string{
		"SPILLWAY_DATA_DIR=" + dir:                 {"in use", dir},
		"SPILLWAY_DATA_DIR=" + notes:               {"is a file", notes, "SPILLWAY_DATA_DIR"},
		"SPILLWAY_DATA_DIR=" + other:               {"notes.txt", other, "SPILLWAY_DATA_DIR"},
		"SPILLWAY_LISTEN=" + s.addr["data"]:        {"in use", "data plane", s.addr["data"], "SPILLWAY_LISTEN"},
		"SPILLWAY_ADMIN_LISTEN=" + s.addr["admin"]: {"in use", "admin plane", s.addr["admin"], "SPILLWAY_ADMIN_LISTEN"},
		"SPILLWAY_LISTEN=192.0.2.1:8080":           {"no address of this machine", "192.0.2.1:8080", "SPILLWAY_LISTEN"},
	} {
		code, _, stderr := try(t, environment(t, env))
		require.Equal(t, exitFailed, code, env)
		requireLine(t, stderr, words...)
	}
	code, _, stderr := try(t, environment(t, "SPILLWAY_TLS_CERT=absent.pem", "SPILLWAY_TLS_KEY=absent.pem"))
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "absent.pem")
	require.Equal(t, exitOK, s.stop(), "the first one is not disturbed")
}

// Where rights are missing the line says whose they are to be.
func TestCannotUse(t *testing.T) {
	t.Parallel()
	denied := &fs.PathError{Op: "open", Path: "/data/LOCK", Err: fs.ErrPermission}
	err := cannotUse(denied, "/data")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, fmt.Sprintf("/data must belong to the user that the service runs as, uid %d", os.Getuid()))
	require.Equal(t, io.EOF, cannotUse(io.EOF, "/data"))
	require.EqualError(t, cannotUse(fmt.Errorf("lock: %w", datadir.ErrInUse), "/data"),
		"the data folder /data: it is in use by a running service; stop that one, or set SPILLWAY_DATA_DIR to another folder")
}

// One line says what runs and where to look at it.
func TestRun_SaysWhatRuns(t *testing.T) {
	t.Parallel()
	s := launch(t, "SPILLWAY_STRATEGY=lifo", "SPILLWAY_WORKERS=3", "SPILLWAY_QUEUE_CAPACITY=17", "SPILLWAY_SYNC=never")
	s.stop()
	var said []map[string]any
	for line := range strings.Lines(s.log.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		if entry["msg"] == "serving" {
			said = append(said, entry)
		}
	}
	require.Len(t, said, 1)
	for key, want := range map[string]any{
		"strategy": "lifo", "workers": 3.0, "capacity": 17.0, "store": "pebble", "sync": "never", "console": "http://" + s.addr["admin"] + "/",
	} {
		require.Equal(t, want, said[0][key], key)
	}
	require.NotEmpty(t, said[0]["version"])
	require.NotEmpty(t, said[0]["data"])
}

// Objective and mode are those that were set, until they are changed live: then the
// configuration shows what is in force, and the log has a line for each change.
func TestRun_ChangesObjectiveAndMode(t *testing.T) {
	t.Parallel()
	s := launch(t, "SPILLWAY_SLO=none")
	config := func() (settings map[string]any) {
		_, body := get(t, "http://"+s.addr["admin"]+"/config")
		var config struct{ Settings map[string]any }
		require.NoError(t, json.Unmarshal([]byte(body), &config))
		return config.Settings
	}
	require.Equal(t, "none", config()["SPILLWAY_SLO"])
	require.Equal(t, "enforce", config()["SPILLWAY_MODE"])
	_, metrics := get(t, "http://"+s.addr["admin"]+"/metrics")
	require.Contains(t, metrics, "\nspillway_objective_seconds 0\n")

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+s.addr["admin"]+"/strategy", strings.NewReader(`{"slo":"250ms","mode":"observe"}`))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "250ms", config()["SPILLWAY_SLO"])
	require.Equal(t, "observe", config()["SPILLWAY_MODE"])
	_, metrics = get(t, "http://"+s.addr["admin"]+"/metrics")
	require.Contains(t, metrics, "\nspillway_slo_seconds 0.25\n")
	require.Contains(t, metrics, "\nspillway_objective_seconds 0.25\n")
	require.Contains(t, metrics, "\nspillway_strategy_switches_total 0\n")
	require.Equal(t, exitOK, s.stop(), s.log.String())
	require.Contains(t, s.log.String(), `"msg":"objective changed","from":"none","to":"250ms"`)
	require.Contains(t, s.log.String(), `"msg":"mode changed","from":"enforce","to":"observe"`)
	require.NotContains(t, s.log.String(), "strategy switched")
}

func TestRun_Healthcheck(t *testing.T) {
	t.Parallel()
	s := launch(t, "SPILLWAY_ADMIN_TOKEN=secret")
	_, port, err := net.SplitHostPort(s.addr["admin"])
	require.NoError(t, err)
	for _, listen := range []string{s.addr["admin"], ":" + port, "0.0.0.0:" + port} {
		code, stdout, stderr := try(t, nil, "healthcheck", "--admin-listen="+listen)
		require.Equal(t, exitOK, code, stderr)
		require.Empty(t, stdout+stderr)
	}
	require.Equal(t, exitOK, s.stop())
	gone := testenv.Nobody(t) // that of the service may be somebody else's by now
	code, _, stderr := try(t, nil, "healthcheck", "--admin-listen="+gone)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "healthcheck", gone)

	code, _, stderr = try(t, nil, "healthcheck", "--admin-listen=:0")
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "SPILLWAY_ADMIN_LISTEN")
}

func TestRun_HealthcheckSaysWhyNot(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answers := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"detail":"no space is left"}`)
	}), ReadHeaderTimeout: time.Minute}
	go func() { _ = answers.Serve(listener) }()
	t.Cleanup(func() { _ = answers.Close() })
	code, _, stderr := try(t, nil, "healthcheck", "--admin-listen="+listener.Addr().String())
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "503", "no space is left")
}

func TestRun_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"spillway.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))

	der, err = x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	other := filepath.Join(dir, "other.pem")
	require.NoError(t, os.WriteFile(other, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))

	s := launch(t, "SPILLWAY_TLS_CERT="+cert, "SPILLWAY_TLS_KEY="+key)
	status, _ := get(t, "https://"+s.addr["data"]+"/v0/entity?id=a")
	require.Equal(t, 404, status)
	status, _ = get(t, "https://"+s.addr["admin"]+"/strategy")
	require.Equal(t, 200, status)
	code, _, stderr := try(t, nil, "healthcheck", "--admin-listen="+s.addr["admin"], "--tls-cert="+cert, "--tls-key="+key)
	require.Equal(t, exitOK, code, stderr)
	code, _, stderr = try(t, nil, "backup", filepath.Join(dir, "backup"), "--admin-listen="+s.addr["admin"], "--tls-cert="+cert, "--tls-key="+key)
	require.Equal(t, exitOK, code, stderr)
	// A token is not sent to anybody else.
	code, _, stderr = try(t, nil, "backup", filepath.Join(dir, "backup2"), "--admin-listen="+s.addr["admin"], "--tls-cert="+other, "--tls-key="+key)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "certificate is not the one in "+other)
	require.Equal(t, exitOK, s.stop(), s.log.String())
}

// put writes a key and expects that it is acknowledged.
func put(t *testing.T, s *instance, key, value string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+s.addr["data"]+"/v0/entity?id="+key, strings.NewReader(value))
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)
}

func TestRun_BackupRestoreCheck(t *testing.T) {
	t.Parallel()
	data, dir, restored := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
	s := launch(t, "SPILLWAY_DATA_DIR="+data, "SPILLWAY_ADMIN_TOKEN=secret")
	put(t, s, "k", "value")
	admin := "--admin-listen=" + s.addr["admin"]

	code, _, stderr := try(t, nil, "backup", dir, admin)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "token", "SPILLWAY_ADMIN_TOKEN_FILE")
	code, stdout, stderr := try(t, []string{"SPILLWAY_ADMIN_TOKEN=secret"}, "backup", dir, admin)
	require.Equal(t, exitOK, code, stderr)
	require.Empty(t, stderr)
	requireLine(t, stdout, dir, " files, ", " bytes, in ")
	code, _, stderr = try(t, []string{"SPILLWAY_ADMIN_TOKEN=secret"}, "backup", dir, admin)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, dir+" exists already")
	code, _, stderr = try(t, []string{"SPILLWAY_ADMIN_TOKEN=secret"}, "backup", filepath.Join(data, "x"), admin)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "in the data folder", filepath.Join(data, "backups"))
	require.Equal(t, exitOK, s.stop())

	gone := testenv.Nobody(t)
	code, _, stderr = try(t, nil, "backup", dir, "--admin-listen="+gone)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, "does not answer", gone)
	for _, folder := range []string{data, dir} {
		code, stdout, stderr = try(t, nil, "check", folder)
		require.Equal(t, exitOK, code, stderr)
		requireLine(t, stdout, folder+" is sound: 1 key, 6 bytes of keys and values")
	}
	code, _, stderr = try(t, []string{"SPILLWAY_DATA_DIR=" + data}, "restore", dir)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, data, "is not empty")
	code, stdout, stderr = try(t, []string{"SPILLWAY_DATA_DIR=" + restored}, "restore", dir)
	require.Equal(t, exitOK, code, stderr)
	requireLine(t, stdout, dir, restored, "1 key")

	s = launch(t, "SPILLWAY_DATA_DIR="+restored)
	_, body := get(t, "http://"+s.addr["data"]+"/v0/entity?id=k")
	require.Equal(t, "value", body)
	require.Equal(t, exitOK, s.stop())
	code, stdout, stderr = try(t, []string{"SPILLWAY_DATA_DIR=" + restored}, "check")
	require.Equal(t, exitOK, code, stderr)
	requireLine(t, stdout, restored+" is sound")
}

func TestRun_Damage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := launch(t, "SPILLWAY_DATA_DIR="+dir)
	put(t, s, "k", "value")
	require.Equal(t, exitOK, s.stop())
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	require.NoError(t, err)
	for _, manifest := range manifests {
		require.NoError(t, os.Truncate(manifest, 10))
	}
	code, stdout, stderr := try(t, []string{"SPILLWAY_DATA_DIR=" + dir}, "check")
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	requireLine(t, stderr, "MANIFEST-", "spillway restore")

	code, _, stderr = try(t, []string{"SPILLWAY_DATA_DIR=" + dir + "2"}, "restore", dir)
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, dir, "is no finished backup")

	// On what a restore has left unfinished no service starts.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SPILLWAY-RESTORE-UNFINISHED"), nil, 0o600))
	code, _, stderr = try(t, environment(t, "SPILLWAY_DATA_DIR="+dir))
	require.Equal(t, exitFailed, code)
	requireLine(t, stderr, dir, "spillway restore")
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":6060": "127.0.0.1:6060", "0.0.0.0:6060": "127.0.0.1:6060", "[::]:6060": "[::1]:6060",
		"127.0.0.1:1": "127.0.0.1:1", "[::1]:1": "[::1]:1", "10.0.0.7:1": "10.0.0.7:1", "host:1": "host:1",
	} {
		got, err := reachable(listen)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := reachable("127.0.0.1:0")
	require.Error(t, err)
}

// Whoever waits in a delayed store when the drain time-out is over is not waited
// for: the store is closed, as is said by there being no other complaint.
func TestRun_StopsWhileRequestsWaitInTheStore(t *testing.T) {
	t.Parallel()
	s := launch(t, "SPILLWAY_STRATEGY=sync", "SPILLWAY_STORE_DELAY=200ms", "SPILLWAY_STORE_PARALLEL=1", "SPILLWAY_DRAIN_TIMEOUT=1ms")
	const requests = 500 // 100 s of work
	for range requests {
		c, err := net.Dial("tcp", s.addr["data"])
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET /v0/entity?id=a HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		_, metrics := get(t, "http://"+s.addr["admin"]+"/metrics")
		return strings.Contains(metrics, `spillway_tasks_submitted_total{strategy="sync"} 500`)
	}, time.Minute, time.Millisecond)
	require.Equal(t, 1, s.stop())
	require.Contains(t, s.log.String(), "not all requests were finished within the drain time-out of 1ms")
	require.NotContains(t, s.log.String(), "without closing")
}

// A store with one hand does one operation after the other, whatever it is and
// however many workers there are.
func TestRun_StoreParallel(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"sync", "fifo"} {
		s := launch(t, "SPILLWAY_STRATEGY="+strategy, "SPILLWAY_WORKERS=8", "SPILLWAY_STORE_DELAY=20ms", "SPILLWAY_STORE_PARALLEL=1", "SPILLWAY_SYNC=never")
		requests := []struct{ method, path string }{
			{http.MethodGet, "entity?id=a"}, {http.MethodPut, "entity?id=a"}, {http.MethodDelete, "entity?id=b"}, {http.MethodGet, "entities?start=a"},
		}
		start := time.Now()
		var all sync.WaitGroup
		errs := make([]error, 2*len(requests))
		for i := range errs {
			r := requests[i%len(requests)]
			all.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), r.method, "http://"+s.addr["data"]+"/v0/"+r.path, http.NoBody)
				if err == nil {
					client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
					var resp *http.Response
					if resp, err = client.Do(req); err == nil {
						err = resp.Body.Close()
					}
				}
				errs[i] = err
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		require.GreaterOrEqual(t, time.Since(start), 160*time.Millisecond, strategy)
		require.Equal(t, 0, s.stop())
	}
}

// A configuration file is checked without starting anything, and a wrong one keeps from starting,
// each with one line that says where and why.
func TestRun_ConfigurationFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(good, []byte("workers: 3\nslo: 1s\nupstream: http://a:1\n"), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("workers: 3\nslo: soon\n"), 0o600))
	code, stdout, stderr := try(t, nil, "config", "check", good)
	require.Equal(t, exitOK, code)
	require.Equal(t, good+" is right: 3 settings of the proxy\n", stdout)
	require.Empty(t, stderr)
	for _, args := range [][]string{{"config", "check", bad}, {"--config", bad}, {"proxy", "--config", bad}, {"healthcheck", "--config", bad}} {
		code, stdout, stderr = try(t, nil, args...)
		require.Equal(t, exitUsage, code)
		require.Empty(t, stdout)
		requireLine(t, stderr, bad+`:2: bad value "soon" for SPILLWAY_SLO (--slo)`)
	}

	s := launch(t, "SPILLWAY_CONFIG="+good)
	_, body := get(t, "http://"+s.addr["admin"]+"/config")
	require.Contains(t, body, `"SPILLWAY_WORKERS":"`+good+`:1"`)
	require.Contains(t, body, `"SPILLWAY_LISTEN":"environment"`)
	require.Contains(t, s.log.String(), good+":3: upstream is ignored: the service has no use for it")
	require.Equal(t, exitOK, s.stop())
}

// A configuration file is read as far as it may be long, and nothing is waited for: what is no regular
// file is refused, but by config check, which takes a pipe.
func TestRun_NoRegularFile(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for file, want := range map[string]string{
		"/dev/zero": "it is no regular file", fifo: "it is no regular file", os.TempDir(): "it is no regular file", "absent": "no such file or directory",
	} {
		for _, setting := range []string{"SPILLWAY_CONFIG", "SPILLWAY_ADMIN_TOKEN_FILE"} {
			var stderr bytes.Buffer
			require.Equal(t, exitUsage, run(t.Context(), []string{"healthcheck"}, []string{setting + "=" + file}, io.Discard, &stderr))
			require.Contains(t, stderr.String(), fmt.Sprintf("bad value %q for %s", file, setting))
			require.Contains(t, stderr.String(), want)
		}
	}
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"config", "check", "/dev/zero"}, nil, &stdout, &stderr))
	require.Equal(t, "spillway: /dev/zero: it cannot be read: it has more bytes than the 65536 that are allowed\n", stderr.String())

	written := make(chan error, 1)
	go func() { written <- os.WriteFile(fifo, []byte("workers: 2\n"), 0) }() // waits for a reader
	require.Equal(t, exitOK, run(t.Context(), []string{"config", "check", fifo}, nil, &stdout, &stderr))
	require.NoError(t, <-written)
	require.Contains(t, stdout.String(), "fifo is right: 1 settings of the service\n")
}
