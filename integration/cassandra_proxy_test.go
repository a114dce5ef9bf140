//go:build integration

package integration

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/stretchr/testify/require"
)

// proxy stands between a node and its clients, and can keep them apart in the way
// of a network that loses everything: connections stay open, new ones are taken
// by nobody, and what was sent arrives when the network is back. The other nodes do
// not pass through it.
type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup
	mu       struct {
		sync.Mutex
		flows  chan struct{} // closed while it forwards
		conns  map[net.Conn]bool
		closed bool
	}
}

// behindProxy has clients reach the node through a proxy. The node must not have
// been started.
func (n *node) behindProxy() *proxy {
	t := n.cluster.t
	t.Helper()
	n.public = fmt.Sprintf("127.0.1.%d", n.number+1)
	l, err := net.Listen("tcp", net.JoinHostPort(n.public, n.cluster.port))
	require.NoError(t, err)
	p := &proxy{listener: l, target: net.JoinHostPort(n.address, n.cluster.port)}
	p.mu.flows = make(chan struct{})
	p.mu.conns = make(map[net.Conn]bool)
	close(p.mu.flows)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// cut keeps node and clients apart until heal is called.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healLocked() // or who waits would wait for ever
	p.mu.flows = make(chan struct{})
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healLocked()
}

func (p *proxy) healLocked() {
	select {
	case <-p.mu.flows:
	default:
		close(p.mu.flows)
	}
}

// pass waits until the proxy forwards.
func (p *proxy) pass() {
	p.mu.Lock()
	flows := p.mu.flows
	p.mu.Unlock()
	<-flows
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				continue
			}
			return
		}
		p.running.Go(func() {
			defer p.keep(client)()
			p.pass()
			node, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = client.(*net.TCPConn).SetLinger(0) // who dials a dead node is refused
				return
			}
			defer p.keep(node)()
			var back sync.WaitGroup
			back.Go(func() { p.forward(client, node) })
			p.forward(node, client)
			back.Wait()
		})
	}
}

// keep sees to it that the connection is closed with the proxy, and returns what
// closes it before.
func (p *proxy) keep(conn net.Conn) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		_ = conn.Close()
	}
	p.mu.conns[conn] = true
	return func() {
		_ = conn.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.mu.conns, conn)
	}
}

// forward passes on what comes, and ends both connections when one has ended.
func (p *proxy) forward(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.pass()
		if n > 0 && err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.mu.closed = true
	p.healLocked()
	for conn := range p.mu.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}
