package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
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
	engine  workload.Engine
	// to is by Request.Target: what there is for the operations of the service, then the targets.
	to []destination
}

// destination is where requests go, and what all of them begin with.
type destination struct {
	url  *url.URL // of a target
	uri  string   // its path and query
	host string
	// header is as net/http has it. tail is the same, with the host, as HTTP/1.1 has it: what
	// follows the URI.
	header http.Header
	tail   string
}

// newDestination gives requests those headers, and one host: that of the server, unless a header
// says another one. The name of a header stays as it is written. A User-Agent is sent only if it
// is asked for.
func newDestination(s *server, headers []string) destination {
	d := destination{host: s.host, header: http.Header{"User-Agent": {""}}}
	lines := ""
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ":")
		value = strings.TrimSpace(value)
		switch key := http.CanonicalHeaderKey(name); key {
		case "Host":
			d.host = value
			continue
		case "User-Agent":
			d.header.Del(key)
			name = key
		}
		lines += header + "\r\n"
		d.header[name] = append(d.header[name], value)
	}
	d.tail = " HTTP/1.1\r\nHost: " + d.host + "\r\n" + lines
	return d
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
	return p, cmp.Or(p.resolve(o), o.Check(), p.choose(o))
}

// resolve finds the server, and where its requests go.
func (p *plan) resolve(o *workload.Options) error {
	if o.URL != "" || len(o.Targets) == 0 {
		if err := p.base(o.URL); err != nil {
			return err
		}
	}
	for i := range o.Targets {
		t := &o.Targets[i]
		u, err := url.Parse(t.URL)
		if err == nil && strings.HasPrefix(t.URL, "/") && u.Host == "" {
			if err := p.base(o.URL); err != nil {
				return err
			}
			u.Scheme, u.Host = p.server.scheme, p.server.host
		}
		if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return t.Fault(errors.New("the URL is neither http://host:port/path, https://host:port/path nor a path"))
		}
		if err := p.server.be(u); err != nil {
			return t.Fault(err)
		}
		d := newDestination(&p.server, merged(o.Headers, t.Headers))
		d.url, d.uri = u, u.RequestURI()
		p.to = append(p.to, d)
	}
	p.to = slices.Insert(p.to, 0, newDestination(&p.server, o.Headers))
	return nil
}

// base takes the server of Options.URL.
func (p *plan) base(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return fmt.Errorf("url: %q is not of the form http://host:port or https://host:port", workload.Redacted(rawURL))
	}
	if err := p.server.be(u); err != nil {
		return fmt.Errorf("url: %q: %w", rawURL, err)
	}
	return nil
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
