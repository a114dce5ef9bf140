package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"spillway/internal/config"
)

// healthcheck returns nil if the service with that configuration, on this
// machine, is ready, or else why it is not.
func healthcheck(ctx context.Context, c *config.Config) error {
	addr, err := reachable(c.AdminListen)
	if err != nil {
		return err
	}
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	client := http.Client{Transport: &http.Transport{
		// The certificate is made out for the name that clients use, and this is
		// loopback, or an address of this machine.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var problem struct{ Detail string }
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	_ = json.Unmarshal(body, &problem) // without a detail the status has to do
	return fmt.Errorf("healthcheck: %s is not ready: %s %s", addr, resp.Status, problem.Detail)
}

// reachable returns where to reach who listens on that address: an address of
// all interfaces is reached through loopback.
func reachable(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("healthcheck: %w", err)
	}
	if port == "0" {
		return "", fmt.Errorf("healthcheck: the port of %s is known to the running service only, set SPILLWAY_ADMIN_LISTEN", listen)
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
