package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2/maybe"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

// Save writes the result to path as JSON, and its profiles beside it, as path
// without ".json" and with ".cpu.pb.gz", ".allocs.pb.gz" and so on; it names them
// in ProfileFiles. Each file is written whole or not at all: if there is no space, or the
// process dies, the former file stays. A path that is no regular file, such as /dev/stdout,
// is written to directly, without profiles.
func (r *Result) Save(path string) error {
	if isRegular(path) {
		path = target(path)
		if err := r.saveProfiles(strings.TrimSuffix(path, ".json")); err != nil {
			return err
		}
	}
	return SaveJSON(path, r)
}

// WriteJSON writes what the lab has found as JSON.
func WriteJSON(w io.Writer, found any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(found)
}

// SaveJSON writes it to a file, as WriteFile does.
func SaveJSON(path string, found any) error {
	return WriteFile(path, func(w io.Writer) error { return WriteJSON(w, found) })
}

// LoadJSON reads such a file. Errors name path.
func LoadJSON(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (r *Result) saveProfiles(prefix string) error {
	if len(r.Profiles) > 0 {
		r.ProfileFiles = map[profiles.Kind]string{}
	}
	for kind, content := range r.Profiles {
		path := fmt.Sprintf("%s.%s.pb.gz", prefix, kind)
		err := WriteFile(path, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
		if err != nil {
			return err
		}
		r.ProfileFiles[kind] = filepath.Base(path)
	}
	return nil
}

// Load reads a result that Save wrote, without its profiles. Errors name path.
func Load(path string) (*Result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Result{Latency: Percentiles{Count: -1}}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s: not a result of loadtest run: %w", path, err)
	}
	// Other files of the lab, and JSON of all sorts, have no latency_ms, and those of early
	// versions no count of what they are of.
	if r.Latency.Count < 0 {
		return nil, fmt.Errorf("%s: not a result of loadtest run: it has no latency_ms with a count", path)
	}
	return r, nil
}

// WriteFile writes a file of the lab whole or not at all, so that the former file stays if it
// fails (except on Windows). A path that is no regular file, such as /dev/stdout, is written
// to directly. Errors name path.
func WriteFile(path string, write func(io.Writer) error) error {
	var content bytes.Buffer
	err := write(&content)
	if err == nil && isRegular(path) {
		err = maybe.WriteFile(target(path), content.Bytes(), 0o644)
	} else if err == nil {
		err = os.WriteFile(path, content.Bytes(), 0o644)
	}
	if err == nil {
		return nil
	}
	// In the place of the temporary file, the one that was asked for is named.
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	} else if cause, ok := errors.AsType[*os.LinkError](err); ok {
		err = cause.Err
	}
	return fmt.Errorf("cannot write %s: %w", path, err)
}

// target returns what a symbolic link leads to, so that a link stays one.
func target(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// isRegular reports whether path is a regular file, or nothing yet.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}
