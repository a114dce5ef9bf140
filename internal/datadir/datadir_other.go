//go:build !unix

package datadir

import (
	"io/fs"
	"os"
)

const canHold = false

func lockDir(*os.File) error { return nil }

func shareDir(*os.File) error { return nil }

func lockFile(*os.File, bool) error { return nil }

func exposes(fs.FileMode) bool { return false }
