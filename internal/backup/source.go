package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/store/pebble"
)

// ErrInUse is returned for a folder that a service runs on.
var ErrInUse = datadir.ErrInUse

// Source is a data folder or a backup that is open for reading.
type Source struct {
	*pebble.Reader
	// Moment is such that nothing in the folder was written later: when the backup
	// was made, or when the data folder was last changed.
	Moment time.Time

	release func()
}

// OpenSource opens a data folder or a backup for reading, and changes nothing. Until
// Close no service can be started on it. The error wraps ErrInUse if one runs on it. A
// process that has the folder open itself must not call it.
func OpenSource(ctx context.Context, dir string) (_ *Source, err error) {
	release, err := datadir.Share(dir)
	if errors.Is(err, ErrInUse) {
		err = fmt.Errorf("%w: stop it, or take a backup of it (spillway backup), which can be read while the service runs", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s := &Source{release: release}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err := Usable(dir); err != nil {
		return nil, err
	}
	switch _, locked := os.Lstat(filepath.Join(dir, datadir.LockName)); {
	case locked == nil: // a service has run on it
	case !errors.Is(locked, fs.ErrNotExist):
		return nil, locked
	default:
		// So it must be a backup: of one that was not finished nobody knows what is
		// missing.
		inv, err := backupOf(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range inv.Files {
			err := f.compare(ctx, dir)
			if ctx.Err() != nil { // which says nothing of the backup
				return nil, context.Cause(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("the backup %s is damaged: %s: %w", dir, f.Name, err)
			}
		}
		s.Moment = inv.Created
	}
	if s.Reader, err = pebble.OpenReader(dir); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", dir, err)
	}
	if s.Moment.IsZero() {
		s.Moment = s.Changed
	}
	return s, nil
}

// Close closes the folder and lets others use it.
func (s *Source) Close() error {
	defer s.release()
	return s.Reader.Close()
}
