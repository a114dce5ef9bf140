package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/secure"
)

// plane is the admin plane of the service with that configuration, on this
// machine, as a client sees it.
type plane struct {
	addr   string
	url    string // without a path
	client http.Client
}

// adminPlane returns the admin plane of c. The certificate is made out for the
// name that clients use, and this is loopback, or an address of this machine. So
// it is not verified, or, for those who send a token, compared with the file.
func adminPlane(c *config.Config, compare bool) (*plane, error) {
	addr, err := reachable(c.AdminListen)
	if err != nil {
		return nil, err
	}
	p := &plane{addr: addr, url: "http://" + addr}
	trust := &tls.Config{InsecureSkipVerify: true}
	if c.TLSCert != "" {
		p.url = "https://" + addr
	}
	if c.TLSCert != "" && compare {
		file, err := secure.ReadFile(c.TLSCert, false)
		if err != nil {
			return nil, err
		}
		block, rest := pem.Decode(file)
		for block != nil && block.Type != "CERTIFICATE" {
			block, rest = pem.Decode(rest) // a key may come first
		}
		if block == nil {
			return nil, fmt.Errorf("there is no certificate in %s", c.TLSCert)
		}
		trust.VerifyConnection = func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, block.Bytes) {
				return fmt.Errorf("its certificate is not the one in %s", c.TLSCert)
			}
			return nil
		}
	}
	p.client.Transport = &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	return p, nil
}

// reachable returns where to reach who listens on that address: an address of
// all interfaces is reached through loopback.
func reachable(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", fmt.Errorf("the port of %s is known to the running service only, set SPILLWAY_ADMIN_LISTEN", listen)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}

// detail returns what an answer that is an error says, or its status.
func (p *plane) detail(resp *http.Response) error {
	var problem struct{ Detail string }
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if _ = json.Unmarshal(body, &problem); problem.Detail == "" {
		problem.Detail = p.addr + " answers " + resp.Status
	}
	return errors.New(problem.Detail)
}
