package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/store/cassandra"
	"github.com/spillway-go/spillway/internal/transfer"
)

var errDifferent = errors.New("the copy is different")

// copyStore copies a data folder or a backup to a cluster, and verifies the copy.
func copyStore(ctx context.Context, inv config.Invocation, stdout, stderr io.Writer) (err error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	defer func() {
		if err != nil && !errors.Is(err, errDifferent) {
			err = fmt.Errorf("copy: %w", err)
		}
	}()
	dir, err := filepath.Abs(inv.Copy.From)
	if err != nil {
		return err
	}
	c := &inv.Config
	log, _ := newLogger(c, stderr)
	for _, warning := range inv.Warnings { // such as of the keyspace that is misspelt
		log.Warn(warning)
	}
	source, err := backup.OpenSource(ctx, dir)
	if err != nil {
		return beforeAll(err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	// What is verified, or goes on, has a table.
	options := clusterOptions(c, log)
	_, noState := os.Stat(inv.Copy.State)
	options.Existing = inv.Copy.VerifyOnly || noState == nil
	target, err := unless(ctx, func() (*cassandra.Stamped, error) { return cassandra.OpenStamped(options) })
	if errors.Is(err, cassandra.ErrAbsent) && !inv.Copy.VerifyOnly {
		err = fmt.Errorf("%w, and %s says how far a copy is: name another file, or remove it to begin anew", err, inv.Copy.State)
	}
	if err != nil {
		return beforeAll(err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	began := time.Now()
	job := transfer.Job{
		Source: source,
		Target: target,
		Identity: transfer.Identity{
			From:   "pebble:" + dir,
			Source: source.Fingerprint,
			To:     fmt.Sprintf("cassandra:%s (keyspace %s)", c.CassandraHosts, c.CassandraKeyspace),
			Target: target.TableID,
		},
		Moment:     source.Moment,
		State:      inv.Copy.State,
		InFlight:   int(c.Workers),
		VerifyOnly: inv.Copy.VerifyOnly,
		Resumed: func(r transfer.Result) {
			_, _ = fmt.Fprintf(stderr, "spillway: copy: going on with %s\n", soFar(&r))
		},
		Report: func(p transfer.Progress) { _, _ = fmt.Fprintf(stderr, "spillway: copy: %v\n", p) },
	}
	result, err := job.Run(ctx)
	sayDifferences(stderr, &result, inv.Copy.VerifyOnly)
	switch {
	case err != nil && result.Moment.IsZero():
		return err // nothing was begun
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted with %s: the same command goes on from there", soFar(&result))
	case err != nil:
		return fmt.Errorf("%w; the same command goes on from there, with %s", err, soFar(&result))
	case result.Verified.Different > 0:
		return errDifferent
	}
	done := fmt.Sprintf("copied %s to %s and verified it", job.From, job.To)
	if job.VerifyOnly {
		done = fmt.Sprintf("verified the copy of %s in %s", job.From, job.To)
	}
	_, _ = fmt.Fprintf(stdout, "%s: %s, %s of keys and values, in %.1f s\n", done,
		count(result.Verified.Keys, "key"), count(result.Verified.Bytes, "byte"), time.Since(began).Seconds())
	if n := result.Verified.Newer; n > 0 {
		_, _ = fmt.Fprintf(stdout, "%s of these had been written in the cluster after %s, and stay as they are there\n",
			count(n, "key"), result.Moment.Format(time.RFC3339))
	}
	return nil
}

// unless does what takes its time, or returns when ctx ends before: the rest ends with
// the process then, which is about to.
func unless[T any](ctx context.Context, do func() (T, error)) (result T, err error) {
	done := make(chan struct{})
	var late T
	var failed error
	go func() {
		defer close(done)
		late, failed = do()
	}()
	select {
	case <-done:
		return late, failed
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

// beforeAll explains an error that has come before anything was done.
func beforeAll(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before anything was done")
	}
	return err
}

// soFar says how far a copy is.
func soFar(r *transfer.Result) string {
	return fmt.Sprintf("%s copied and %s verified", count(r.Copied.Keys, "key"), count(r.Verified.Keys, "key"))
}

// sayDifferences writes a line for each of the first differences, and one on all.
func sayDifferences(stderr io.Writer, r *transfer.Result, verifyOnly bool) {
	remedy := "copy again"
	if verifyOnly {
		remedy = "copy them, without --verify-only"
	}
	v := &r.Verified
	if v.Different == 0 {
		return
	}
	for _, d := range v.Differences {
		_, _ = fmt.Fprintf(stderr, "spillway: copy: %v\n", d)
	}
	if rest := v.Different - int64(len(v.Differences)); rest > 0 {
		_, _ = fmt.Fprintf(stderr, "spillway: copy: and %d more\n", rest)
	}
	_, _ = fmt.Fprintf(stderr, "spillway: copy: %d of %s are different: %s, unless they were deleted in the cluster since %s\n",
		v.Different, count(v.Keys, "key"), remedy, r.Moment.Format(time.RFC3339))
}
