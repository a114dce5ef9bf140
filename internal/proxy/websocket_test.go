package proxy

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wsFrame is a frame of RFC 6455 that is whole in itself.
type wsFrame struct {
	opcode  byte
	payload []byte
}

const wsText, wsBinary, wsClose, wsPing, wsPong = 1, 2, 8, 9, 10

func writeFrame(w io.Writer, f wsFrame, masked bool) error {
	b := []byte{0x80 | f.opcode, 0}
	switch n := len(f.payload); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n)) //nolint:gosec // it fits
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	payload := f.payload
	if masked {
		mask := [4]byte{1, 2, 3, 4}
		b[1] |= 0x80
		b = append(b, mask[:]...)
		payload = append([]byte(nil), payload...)
		for i := range payload {
			payload[i] ^= mask[i%4]
		}
	}
	_, err := w.Write(append(b, payload...))
	return err
}

func readFrame(r io.Reader, masked bool) (f wsFrame, err error) {
	var head [2]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return f, err
	}
	if head[0]&0x80 == 0 || head[1]&0x80 != 0 != masked {
		return f, http.ErrNotSupported
	}
	n := uint64(head[1] &^ 0x80)
	var long [8]byte
	switch n {
	case 126:
		_, err = io.ReadFull(r, long[6:])
		n = binary.BigEndian.Uint64(long[:])
	case 127:
		_, err = io.ReadFull(r, long[:])
		n = binary.BigEndian.Uint64(long[:])
	}
	var mask [4]byte
	if err == nil && masked {
		_, err = io.ReadFull(r, mask[:])
	}
	f = wsFrame{head[0] & 15, make([]byte, n)}
	if err == nil {
		_, err = io.ReadFull(r, f.payload)
	}
	for i := range f.payload {
		f.payload[i] ^= mask[i%4]
	}
	return f, err
}

func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455 wants it
	return base64.StdEncoding.EncodeToString(sum[:])
}

// echoFrames is a server of WebSockets: it returns what it gets, answers pings, tells by itself
// to a text that says so that it closes, and returns after the end.
func echoFrames(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Version") != "13" {
		http.Error(w, "no WebSocket", http.StatusUpgradeRequired)
		return
	}
	c, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
		acceptOf(r.Header.Get("Sec-Websocket-Key"))+"\r\n\r\n")
	for {
		f, err := readFrame(buffered, true)
		if err != nil {
			return
		}
		switch {
		case f.opcode == wsPing:
			f.opcode = wsPong
		case string(f.payload) == "close":
			f = wsFrame{wsClose, []byte("\x03\xe8bye")}
		}
		if writeFrame(c, f, false) != nil || f.opcode == wsClose {
			return
		}
	}
}

// A WebSocket's frames pass both ways as they are, whatever their length, without a place, and so
// does the end, whoever begins it, with or without saying so.
func TestProxy_WebSocket(t *testing.T) {
	t.Parallel()
	var ended atomic.Int64
	f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer ended.Add(1)
		echoFrames(w, r)
	}), func(o *Options) { o.Concurrency = 1 })
	large := []byte(strings.Repeat("frame ", 50<<10))
	ends := func(sent, want wsFrame) func(*testing.T, net.Conn, io.Reader) {
		return func(t *testing.T, c net.Conn, in io.Reader) {
			t.Helper()
			require.NoError(t, writeFrame(c, sent, true))
			got, err := readFrame(in, false)
			require.NoError(t, err)
			require.Equal(t, want, got)
			_, err = readFrame(in, false)
			require.ErrorIs(t, err, io.EOF)
		}
	}
	for name, end := range map[string]func(*testing.T, net.Conn, io.Reader){
		"the client closes": ends(wsFrame{wsClose, []byte("\x03\xe8")}, wsFrame{wsClose, []byte("\x03\xe8")}),
		"the server closes": ends(wsFrame{wsText, []byte("close")}, wsFrame{wsClose, []byte("\x03\xe8bye")}),
		"the client leaves": func(t *testing.T, c net.Conn, _ io.Reader) {
			t.Helper()
			require.NoError(t, c.Close())
		},
	} {
		before := ended.Load()
		c, err := net.Dial("tcp", f.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		const key = "dGhlIHNhbXBsZSBub25jZQ=="
		// The first frame comes with the head.
		_, err = io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: "+key+
			"\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\x82\x00\x00\x00\x00hi")
		require.NoError(t, err)
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-Websocket-Accept"), "that of the RFC's example")
		got, err := readFrame(in, false)
		require.NoError(t, err)
		require.Equal(t, wsFrame{wsText, []byte("hi")}, got)
		// The only place is free.
		require.Equal(t, http.StatusUpgradeRequired, f.do(t, "GET", "/", nil).status)
		before++
		for _, sent := range []wsFrame{{wsText, []byte("hello")}, {wsText, nil}, {wsBinary, large[:200]}, {wsBinary, large[:70000]}, {wsBinary, large}, {wsPing, []byte("there?")}} {
			wrote := make(chan error, 1)
			go func() { wrote <- writeFrame(c, sent, true) }()
			got, err := readFrame(in, false)
			require.NoError(t, err)
			require.NoError(t, <-wrote)
			if sent.opcode == wsPing {
				sent.opcode = wsPong
			}
			require.Equal(t, sent.opcode, got.opcode)
			require.Equal(t, string(sent.payload), string(got.payload))
		}
		require.Equal(t, before, ended.Load(), "it is still served")
		end(t, c, in)
		eventually(t, func() bool { return ended.Load() == before+1 }, "the server sees the end: "+name)
		_ = c.Close()
		eventually(t, func() bool { return f.Gauge().Busy == 0 }, "no place is lost")
	}
}
