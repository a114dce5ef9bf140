package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
)

// What vegeta reads, and flags, become the load together.
func TestRun_Targets(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("X-All") != "1":
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/from-file" && r.Header.Get("X-Own") == "2" && string(body) == "own":
			w.WriteHeader(http.StatusCreated)
		case r.URL.Path == "/flag" && string(body) == "all":
			w.WriteHeader(http.StatusFound)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	})
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	targets := file("targets", "PUT "+url+"/from-file\nX-Own: 2\n@"+file("own", "own")+"\n")
	args := []string{
		"run", "--url", url, "--targets", targets, "--target", "2 POST /flag", "--body", file("all", "all"), "--header", "X-All: 1",
		"--rate", "300", "--duration", "300ms", "--connections", "4", "--slo", "1m", "--json", "-",
	}
	o := try(t, args...)
	require.Equal(t, exitOK, o.code, o)
	var r result.Result
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &r))
	require.Equal(t, map[string]int64{"201": r.Targets[1].Requests, "302": r.Targets[0].Requests}, r.Status)
	require.Equal(t, "POST /flag", r.Targets[0].Target)
	require.Equal(t, r.Requests, r.Served())
	require.Regexp(t, `(?m)^  POST /flag +\d+ +100 `, o.stderr)

	o = try(t, append(args, "--good", "302", "--engine", "portable")...)
	require.Equal(t, exitOK, o.code, o)
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &r))
	require.Equal(t, r.Status["302"], r.Served())
	require.Contains(t, o.stderr, "portable engine, HTTP/1.1")

	for _, tt := range []struct {
		args, words []string
	}{
		{[]string{"run", "--target", "GET"}, []string{"--target: bad target", "METHOD URL"}},
		{[]string{"run", "--target", "GET ftp://a/"}, []string{"--target: ", "ftp://a/"}},
		{[]string{"run", "--target", "GET /", "--url", "nowhere"}, []string{"--url", "nowhere"}},
		{[]string{"run", "--targets", dir + "/absent"}, []string{"--targets", "absent"}},
		{[]string{"run", "--targets", file("bad", "GET /a\nnonsense\n")}, []string{"--targets", "bad: line 2", "nonsense"}},
		{[]string{"run", "--targets", file("gone", "GET /a\n@"+dir+"/absent\n")}, []string{"gone: line 2", "absent"}},
		// The load is sent to one server, and what says another one is named.
		{[]string{"run", "--url", "http://127.0.0.1:1", "--targets", targets}, []string{"--targets: " + targets + `: "PUT ` + url + `/from-file": it is of another server than http://127.0.0.1:1,`}},
		{[]string{"run", "--url", "http://127.0.0.1:1", "--target", "GET " + url}, []string{`--target: "GET ` + url + `": it is of another server than http://127.0.0.1:1,`}},
		{[]string{"run", "--targets", file("two", "GET http://127.0.0.1:1/\n\nGET http://127.0.0.1:2/\n")}, []string{"--targets: " + dir + `/two: "GET http://127.0.0.1:2/": it is of another server`}},
		// Nobody's password is shown.
		{[]string{"run", "--url", "http://me:secret@127.0.0.1:1"}, []string{`--url: "http://me:xxxxx@127.0.0.1:1" is not`}},
		{[]string{"run", "--url", "http://me:sec/ret@127.0.0.1:1"}, []string{`--url: "http://me:xxxxx@127.0.0.1:1" is not`}},
		{[]string{"run", "--target", "GET http://me:secret@127.0.0.1:1/"}, []string{`--target: "GET http://me:xxxxx@127.0.0.1:1/": the URL`}},
		{[]string{"run", "--body", targets}, []string{"--body", "there is none"}},
		{[]string{"run", "--target", "GET /", "--body", dir + "/absent"}, []string{"--body", "absent"}},
		{[]string{"run", "--good", "fine"}, []string{"--good", "fine", "2xx"}},
		{[]string{"run", "--engine", "steam"}, []string{"--engine", "steam", "auto, epoll, portable"}},
		{[]string{"run", "--http", "3"}, []string{"--http", "auto, 1.1, 2"}},
		{[]string{"run", "--engine", "epoll", "--http", "2"}, []string{"--engine: epoll cannot send this"}},
		{[]string{"saturate", "--target", "nonsense"}, []string{"--target", "nonsense"}},
		{[]string{"compare", "--target", "GET /"}, []string{"--target", "--service"}},
		{[]string{"compare", "--service", "true {port}", "--strategies", "fifo"}, []string{"--strategies: not together with --service"}},
		{[]string{"compare", "--service", "a=true {port}", "--service", "a=false {port}"}, []string{"--service", "a name of its own"}},
		{[]string{"compare", "--service", "true {port}", "--workers", "3"}, []string{"service: a command is given no workers"}},
		{[]string{"compare", "--service", "true {port}", "--target", "GET /", "--mixes", "get=1"}, []string{"--mixes: it has no meaning for targets"}},
	} {
		try(t, tt.args...).requireFailed(t, exitUsage, tt.words...)
	}
	for _, args := range [][]string{{"--target", "GET /", "--out", dir + "/out"}, {"--service", "b=true {port}"}} {
		try(t, append([]string{"compare", "--service", "true"}, args...)...).requireFailed(t, exitUsage, `loadtest: --service: "true" does not say where the port goes: {port}`)
	}
}
