package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Check reports what of o cannot be sent. Defaults must be set.
func Check(o *workload.Options) error {
	_, err := newPlan(o)
	return err
}

// plan says where the requests of a load go, and what carries them.
type plan struct {
	server  server
	address netip.AddrPort // of the server, once it is found
	// targets are those of the load; none if it is the operations of the service.
	targets []destination
	engine  workload.Engine
	// host and headers are those of requests that are no targets.
	host    string
	headers []string
}

// destination is where a target goes.
type destination struct {
	url     *url.URL
	uri     string // its path and query
	host    string
	headers []string // those of the load included, without Host
}

// server is what load is sent to.
type server struct {
	scheme string // empty before it is known
	host   string // as clients name it, without a port if that is the scheme's
}

// name says where the load goes, for people.
func (s *server) name() string { return s.scheme + "://" + s.host }

// newPlan checks what o asks for.
func newPlan(o *workload.Options) (*plan, error) {
	p := new(plan)
	if err := p.resolve(o); err != nil {
		return nil, err
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := p.choose(o); err != nil {
		return nil, err
	}
	return p, checkDescriptors(o.Connections)
}

// resolve finds the server.
func (p *plan) resolve(o *workload.Options) error {
	if len(o.Targets) == 0 {
		_, err := p.base(o.URL)
		p.host, p.headers = hostOf(o.Headers, p.server.host)
		return err
	}
	var base *url.URL // of those that are paths
	for i := range o.Targets {
		t := &o.Targets[i]
		u, err := url.Parse(t.URL)
		if err == nil && strings.HasPrefix(t.URL, "/") && u.Host == "" {
			if base == nil {
				if base, err = p.base(o.URL); err != nil {
					return err
				}
			}
			u.Scheme, u.Host = base.Scheme, base.Host
		}
		if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("target: %q: the URL is neither http://host:port/path, https://host:port/path nor a path", t)
		}
		if err := p.server.be(u); err != nil {
			return fmt.Errorf("target: %q: %w", t, err)
		}
		host, headers := hostOf(merged(o.Headers, t.Headers), p.server.host)
		p.targets = append(p.targets, destination{u, u.RequestURI(), host, headers})
	}
	return nil
}

// base takes the server of Options.URL, and returns the URL with its host.
func (p *plan) base(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, fmt.Errorf("url: %q is not of the form http://host:port or https://host:port", rawURL)
	}
	if err := p.server.be(u); err != nil {
		return nil, fmt.Errorf("url: %q: %w", rawURL, err)
	}
	u.Host = p.server.host
	return u, nil
}

// be makes s the server of a URL, and fails if it is another one already.
func (s *server) be(u *url.URL) error {
	host := strings.ToLower(u.Host)
	if u.Hostname() == "" {
		host = "localhost" + host
	}
	if u.Port() != "" {
		host = strings.TrimSuffix(host, ":"+map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	switch {
	case err != nil || port == 0:
		return errors.New("the port is not 1 to 65535")
	case s.scheme == "":
		s.scheme, s.host = u.Scheme, host
	case s.scheme != u.Scheme || s.host != host:
		return fmt.Errorf("it is of another server than %s, and a load is sent to one", s.name())
	}
	return nil
}

// address returns the host with its port, as a certificate names it.
func (s *server) address() string {
	u := url.URL{Host: s.host}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[s.scheme]))
}

// find returns the address at which the server takes connections. A name such as localhost often has
// addresses of which the server listens on one.
func (s *server) find(ctx context.Context) (netip.AddrPort, error) {
	if address, err := netip.ParseAddrPort(s.address()); err == nil {
		return address, nil
	}
	dialer := net.Dialer{Timeout: connectPatience}
	c, err := dialer.DialContext(ctx, "tcp", s.address())
	if err != nil {
		return netip.AddrPort{}, err
	}
	address := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(address.Addr().Unmap(), address.Port()), c.Close()
}

// choose decides on the engine.
func (p *plan) choose(o *workload.Options) error {
	why := ""
	switch {
	case !hasEpoll:
		why = "it is on Linux alone"
	case p.server.scheme == "https":
		why = "it knows no TLS"
	case o.HTTP == workload.HTTP2:
		why = "it knows no HTTP/2"
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
