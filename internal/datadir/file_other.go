//go:build !linux

package datadir

import "os"

func (f *file) Preallocate(int64, int64) error { return nil }

func (f *file) SyncData() error { return f.Sync() }

func (f *file) SyncTo(int64) (full bool, err error) { return true, f.Sync() }

func (f *file) Prefetch(int64, int64) error { return nil }

func syncsRanges(*os.File) bool { return false }
