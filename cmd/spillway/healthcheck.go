package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/internal/config"
)

// healthcheck returns nil if the service with that configuration, on this
// machine, is ready, or else why it is not.
func healthcheck(ctx context.Context, c *config.Config) error {
	p, err := adminPlane(c, false)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("healthcheck: %s is not ready: %s: %w", p.addr, resp.Status, p.detail(resp))
}
