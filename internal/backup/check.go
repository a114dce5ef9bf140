package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/store/pebble"
)

// Report is what Check has found.
type Report struct {
	pebble.Report
	// Backup says that the folder is a backup, as it was made.
	Backup bool
}

// Check reads all that is in a data folder or a backup and compares it with its
// checksums, without changing anything. No service can be started on it
// meanwhile. The error says why the folder cannot be checked; damage is in the
// report. A process that has the folder open itself must not call it.
func Check(ctx context.Context, dir string) (Report, error) {
	unlock, err := datadir.Share(dir)
	if err != nil {
		return Report{}, fmt.Errorf("%s: %w", dir, err)
	}
	defer unlock()
	return check(ctx, dir)
}

func check(ctx context.Context, dir string) (Report, error) {
	var report Report
	if err := Usable(dir); err != nil {
		return report, err
	}
	inv, err := backupOf(dir)
	switch {
	case err == nil:
		report.Backup = true
		for _, f := range inv.Files {
			if err := f.compare(ctx, dir); err != nil {
				report.Damage = append(report.Damage, pebble.Damage{File: f.Name, Err: err})
			}
			if ctx.Err() != nil {
				return report, context.Cause(ctx)
			}
		}
	case !errors.Is(err, ErrNoBackup):
		return report, err
	}
	found := report.Damage
	report.Report, err = pebble.Check(ctx, dir)
	switch {
	case errors.Is(err, pebble.ErrNoStore) && len(found) > 0: // which says it better
	case err != nil:
		return report, fmt.Errorf("%s cannot be checked: %w", dir, err)
	}
	for _, d := range report.Damage {
		if !names(found, d.File) {
			found = append(found, d)
		}
	}
	report.Damage = found
	if len(found) > 0 {
		report.Keys, report.Bytes = 0, 0
	}
	return report, nil
}

// names reports whether one of the damaged files has that name, or a name of
// that pattern.
func names(damage []pebble.Damage, pattern string) bool {
	return slices.ContainsFunc(damage, func(d pebble.Damage) bool {
		match, _ := filepath.Match(pattern, d.File)
		return match
	})
}

// backupOf returns the inventory of a backup, or an error that wraps ErrNoBackup. A
// backup on which a service was started is a data folder since.
func backupOf(dir string) (inventory, error) {
	if _, err := os.Stat(dir); err != nil {
		return inventory{}, err
	}
	switch _, err := os.Lstat(filepath.Join(dir, datadir.LockName)); {
	case err == nil:
		return inventory{}, fmt.Errorf("%s %w: a service was started on it", dir, ErrNoBackup)
	case !errors.Is(err, fs.ErrNotExist):
		return inventory{}, err
	}
	inv, err := read(filepath.Join(dir, inventoryName))
	if errors.Is(err, fs.ErrNotExist) {
		return inv, fmt.Errorf("%s %w: the file %s, which is written last, is missing", dir, ErrNoBackup, inventoryName)
	}
	return inv, err
}
