package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// found is what is in a folder.
type found struct {
	names []string
	// old says that the folder is new, or in an older format. So is one without a
	// format, which was not finished.
	old bool
	// manifest is the name of the manifest in force, "" if there is none, and content
	// what it holds.
	manifest string
	content  []byte
}

// look looks what is in the folder.
func (s *Store) look() (*found, error) {
	names, err := s.opts.FS.List(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names) // of several markers the last is in force
	f := &found{names: names, old: true}
	data := ""
	for _, name := range names {
		ext := filepath.Ext(name)
		_, log := format.LogNumber(name)
		switch {
		case strings.HasPrefix(name, format.ManifestMarker):
			f.manifest = strings.TrimPrefix(ext, ".")
		case name == format.ValuesName: // which is none of Pebble's
		case strings.HasPrefix(name, format.VersionMarker):
			version, err := format.Version(name)
			if err != nil {
				return nil, err
			}
			f.old = version < uint64(pebble.FormatNewest)
		case ext == ".sst" || log:
			data = name
		}
	}
	switch {
	case f.manifest != "":
		if f.content, err = s.read(f.manifest); err != nil {
			return nil, fmt.Errorf("%s: %w", f.manifest, err)
		}
	case data != "":
		return nil, fmt.Errorf("the file %s* is missing, without which %s means nothing", format.ManifestMarker, data)
	}
	return f, nil
}

// inspect looks at the folder before Pebble does. Pebble would take a folder without
// the marker of its manifest for a new one, and remove the tables, and miss no log.
func (s *Store) inspect() (*found, error) {
	f, err := s.look()
	if err != nil || f.manifest == "" {
		return f, err
	}
	stale, err := format.CompareMark(s.read, f.manifest, f.content)
	if err == nil {
		err = format.CompareLogs(s.read, f.names, f.content)
	}
	if err != nil {
		return nil, err
	}
	if stale { // there may be another manifest of that name later
		err = s.opts.FS.Remove(s.path(format.MarkName))
		if err == nil {
			err = syncDir(s.opts.FS, s.opts.Dir)
		}
	}
	return f, err
}

// readValues reads how values are kept, and writes it into the folder first if it is not
// there.
func (s *Store) readValues() error {
	p, found, err := format.ReadPrefix(s.read)
	if err != nil {
		return err
	}
	if !found {
		p = format.NewPrefix()
		if err := s.writeFile(s.opts.Dir, format.ValuesName, p.Note()); err != nil {
			return err
		}
	}
	s.prefix = p
	return nil
}

// writeFile makes a file in a folder, durably, whole or not at all.
func (s *Store) writeFile(dir, name string, content []byte) error {
	fs := s.opts.FS
	unfinished := fs.PathJoin(dir, format.OpenedName+".tmp")
	f, err := fs.Create(unfinished, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = fs.Rename(unfinished, fs.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// read reads a file of the folder.
func (s *Store) read(name string) ([]byte, error) {
	f, err := s.opts.FS.Open(s.path(name))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

// path returns the path of a file of the folder.
func (s *Store) path(name string) string { return s.opts.FS.PathJoin(s.opts.Dir, name) }

// syncDir makes durable which files there are in a folder.
func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// firstLine is an error of several lines, as those on several tables are, of
// which it says the first.
type firstLine struct{ error }

func (e firstLine) Error() string {
	first, others, several := strings.Cut(e.error.Error(), "\n")
	if several {
		first += fmt.Sprintf(" (and %d more)", 1+strings.Count(others, "\n"))
	}
	return first
}

func (e firstLine) Unwrap() error { return e.error }

// advice says what to do about a folder that cannot be opened, or written for good.
func advice(err error) string {
	switch {
	case errors.Is(err, format.ErrNewer):
		return "; start that version, or choose another folder"
	case isOfSystem(err), errors.As(err, new(*format.MissingLogError)):
		return ""
	default:
		return "; move the folder away and restore a backup into a new one (spillway restore)"
	}
}

// isOfSystem reports whether an error is the fault of the disk, of the permissions
// or of a limit, and says nothing of what is in the folder.
func isOfSystem(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}

// closeNotes makes the mark durable. If all is in tables, it says that no log is needed.
func (s *Store) closeNotes(settled bool) {
	if f, err := s.opts.FS.OpenReadWrite(s.path(format.MarkName), vfs.WriteCategoryUnspecified); err == nil {
		_ = errors.Join(f.Sync(), f.Close())
	}
	if settled {
		_ = noteLogs(s.opts.FS, s.path(format.LogsName), nil)
	}
	_ = syncDir(s.opts.FS, s.opts.Dir)
}

// noteLogs names the logs that there are, durably.
func noteLogs(fs vfs.FS, path string, logs []uint64) error {
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(format.LogsNote(logs), 0)
	return errors.Join(err, f.SyncData(), f.Close())
}
