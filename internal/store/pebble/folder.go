package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// How the names begin of some of Pebble's files.
const (
	manifestMarker = "marker.manifest."       // and the name of the manifest is its end
	formatMarker   = "marker.format-version." // and the version of the format is its end
	manifestPrefix = "MANIFEST-"
)

// errNewer is what a start ends with on a folder of a newer format.
var errNewer = errors.New("a newer version has written it")

// inspect looks at the folder before Pebble does. Pebble would take a folder without
// the marker of its manifest for a new one, and remove the tables. It reports
// whether the folder is new, or in an older format.
func (s *Store) inspect() (old bool, _ error) {
	names, err := s.opts.FS.List(s.opts.Dir)
	if err != nil {
		return false, err
	}
	manifest, data := "", ""
	old = true         // so is one without a format, which was not finished
	slices.Sort(names) // of several markers the last is in force
	for _, name := range names {
		switch ext := filepath.Ext(name); {
		case strings.HasPrefix(name, manifestMarker):
			manifest = strings.TrimPrefix(ext, ".")
		case strings.HasPrefix(name, formatMarker):
			format, err := formatOf(name)
			if err != nil {
				return false, err
			}
			old = format < uint64(pebble.FormatNewest)
		case ext == ".sst" || ext == ".log" && isNumber(strings.TrimSuffix(name, ext)):
			data = name
		}
	}
	if manifest != "" {
		return old, s.checkMark(manifest)
	}
	if data != "" {
		return false, fmt.Errorf("the file %s* is missing, without which %s means nothing", manifestMarker, data)
	}
	return true, nil
}

// formatOf returns the format that a marker names, if this version knows it.
func formatOf(marker string) (uint64, error) {
	format, err := strconv.ParseUint(strings.TrimPrefix(filepath.Ext(marker), "."), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %w: it ends in no number", marker, errDamaged)
	}
	if format > uint64(pebble.FormatNewest) {
		return 0, fmt.Errorf("%w: it is in format %d, and this version knows %d at most",
			errNewer, format, pebble.FormatNewest)
	}
	return format, nil
}

// path returns the path of a file of the folder.
func (s *Store) path(name string) string { return s.opts.FS.PathJoin(s.opts.Dir, name) }

// syncDir makes durable which files there are.
func (s *Store) syncDir() error {
	dir, err := s.opts.FS.OpenDir(s.opts.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
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
	case errors.Is(err, errNewer):
		return "; start that version, or choose another folder"
	case isOfSystem(err):
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
