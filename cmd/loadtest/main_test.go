package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// outcome is how the program ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// try runs the program.
func try(t *testing.T, args ...string) outcome {
	t.Helper()
	return tryUntil(t.Context(), args...)
}

// tryUntil runs the program until the end of ctx, which is to it what Ctrl-C is.
func tryUntil(ctx context.Context, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// requireFailed asserts that the program said one line with those words.
func (o outcome) requireFailed(t *testing.T, code int, words ...string) {
	t.Helper()
	require.Equal(t, code, o.code, o)
	require.Equal(t, 1, strings.Count(o.stderr, "\n"), o.stderr)
	require.True(t, strings.HasPrefix(o.stderr, "loadtest: "), o.stderr)
	for _, word := range words {
		require.Contains(t, o.stderr, word)
	}
}

// serve starts a server for the time of a test, and returns its URL.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// store answers as an empty store does.
func store(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Method == http.MethodPut {
		w.WriteHeader(http.StatusCreated)
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

// closed returns the URL of a server that is not there.
func closed(t *testing.T) string {
	t.Helper()
	return "http://" + testenv.Nobody(t)
}

func TestRun_SaysWhatItIs(t *testing.T) {
	t.Parallel()
	o := try(t, "--version")
	require.Equal(t, exitOK, o.code)
	require.Regexp(t, `^loadtest .+ \(commit .+, go1\..+\)\n$`, o.stdout)
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"fill", "--help"}, {"saturate", "--help"}, {"compare", "--help"}, {"report", "--help"}} {
		o := try(t, args...)
		require.Equal(t, exitOK, o.code)
		require.Contains(t, o.stdout, "progress")
		require.NotContains(t, o.stdout, "${")
		require.Empty(t, o.stderr)
	}
	require.Contains(t, try(t, "compare", "--help").stdout, "pool-or-not")
	what, err := scenario.New("name", "title", "question", scenario.Settings{"strategy": {"fifo"}})
	require.NoError(t, err)
	for _, command := range []string{"compare", "simulate"} {
		help := strings.Join(strings.Fields(try(t, command, "--help").stdout), " ")
		for _, usual := range []string{
			fmt.Sprintf("is run, %d times by default", what.Repetitions), fmt.Sprintf("is measured, %v by default", what.Duration),
			fmt.Sprintf("sent before, %v by default", what.Warmup), fmt.Sprintf("is good, %v by default", what.SLO),
		} {
			require.Contains(t, help, usual+", or as the scenario says", command)
		}
	}
	require.Contains(t, strings.Join(strings.Fields(try(t, "simulate", "--help").stdout), " "), fmt.Sprintf("gives up, after %v by default", what.Timeout))
}

func TestRun_Usage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := "http://127.0.0.1:1"
	typo := filepath.Join(dir, "typo.yaml")
	require.NoError(t, os.WriteFile(typo, []byte("title: T\nquestion: Q\nload: {conections: 1}\n"), 0o600))
	endless := filepath.Join(dir, "endless.yaml")
	require.NoError(t, os.WriteFile(endless, []byte("title: T\nquestion: Q\n"), 0o600))
	for _, tt := range []struct {
		args  string
		words []string
	}{
		{"", []string{"run", "compare", "--help"}},
		{"walk", []string{"walk"}},
		{"run --nonsense", []string{"--nonsense"}},
		{"run --rate -1", []string{"--rate", "-1", "max"}},
		{"run --rate fast", []string{"--rate", "fast"}},
		{"run --rate NaN", []string{"--rate", "NaN"}},
		{"run --duration 0s", []string{"--duration: 0s is not more than 0"}},
		{"run --warmup -1s", []string{"--warmup", "-1s"}},
		{"run --connections 0", []string{"--connections: 0 is not 1 to"}},
		{"run --loops -1", []string{"--loops", "-1"}},
		{"run --keys 0", []string{"--keys: 0 is not 1 to"}},
		{"run --mix put", []string{"--mix", "put"}},
		{"run --key-distribution normal", []string{"--key-distribution", "normal", "zipf"}},
		{"run --value-size 9-1", []string{"--value-size", "9-1"}},
		{"run --arrivals often", []string{"--arrivals", "often", "poisson"}},
		{"run --priority 8", []string{"--priority", "8"}},
		{"run --scan-limit 0", []string{"--scan-limit", "0"}},
		{"run --slo 0", []string{"--slo", "0"}},
		{"run --timeout 0s", []string{"--timeout", "0"}},
		{"run --header nonsense", []string{"--header", "nonsense"}},
		{"run --url 127.0.0.1", []string{"--url", "127.0.0.1", "http://host:port"}},
		{"run --assert p99<fast", []string{"--assert", "fast"}},
		{"run --assert speed<1", []string{"--assert", "speed", "p99"}},
		{"run --assert goodput>101%", []string{"--assert", "goodput>101%", "at most 100%"}},
		{"run --assert goodput>100%", []string{"--assert", "goodput>100%", "nothing is above 100%"}},
		{"run --json " + dir + "/absent/a.json", []string{"--json", "absent"}},
		{"run --hdr " + dir + "/absent/a.hdr", []string{"--hdr", "absent"}},
		{"fill", []string{"--bytes"}},
		{"fill --bytes 0", []string{"--bytes", "0"}},
		{"fill --bytes much", []string{"--bytes", "much"}},
		{"fill --bytes 1 --timeout 0s", []string{"--timeout", "0"}},
		{"saturate --rate 0", []string{"--rate", "0"}},
		{"saturate --rate 10 --max-rate 5", []string{"--max-rate", "5"}},
		{"saturate --warmup 0s", []string{"--warmup", "0"}},
		{"compare", []string{"--scenario", "--strategies"}},
		{"compare --scenario nonsense", []string{"nonsense", "pool-or-not", "queue-length"}},
		{"compare --scenario " + typo, []string{"typo.yaml:3: load.conections: unknown", "connections"}},
		{"compare --scenario ./absent.yaml", []string{"absent.yaml"}},
		{"compare --scenario workers --strategies best", []string{"unknown strategy"}},
		{"run --retries 1,10ms", []string{"--retries", "1,10ms", "3,10ms"}},
		{"compare --scenario big-store --fill 0", []string{"fill", "\"0\" is not at least 1"}},
		{"compare --scenario workers --repetitions -1", []string{"--repetitions", "-1"}},
		{"compare --scenario workers --duration -1s", []string{"--duration", "-1s"}},
		{"compare --scenario workers --slo -1s", []string{"--slo", "-1s"}},
		{"compare --scenario workers --warmup -1s", []string{"--warmup", "-1s"}},
		{"compare --short --strategies fifo", []string{"--short"}},
		{"compare --short --scenario " + endless, []string{"--short", "endless"}},
		{"compare --strategies fifi", append(strategies.Names(), "fifi")},
		{"compare --strategies fifo --rates 0", []string{"rate", `"0"`}},
		{"compare --strategies fifo --mixes put=x", []string{"mix", "put=x"}},
		{"compare --strategies fifo --binary " + dir + "/absent", []string{"--binary", "absent"}},
		// What only the other command knows, this one does not list and then refuse.
		{"compare --strategies fifo --nodes 3", []string{"unknown flag --nodes", "(see loadtest compare --help)"}},
		{"simulate --restart", []string{"unknown flag --restart", "(see loadtest simulate --help)"}},
		{"--restart", []string{"unknown flag --restart", "(see loadtest --help)"}},
		{"simulate --scenario nonsense", []string{"nonsense", "pool-or-not"}},
		{"simulate --short --scenario " + endless, []string{"--short", "endless"}},
		{"report", []string{"path"}},
		{"report x -o " + dir + "/absent/a.html", []string{"-o", "absent"}},
	} {
		o := try(t, strings.Fields(strings.ReplaceAll(tt.args, "URL", url))...)
		require.Equal(t, exitUsage, o.code, "%s: %v", tt.args, o)
		require.Empty(t, o.stdout, tt.args)
		o.requireFailed(t, exitUsage, tt.words...)
	}
}

func TestRun_UnreachableServer(t *testing.T) {
	t.Parallel()
	url := closed(t)
	for _, args := range [][]string{{"run"}, {"fill", "--bytes=1KB"}, {"saturate"}} {
		try(t, append(args, "--url", url)...).requireFailed(t, exitFailed, url, "refused")
	}
	try(t, "run", "--url", serve(t, store), "--admin", url).requireFailed(t, exitFailed, url, "refused")
}

func TestRun_MeasuresAndReports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	result, hdr, html, markdown := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.hdr"), filepath.Join(dir, "a.html"), filepath.Join(dir, "a.md")
	o := try(t, "run", "--url", serve(t, store), "--rate=200", "--duration=500ms", "--connections=4", "--seed=7", "--header=Authorization: Bearer x",
		"--mix=put=50,get=50", "--json", result, "--hdr", hdr, "--assert=completed>1", "--assert=max<1h")
	require.Equal(t, exitOK, o.code, o)
	require.Empty(t, o.stderr, "no progress where nobody looks")
	require.Contains(t, o.stdout, "p99")

	var fields map[string]any
	data, err := os.ReadFile(result)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &fields))
	for _, name := range []string{
		"offered_rps", "completed_rps", "goodput_rps", "requests", "status", "shed", "errors", "latency_ms", "served_latency_ms",
		"server_cpu_us_per_request", "seed",
	} {
		require.Contains(t, fields, name)
	}
	require.EqualValues(t, 7, fields["seed"])
	require.Contains(t, fields["command"], "--rate=200")
	require.NotContains(t, fields["command"], "Bearer")
	text, err := os.ReadFile(hdr)
	require.NoError(t, err)
	require.Contains(t, string(text), "Percentile")

	o = try(t, "report", result, "-o", "-", "--markdown", markdown)
	require.Equal(t, exitOK, o.code, o)
	require.True(t, strings.HasPrefix(o.stdout, "<!doctype html>") || strings.HasPrefix(o.stdout, "<!DOCTYPE html>"), "%.100s", o.stdout)
	require.True(t, strings.HasSuffix(strings.TrimSpace(o.stdout), "</html>"), "nothing else is there")
	require.NoFileExists(t, "-")
	try(t, "report", result, "-o", "-", "--markdown", "-").requireFailed(t, exitUsage, "- would be written over")
	o = try(t, "report", result, "-o", html, "--markdown", markdown)
	require.Equal(t, exitOK, o.code, o)
	require.Contains(t, o.stdout, html)
	require.FileExists(t, html)
	require.FileExists(t, markdown)
}

func TestRun_AssertionsDecideTheExitCode(t *testing.T) {
	t.Parallel()
	args := []string{"run", "--url", serve(t, store), "--rate=100", "--duration=200ms", "--connections=2"}
	o := try(t, append(args, "--assert=errors==0", "--assert=completed>1000000", "--assert=errors==1")...)
	o.requireFailed(t, exitFailed, "2 assertions of 3 failed", "completed>1000000")
	require.Contains(t, o.stdout, "p99", "the result is shown all the same")
}

// A server that knows nothing of what is asked serves no put, whatever the gets
// may make of it.
func TestRun_NotFoundIsNoAnswerToAPut(t *testing.T) {
	t.Parallel()
	args := []string{"run", "--url", serve(t, http.NotFound), "--rate=200", "--duration=300ms", "--connections=2", "--slo=1m", "--assert=goodput>=99%", "--mix"}
	try(t, append(args, "put=100")...).requireFailed(t, exitFailed, "goodput>=99% fails: it is 0%")
	o := try(t, append(args, "get=100")...)
	require.Equal(t, exitOK, o.code, o)
	require.Regexp(t, `misses +(\d+) of \d+ gets found no value: fill the store first with`, o.stdout)
}

func TestRun_ReportsWhatItHasWhenInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		store(w, r)
		if requests.Add(1) == 20 {
			cancel()
		}
	})
	o := tryUntil(ctx, "run", "--url", url, "--rate=200", "--duration=1h", "--connections=2")
	o.requireFailed(t, exitFailed, "partial", "interrupted")
	require.Contains(t, o.stdout, "p99")
}

func TestRun_ShowsProgressWhenAsked(t *testing.T) {
	t.Parallel()
	url := serve(t, store)
	o := try(t, "--progress", "run", "--url", url, "--rate=100", "--duration=1200ms", "--connections=2")
	require.Equal(t, exitOK, o.code, o)
	require.Regexp(t, `\r +\d+%  \d+/s  0 errors`, o.stderr)
	o = try(t, "run", "--no-progress", "--url", url, "--rate=100", "--duration=100ms", "--connections=2")
	require.Equal(t, exitOK, o.code, o)
	require.Empty(t, o.stderr)
}

func TestRun_ResultsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		return // only Linux has a disk that is always full
	}
	for _, flag := range []string{"--json", "--hdr"} {
		o := try(t, "run", "--url", serve(t, store), "--rate=100", "--duration=100ms", "--connections=2", flag, "/dev/full")
		o.requireFailed(t, exitFailed, "/dev/full", "no space")
		require.Contains(t, o.stdout, "p99", "the result is shown all the same")
	}
}

// What goes to stdout can be read by programs: nothing else is there.
func TestRun_WritesToStdout(t *testing.T) {
	t.Parallel()
	args := []string{"run", "--url", serve(t, store), "--rate=100", "--duration=100ms", "--connections=2", "--slo=1m", "--assert=errors==0"}
	o := try(t, append(args, "--json=-")...)
	require.Equal(t, exitOK, o.code, o)
	var r result.Result
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &r))
	require.Positive(t, r.Requests)
	require.Contains(t, o.stderr, "errors==0 holds")
	o = try(t, append(args, "--hdr=-")...)
	require.Equal(t, exitOK, o.code, o)
	require.True(t, strings.HasPrefix(strings.TrimSpace(o.stdout), "Value"), o.stdout)
	try(t, append(args, "--json=-", "--hdr=-")...).requireFailed(t, exitUsage, "only one of them")
	require.NoFileExists(t, "-")
}

func TestFill_PutsEveryKeyOnce(t *testing.T) {
	t.Parallel()
	var bytes, puts atomic.Int64
	o := try(t, "fill", "--bytes=20KB", "--value-size=100", "--connections=3", "--url", serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		bytes.Add(n)
		puts.Add(1)
		w.WriteHeader(http.StatusCreated)
	}))
	require.Equal(t, exitOK, o.code, o)
	require.EqualValues(t, 200, puts.Load())
	require.EqualValues(t, 20_000, bytes.Load())
	require.Contains(t, o.stdout, "filled 20 kB")
	require.Contains(t, o.stdout, "--mix get=100 --keys 200 ")
}

// What is refused is put again; what fails for another reason is not there.
func TestFill_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	fill := func(status int) outcome {
		var puts atomic.Int64
		return try(t, "fill", "--bytes=2KB", "--value-size=100", "--connections=1", "--url", serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if puts.Add(1)%4 == 0 {
				w.WriteHeader(status)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}))
	}
	fill(http.StatusInternalServerError).requireFailed(t, exitFailed, "5 of 20 puts failed (500: 5)")
	refused := fill(http.StatusServiceUnavailable)
	require.Equal(t, exitOK, refused.code, refused)
}

func TestSaturate_SaysWhatItFound(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	o := try(t, "saturate", "--url", serve(t, store), "--rate=50", "--max-rate=50", "--duration=300ms", "--warmup=100ms",
		"--connections=2", "--slo=1m", "--json", file)
	require.Equal(t, exitOK, o.code, o)
	require.Contains(t, o.stdout, "offered, /s")
	require.FileExists(t, file)
}

func TestCompare_KeepsDifferentSettingsApart(t *testing.T) {
	t.Parallel()
	folder := func(c compareCommand) string {
		what, err := c.scenario(nil)
		require.NoError(t, err)
		dir, err := c.folder(what, nil, &workload.Options{})
		require.NoError(t, err)
		return dir
	}
	command := func(strategies ...string) compareCommand {
		c := compareCommand{comparison: comparison{grid: newGrid("compare")}}
		reflect.ValueOf(c.Flags).Elem().Field(0).Set(reflect.ValueOf(strategies))
		return c
	}
	fifo := command("fifo")
	require.Regexp(t, `^reports/comparison-[0-9a-f]{8}$`, folder(fifo))
	require.Equal(t, folder(fifo), folder(fifo))
	longer := fifo
	longer.Duration = time.Minute
	require.NotEqual(t, folder(fifo), folder(longer))
	workers := command()
	workers.Scenario = "workers"
	require.Equal(t, "reports/workers", folder(workers))
}

func TestPercent_DoesNotReachTheThreshold(t *testing.T) {
	t.Parallel()
	for share, want := range map[float64]string{0.98999: "98.99%", 0.99: "99.00%", 1: "100.00%", 0.5: "50.00%", 0: "0.00%"} {
		require.Equal(t, want, percent(share))
	}
}

func TestReport_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	html := filepath.Join(dir, "a.html")
	try(t, "report", filepath.Join(dir, "absent.json"), "-o", html).requireFailed(t, exitUsage, "loadtest: "+dir+"/absent.json: no such file or directory")
	try(t, "report", dir, "-o", html).requireFailed(t, exitUsage, dir, "comparison.json")
	require.NoFileExists(t, html)
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"loadtest": nil,
		"loadtest run --rate 1.5x --mix put=1,get=2":                      {"run", "--rate", "1.5x", "--mix", "put=1,get=2"},
		"loadtest --assert 'p99<50ms' ''":                                 {"--assert", "p99<50ms", ""},
		`loadtest 'it'\''s'`:                                              {"it's"},
		"loadtest --admin-token '(secret)' '--admin-token=(secret)'":      {"--admin-token", "a", "--admin-token=b"},
		"loadtest --header 'authorization: (secret)' '--header=X: y'":     {"--header", "authorization: Bearer x", "--header=X: y"},
		"loadtest '--header=Authorization: (secret)' --admin-token-other": {"--header=Authorization: Bearer x", "--admin-token-other"},
		"loadtest --header 'Cookie: (secret)' '--header=X-Api-Key: (secret)' --target 'GET http://key:80/'": {
			"--header", "Cookie: a=b", "--header=X-Api-Key:c", "--target", "GET http://key:80/",
		},
	} {
		require.Equal(t, want, commandLine(args))
	}
}
