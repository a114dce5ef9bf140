//go:build integration

package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What docs/operations.md says of 512 MB: 127 clients that hardly read what they have
// asked for leave the container alive, and others served.
func dockerSlowReaders(t *testing.T, e *engine) {
	const clients = 127
	for kind, request := range map[string]string{
		"GET":    "GET /v0/entity?id=k001 HTTP/1.1\r\nHost: x\r\n\r\n",
		"range":  "GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\n\r\n",
		"NDJSON": "GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n",
	} {
		t.Run(kind, func(t *testing.T) {
			c := e.start(t, "--memory", "512000000", "--memory-swap", "512000000", "-e", "SPILLWAY_WRITE_TIMEOUT=10m", "-e", "SPILLWAY_SYNC=never")
			good, err := c.connect()
			require.NoError(t, err)
			t.Cleanup(good.close)
			value := strings.Repeat("v", mib)
			const keys = 200 // more than the cache
			put := func() {
				for i := range keys {
					good.mustPut(t, fmt.Sprintf("k%03d", i), value)
				}
			}
			get := func() {
				for i := range keys {
					a, err := good.do(http.MethodGet, entity(fmt.Sprintf("k%03d", i)), "")
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, a.status)
					require.Equal(t, value, a.body)
				}
			}
			put()
			get()
			slow := make([]*client, clients)
			for i := range slow {
				slow[i], err = c.connect()
				require.NoError(t, err)
				t.Cleanup(slow[i].close)
				_, err = io.WriteString(slow[i].conn, request)
				require.NoError(t, err)
				_, err = io.ReadFull(slow[i].r, make([]byte, twoHundred))
				require.NoError(t, err)
			}
			put()
			get()
			require.Equal(t, "running false 0", e.inspect(t, c.id, "{{.State.Status}} {{.State.OOMKilled}} {{.RestartCount}}"))
			t.Logf("RssAnon %s, at most %s resident", c.status(t, "RssAnon"), c.status(t, "VmHWM"))
			for _, client := range slow { // or the drain waits for them
				client.close()
			}
			c.stop()
		})
	}
}

// What is too much for half a CPU is late or turned away, and what was acknowledged is
// there after a kill.
func dockerHalfCPU(t *testing.T, e *engine) {
	c := e.start(t, "--cpus", "0.5")
	require.LessOrEqual(t, c.metrics().sum("go_sched_gomaxprocs_threads"), 2.0, "the least that Go takes")
	const clients, each = 64, 100
	var written [clients][]int
	require.NoError(t, concurrently(clients, func(i int) error {
		conn, err := c.connect()
		if err != nil {
			return err
		}
		defer conn.close()
		for n := range each {
			a, err := conn.do(http.MethodPut, entity(fmt.Sprint(i, "-", n)), fmt.Sprint(n), "Spillway-Timeout-Ms: 60000")
			switch {
			case err != nil:
				return err
			case a.status == http.StatusCreated:
				written[i] = append(written[i], n)
			case a.shed() == "":
				return fmt.Errorf("status %d: %s", a.status, a.body)
			}
		}
		return nil
	}))
	e.do(t, "docker", "kill", c.id)
	e.do(t, "docker", "start", c.id)
	c.find()
	conn, err := c.connect()
	require.NoError(t, err)
	defer conn.close()
	total := 0
	for i := range written {
		for _, n := range written[i] {
			a, err := conn.do(http.MethodGet, entity(fmt.Sprint(i, "-", n)), "")
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(n), a.body)
			total++
		}
	}
	require.Positive(t, total)
	t.Logf("%d of %d writes acknowledged, all there after a kill", total, clients*each)
	c.stop()
}
