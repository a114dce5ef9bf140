package generator

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"spillway/loadtest/workload"
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

// resolve returns the address behind a URL such as http://127.0.0.1:8080.
func resolve(rawURL string) (*net.TCPAddr, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, fmt.Errorf("url: %q is not of the form http://host:port", rawURL)
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "80")
	}
	address, err := net.ResolveTCPAddr("tcp", host)
	if err != nil {
		return nil, fmt.Errorf("url: %q: %w", rawURL, err)
	}
	if address.IP == nil {
		address.IP = net.IPv4(127, 0, 0, 1)
	}
	return address, nil
}
