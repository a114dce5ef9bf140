package generator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Check reports what of o cannot be sent. Defaults must be set.
func Check(o *workload.Options) error {
	if _, err := resolve(o.URL); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	return checkDescriptors(o.Connections + o.SlowClients)
}

// server is what load is sent to.
type server struct {
	host      string // as clients name it
	addresses []netip.AddrPort
}

// resolve returns the server of a URL such as http://127.0.0.1:8080, with all
// addresses that its name has.
func resolve(rawURL string) (s server, err error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return s, fmt.Errorf("url: %q is not of the form http://host:port", rawURL)
	}
	port := uint64(80)
	if text := u.Port(); text != "" {
		if port, err = strconv.ParseUint(text, 10, 16); err != nil || port == 0 {
			return s, fmt.Errorf("url: %q: the port is not 1 to 65535", rawURL)
		}
	}
	ips := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	if u.Hostname() != "" {
		if ips, err = net.DefaultResolver.LookupNetIP(context.Background(), "ip", u.Hostname()); err != nil {
			return s, fmt.Errorf("url: %q: %w", rawURL, err)
		}
	}
	for _, ip := range ips {
		if address := netip.AddrPortFrom(ip.Unmap(), uint16(port)); !slices.Contains(s.addresses, address) {
			s.addresses = append(s.addresses, address)
		}
	}
	if s.host = u.Host; u.Hostname() == "" {
		s.host = s.addresses[0].String()
	}
	return s, nil
}

// reachable returns those of several addresses that take connections; all if none
// does, so that connecting says why. A name such as localhost often has addresses
// of which the server listens on one.
func reachable(ctx context.Context, addresses []netip.AddrPort) []netip.AddrPort {
	if len(addresses) == 1 {
		return addresses
	}
	dialer := net.Dialer{Timeout: time.Second}
	takes := make(map[netip.AddrPort]bool)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, address := range addresses {
		wg.Go(func() {
			if c, err := dialer.DialContext(ctx, "tcp", address.String()); err == nil {
				_ = c.Close()
				mu.Lock()
				takes[address] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(takes) == 0 {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.AddrPort) bool { return !takes[a] })
}
