package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Check reports what of o cannot be sent. Defaults must be set.
func Check(o *workload.Options) error {
	_, err := newPlan(context.Background(), o)
	return err
}

// maxServers is how many servers the targets of a load may have.
const maxServers = 64

// plan says where the requests of a load go, and what carries them.
type plan struct {
	servers []server
	// targets are those of the load; none if it is the operations of the service, which
	// all go to the first server.
	targets []destination
	engine  workload.Engine
	// host and headers are those of requests that are no targets.
	host    string
	headers []string
}

// destination is where a target goes.
type destination struct {
	server  int // in plan.servers
	url     *url.URL
	uri     string // its path and query
	host    string
	headers []string // those of the load included, without Host
}

// server is what load is sent to.
type server struct {
	scheme    string
	host      string // as clients name it
	addresses []netip.AddrPort
}

// newPlan checks what o asks for, and looks up its servers.
func newPlan(ctx context.Context, o *workload.Options) (*plan, error) {
	p := new(plan)
	if err := p.resolve(ctx, o); err != nil {
		return nil, err
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := p.choose(o); err != nil {
		return nil, err
	}
	if connections := o.Connections * len(p.servers); connections > workload.MaxConnections {
		return nil, fmt.Errorf("connections: %d to each of %d servers are more than %d", o.Connections, len(p.servers), workload.MaxConnections)
	}
	return p, checkDescriptors(o.Connections * len(p.servers))
}

// resolve finds the servers.
func (p *plan) resolve(ctx context.Context, o *workload.Options) error {
	if len(o.Targets) == 0 {
		_, err := p.base(ctx, o.URL)
		if err == nil {
			p.host, p.headers = hostOf(o.Headers, p.servers[0].host)
		}
		return err
	}
	var base *url.URL // of those that are paths
	for i := range o.Targets {
		t := &o.Targets[i]
		u, err := url.Parse(t.URL)
		if err == nil && strings.HasPrefix(t.URL, "/") && u.Host == "" {
			if base == nil {
				if base, err = p.base(ctx, o.URL); err != nil {
					return err
				}
			}
			u.Scheme, u.Host = base.Scheme, base.Host
		}
		if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("target: %q: the URL is neither http://host:port/path, https://host:port/path nor a path", t)
		}
		at, err := p.server(ctx, u)
		if err != nil {
			return fmt.Errorf("target: %q: %w", t, err)
		}
		host, headers := hostOf(merged(o.Headers, t.Headers), p.servers[at].host)
		p.targets = append(p.targets, destination{at, u, u.RequestURI(), host, headers})
	}
	return nil
}

// base adds the server of Options.URL, and returns the URL with its host.
func (p *plan) base(ctx context.Context, rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, fmt.Errorf("url: %q is not of the form http://host:port or https://host:port", rawURL)
	}
	at, err := p.server(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("url: %q: %w", rawURL, err)
	}
	u.Host = p.servers[at].host
	return u, nil
}

// server returns which of the servers a URL is of, and adds it if there is none, with
// all addresses that its name has.
func (p *plan) server(ctx context.Context, u *url.URL) (int, error) {
	if i := slices.IndexFunc(p.servers, func(s server) bool { return s.scheme == u.Scheme && s.host == u.Host }); i >= 0 {
		return i, nil
	}
	if len(p.servers) == maxServers {
		return 0, fmt.Errorf("there are more than %d servers", maxServers)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", cmp.Or(u.Port(), u.Scheme))
	if err != nil || port == 0 {
		return 0, errors.New("the port is not 1 to 65535")
	}
	ips := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	if u.Hostname() != "" {
		if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname()); err != nil {
			return 0, err
		}
	}
	s := server{scheme: u.Scheme, host: u.Host}
	for _, ip := range ips {
		if address := netip.AddrPortFrom(ip.Unmap(), uint16(port)); !slices.Contains(s.addresses, address) {
			s.addresses = append(s.addresses, address)
		}
	}
	if u.Hostname() == "" {
		s.host = s.addresses[0].String()
	}
	p.servers = append(p.servers, s)
	return len(p.servers) - 1, nil
}

// choose decides on the engine.
func (p *plan) choose(o *workload.Options) error {
	why := ""
	switch {
	case !hasEpoll:
		why = "it is on Linux alone"
	case slices.ContainsFunc(p.servers, func(s server) bool { return s.scheme == "https" }):
		why = "it knows no TLS"
	case o.HTTP == workload.HTTP2:
		why = "it knows no HTTP/2"
	case len(p.servers) > 1:
		why = "it sends to one server, and the targets have several"
	}
	switch p.engine = o.Engine; {
	case o.Engine == workload.Epoll && why != "":
		return fmt.Errorf("engine: epoll cannot send this: %s", why)
	case o.Engine == workload.AnyEngine && why == "":
		p.engine = workload.Epoll
	case o.Engine == workload.AnyEngine:
		p.engine = workload.Portable
	}
	return nil
}

// name says where the load goes, for people.
func (p *plan) name() string {
	name := p.servers[0].scheme + "://" + p.servers[0].host
	if more := len(p.servers) - 1; more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	return name
}

// reachable returns those of several addresses that take connections; all if none
// does, so that connecting says why. A name such as localhost often has addresses
// of which the server listens on one.
func reachable(ctx context.Context, addresses []netip.AddrPort) []netip.AddrPort {
	if len(addresses) == 1 {
		return addresses
	}
	dialer := net.Dialer{Timeout: time.Second}
	conns := make([]net.Conn, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() { conns[i], _ = dialer.DialContext(ctx, "tcp", address.String()) })
	}
	wg.Wait()
	var taking []netip.AddrPort
	for i, c := range conns {
		if c != nil {
			_ = c.Close()
			taking = append(taking, addresses[i])
		}
	}
	if len(taking) == 0 {
		return addresses
	}
	return taking
}
