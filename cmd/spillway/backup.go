package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/config"
)

// writeBackup has the running service write a backup into dir, which is seen from
// the working directory of this process.
func writeBackup(ctx context.Context, c *config.Config, dir string, stdout io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	p, err := adminPlane(c, true)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	order, err := json.Marshal(map[string]string{"dir": dir})
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	// The service gives up a backup that nobody waits for.
	ctx, stop := untilSignal(ctx)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/backup", bytes.NewReader(order))
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if c.AdminToken != "" {
		req.Header.Set("Authorization", "Bearer "+c.AdminToken)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("backup: the service does not answer at %s, where its admin plane should be: %w", p.addr, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return fmt.Errorf("backup: %w: set SPILLWAY_ADMIN_TOKEN or SPILLWAY_ADMIN_TOKEN_FILE as for the service", p.detail(resp))
	default:
		return fmt.Errorf("backup: %w", p.detail(resp))
	}
	var done struct {
		Dir     string
		Files   int
		Bytes   int64
		Seconds float64
	}
	if err := json.NewDecoder(resp.Body).Decode(&done); err != nil {
		return fmt.Errorf("backup: the answer cannot be read: %w", err)
	}
	_, _ = fmt.Fprintf(stdout, "backup written to %s: %s, %s, in %.3f s\n", done.Dir, count(done.Files, "file"), count(done.Bytes, "byte"), done.Seconds)
	return nil
}

// restore puts the backup in dir in the place of the data folder.
func restore(ctx context.Context, c *config.Config, dir string, stdout, stderr io.Writer) error {
	if err := embedded(c); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	report, err := backup.Restore(ctx, dir, c.DataDir)
	if err != nil {
		sayDamage(stderr, "restore", dir, &report)
		return fmt.Errorf("restore: %w", err)
	}
	_, _ = fmt.Fprintf(stdout, "restored %s into %s: %s\n", dir, c.DataDir, contents(&report))
	return nil
}

var errDamage = errors.New("damage was found")

// check checks a folder. It changes nothing, so that a signal may end it anywhere.
func check(ctx context.Context, c *config.Config, dir string, stdout, stderr io.Writer) error {
	if dir == "" {
		if err := embedded(c); err != nil {
			return fmt.Errorf("check: %w", err)
		}
		dir = c.DataDir
	}
	report, err := backup.Check(ctx, dir)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if len(report.Damage) > 0 {
		sayDamage(stderr, "check", dir, &report)
		return errDamage
	}
	_, _ = fmt.Fprintf(stdout, "%s is sound: %s\n", dir, contents(&report))
	if len(report.Unused) > 0 {
		_, _ = fmt.Fprintf(stdout, "not part of the store: %s; a crash leaves such tables, the next start removes them\n", strings.Join(report.Unused, ", "))
	}
	return nil
}

// contents says what is in a folder that is sound.
func contents(r *backup.Report) string {
	return fmt.Sprintf("%s, %s of keys and values, %s of %s, %s",
		count(r.Keys, "key"), count(r.Bytes, "byte"), count(r.Tables, "table"), count(r.TableBytes, "byte"), count(r.Logs, "log"))
}

// count says how many there are of something.
func count[N int | int64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// sayDamage writes a line for each damaged file: what is wrong, and what to do.
func sayDamage(stderr io.Writer, command, dir string, r *backup.Report) {
	advice := "the service does not start on this folder: move it away and restore a backup (spillway restore)"
	for _, d := range r.Damage {
		do := advice
		switch {
		case r.Backup:
			do = "do not use this backup but another one"
		case d.Starts:
			do = "some keys cannot be read: move the folder away and restore a backup (spillway restore)"
		}
		_, _ = fmt.Fprintf(stderr, "spillway: %s: %s: %v; %s\n", command, filepath.Join(dir, d.File), d.Err, do)
	}
}

// embedded returns nil if the data is in a folder of this machine.
func embedded(c *config.Config) error {
	if c.Store != "pebble" {
		return fmt.Errorf("the data is not in a folder of this machine, as SPILLWAY_STORE is %s", c.Store)
	}
	return nil
}

// untilSignal returns a context that ends when the process is asked to end. A
// second signal ends it at once.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
