package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/durable"
)

// inventoryName is the file in a backup that says what is in it.
const inventoryName = "SPILLWAY-BACKUP"

// ErrNoBackup is returned for a folder that is not a backup, or was not finished,
// or was changed since by a service.
var ErrNoBackup = errors.New("is no finished backup")

// inventory is what is in a backup. Tables have checksums of their own, and may
// be many gigabytes, so that only their sizes are in it. Pebble takes a MANIFEST
// that has lost its end for a whole one, and a log as well; this does not.
type inventory struct {
	Created time.Time `json:"created"`
	Files   []file    `json:"files"`
}

type file struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// SHA256 is in hexadecimal digits, "" for a table.
	SHA256 string `json:"sha256,omitempty"`
}

func (i *inventory) bytes() (sum int64) {
	for _, f := range i.Files {
		sum += f.Bytes
	}
	return sum
}

// takeInventory looks at all files in dir.
func takeInventory(ctx context.Context, dir string) (inventory, error) {
	inv := inventory{Created: time.Now().UTC()}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return inv, err
	}
	for _, e := range entries {
		f := file{Name: e.Name()}
		info, err := e.Info()
		if err != nil {
			return inv, err
		}
		f.Bytes = info.Size()
		if !f.isTable() {
			if f.SHA256, err = sum(ctx, filepath.Join(dir, f.Name)); err != nil {
				return inv, err
			}
		}
		inv.Files = append(inv.Files, f)
	}
	return inv, nil
}

func (f *file) isTable() bool { return filepath.Ext(f.Name) == ".sst" }

// compare returns what is wrong with the file in dir, or nil.
func (f *file) compare(ctx context.Context, dir string) error {
	path := filepath.Join(dir, f.Name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("it is missing")
	case err != nil:
		return err
	case info.Size() != f.Bytes:
		return fmt.Errorf("it has %d bytes, and had %d when the backup was made", info.Size(), f.Bytes)
	case f.isTable():
		return nil
	}
	got, err := sum(ctx, path)
	if err == nil && got != f.SHA256 {
		err = errors.New("it has changed since the backup was made")
	}
	return err
}

// sum returns the SHA-256 of a file.
func sum(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, &interruptible{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// interruptible reads until ctx has ended.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, context.Cause(i.ctx)
	}
	return i.r.Read(p)
}

// write writes the inventory as a file in dir, durably, whole or not at all.
func (i *inventory) write(dir, name string) error {
	text, err := json.MarshalIndent(i, "", "\t")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, name), append(text, '\n'))
}

// read reads the inventory that was written to a file.
func read(path string) (inventory, error) {
	var inv inventory
	text, err := os.ReadFile(path)
	if err != nil {
		return inv, err
	}
	if err := json.Unmarshal(text, &inv); err != nil || len(inv.Files) == 0 {
		return inv, fmt.Errorf("%s is damaged", path)
	}
	seen := make(map[string]bool)
	for _, f := range inv.Files {
		name := f.Name
		if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\`) || name == datadir.LockName || name == unfinished || seen[name] {
			return inv, fmt.Errorf("%s is damaged", path)
		}
		seen[name] = true
	}
	return inv, nil
}
