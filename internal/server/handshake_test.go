package server

import (
	"crypto/tls"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

// A handshake has the read time-out to end, wherever it stops, and however often
// something comes.
func TestTLS_SlowHandshake(t *testing.T) {
	// A record of 512 bytes that says hello, of which some are missing.
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	for name, pieces := range map[string][]string{
		"nothing":           {""},
		"half a header":     {"\x16\x03"},
		"half a hello":      {hello},
		"a byte at a time":  {hello, "x", "x", "x", "x", "x", "x", "x", "x"},
		"records of a byte": {"\x16\x03\x01\x00\x01\x01", "\x16\x03\x01\x00\x01\x00", "\x16\x03\x01\x00\x01\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			certificate, _ := fronttest.SelfSigned(t)
			inVirtualTime(t, func(t *testing.T, s *service, p *fronttest.Pipes) {
				c := p.Dial()
				begin := time.Now()
				for _, piece := range pieces {
					_, _ = io.WriteString(c, piece)
					time.Sleep(time.Second)
				}
				_, err := io.ReadAll(c)
				require.NoError(t, err)
				require.Equal(t, 10*time.Second, time.Since(begin))
				synctest.Wait()
				require.Zero(t, s.Connections())
			}, func(o *setup) {
				o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
			})
		})
	}
}
