//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An app of each answers GET /hello with hello, POST /sum with the SHA-256 of the body, and GET
// /pieces with three pieces, a tenth of a second apart.
const (
	wsgiApp = `
import hashlib, time
def app(environ, start_response):
    path = environ["PATH_INFO"]
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/sum":
        body = environ["wsgi.input"]
        sum = hashlib.sha256()
        while piece := body.read(65536):
            sum.update(piece)
        yield sum.hexdigest().encode()
    elif path == "/pieces":
        for _ in range(3):
            yield b"piece\n"
            time.sleep(0.1)
    else:
        yield b"hello"
`
	asgiApp = `
import asyncio, hashlib
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    if scope["path"] == "/sum":
        sum, more = hashlib.sha256(), True
        while more:
            event = await receive()
            sum.update(event.get("body", b""))
            more = event.get("more_body", False)
        body = sum.hexdigest().encode()
    elif scope["path"] == "/pieces":
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"piece\n", "more_body": True})
            await asyncio.sleep(0.1)
        body = b""
    else:
        body = b"hello"
    await send({"type": "http.response.body", "body": body})
`
	phpApp = `<?php
$path = parse_url($_SERVER["REQUEST_URI"], PHP_URL_PATH);
if ($path == "/sum") echo hash("sha256", file_get_contents("php://input"));
elseif ($path == "/pieces") for ($i = 0; $i < 3; $i++) { echo "piece\n"; @ob_flush(); flush(); usleep(100000); }
else echo "hello";
`
	nodeApp = `
const http = require("http"), crypto = require("crypto")
const server = http.createServer((q, a) => {
  if (q.url == "/sum") {
    const sum = crypto.createHash("sha256")
    q.on("data", d => sum.update(d)); q.on("end", () => a.end(sum.digest("hex")))
  } else if (q.url == "/pieces") {
    let n = 0
    const timer = setInterval(() => { a.write("piece\n"); if (++n == 3) { clearInterval(timer); a.end() } }, 100)
  } else a.end("hello")
})
server.on("upgrade", (q, socket) => {
  socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
  socket.on("data", d => socket.write(d)); socket.on("error", () => {}); socket.on("end", () => socket.end())
})
server.keepAliveTimeout = 500
server.listen(process.argv[3], process.argv[2])
`
	nginxConf = `daemon off; worker_processes 1; pid nginx.pid; error_log /dev/null crit;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 5;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server { listen HOST:PORT; location / { return 200 hello; } }
}
`
)

// What people run is served behind the proxy as it is without.
func TestProxy_Upstreams(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file, app string
		command         string // HOST, PORT and the folder DIR are replaced
		env             []string
		static          bool // it knows /hello alone
		upgrades        bool
	}{
		{name: "gunicorn", file: "app.py", app: wsgiApp, command: "gunicorn --chdir DIR --log-level error -w 2 --threads 4 --keep-alive 1 -b HOST:PORT app:app"},
		{name: "uvicorn", file: "app.py", app: asgiApp, command: "uvicorn --app-dir DIR --log-level error --timeout-keep-alive 1 --host HOST --port PORT app:app"},
		{name: "php", file: "app.php", app: phpApp, command: "php -q -S HOST:PORT DIR/app.php", env: []string{"PHP_CLI_SERVER_WORKERS=4"}},
		{name: "node", file: "app.js", app: nodeApp, command: "node DIR/app.js HOST PORT", upgrades: true},
		{name: "nginx", file: "nginx.conf", app: nginxConf, command: "nginx -p DIR -c DIR/nginx.conf", static: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := exec.LookPath(tt.name)
			require.NoError(t, err, "%s is missing: make deps", tt.name)
			address := freeAddresses(t, 1)[0]
			host, port, err := net.SplitHostPort(address)
			require.NoError(t, err)
			dir := t.TempDir()
			replace := strings.NewReplacer("HOST", host, "PORT", port, "DIR", dir)
			require.NoError(t, os.WriteFile(filepath.Join(dir, tt.file), []byte(replace.Replace(tt.app)), 0o600))
			words := strings.Fields(replace.Replace(tt.command))
			upstream := exec.Command(words[0], words[1:]...)
			upstream.Env = append(os.Environ(), tt.env...)
			upstream.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its workers
			upstream.WaitDelay = 5 * time.Second
			var said bytes.Buffer
			upstream.Stdout, upstream.Stderr = &said, &said
			ended := make(chan struct{})
			require.NoError(t, startProcess(upstream, syscall.SIGKILL, ended))
			t.Cleanup(func() {
				_ = syscall.Kill(-upstream.Process.Pid, syscall.SIGINT)
				select {
				case <-ended:
				case <-time.After(5 * time.Second):
					_ = syscall.Kill(-upstream.Process.Pid, syscall.SIGKILL)
					<-ended
				}
				if t.Failed() {
					t.Log(said.String())
				}
			})
			s := startProxy(t, "http://"+address)
			s.eventually("its upstream is there", func() bool { return s.ready() == http.StatusOK })
			behindProxy(t, s, tt.static)
			if tt.upgrades {
				upgraded(t, s)
			}
			s.eventually("no place is lost", func() bool { return s.metrics().sum("spillway_workers_busy") == 0 })
			require.Zero(t, s.metrics().sum("spillway_requests_total", `code="502"`))
			s.stop()
		})
	}
}

// behindProxy has an upstream serve through the proxy, many clients at once.
func behindProxy(t *testing.T, s *service, static bool) {
	t.Helper()
	get := func(path string) string {
		resp, err := http.Get(s.dataURL(path))
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
		return string(body)
	}
	var clients sync.WaitGroup
	var wrong sync.Map
	for range 8 {
		clients.Go(func() {
			for range 25 {
				resp, err := http.Get(s.dataURL("/hello"))
				if err != nil {
					wrong.Store(err.Error(), true)
					continue
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if string(body) != "hello" || err != nil || resp.StatusCode != http.StatusOK {
					wrong.Store(fmt.Sprint(resp.StatusCode, string(body), err), true)
				}
			}
		})
	}
	clients.Wait()
	wrong.Range(func(what, _ any) bool { t.Error(what); return true })
	head, err := http.Head(s.dataURL("/hello"))
	require.NoError(t, err)
	require.NoError(t, head.Body.Close())
	require.Equal(t, http.StatusOK, head.StatusCode)
	if static {
		return
	}
	require.Equal(t, "piece\npiece\npiece\n", get("/pieces"))
	for _, size := range []int{0, 5, 64 << 10, 3 << 20} { // within the buffer, and past it
		for _, chunked := range []bool{false, true} {
			body := bytes.Repeat([]byte("x"), size)
			var reader io.Reader = bytes.NewReader(body)
			if chunked {
				reader = struct{ io.Reader }{reader}
			}
			r, err := http.NewRequest(http.MethodPost, s.dataURL("/sum"), reader)
			require.NoError(t, err)
			if size > 5 {
				r.Header.Set("Expect", "100-continue")
			}
			resp, err := (&http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}).Do(r)
			require.NoError(t, err)
			sum, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			want := sha256.Sum256(body)
			if chunked && strings.HasPrefix(resp.Header.Get("X-Powered-By"), "PHP") {
				continue // PHP's own server takes no chunks
			}
			require.Equal(t, hex.EncodeToString(want[:]), string(sum), "%d bytes, in chunks: %t", size, chunked)
		}
	}
	// Clients that leave within their answer.
	for range 20 {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.dataURL(""), "http://"))
		require.NoError(t, err)
		_, err = io.WriteString(c, "GET /pieces HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	require.Equal(t, "hello", get("/hello"))
}

// upgraded has a connection speak another protocol.
func upgraded(t *testing.T, s *service) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.dataURL(""), "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	for range 3 {
		_, err = io.WriteString(c, "hello\n")
		require.NoError(t, err)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "hello\n", line)
	}
}
