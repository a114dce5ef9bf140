package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/cassandra"
	"github.com/spillway-go/spillway/internal/store/delay"
	"github.com/spillway-go/spillway/internal/store/pebble"
)

// openedStore is the store with what the admin plane wants of it.
type openedStore struct {
	store.Store
	// checkpoint writes a consistent copy into a folder that does not exist yet.
	checkpoint func(dir string) error
	// sync makes durable what was acknowledged.
	sync func() error
	// leave lets nobody wait for their turn in a delayed store any more.
	leave func()
	// stats returns the figures of an embedded store; nil if it is none.
	stats func() metrics.StoreStats
}

// openStore opens the store that is configured, an embedded one on that file
// system, which keeps so many tables open. It calls unblocked when writes that it held
// back may go on, or fail.
func openStore(c *config.Config, tables int, log *slog.Logger, m *metrics.Metrics, fs vfs.FS, unblocked func()) (openedStore, error) {
	if c.Store == config.StoreCassandra {
		s, err := cassandra.Open(clusterOptions(c, log))
		if err != nil {
			return openedStore{}, err
		}
		return openedStore{Store: s, checkpoint: func(string) error {
			return fmt.Errorf("the distributed store is backed up by the cluster's own tools, such as nodetool snapshot: %w", errors.ErrUnsupported)
		}, sync: func() error { return nil }, leave: func() {}}, nil
	}
	err := backup.Ours(c.DataDir)
	if err == nil {
		err = backup.Usable(c.DataDir)
	}
	if err != nil {
		return openedStore{}, cannotUse(err, c.DataDir)
	}
	blocks, kept := shareCache(c.CacheBytes)
	s, err := pebble.Open(pebble.Options{
		Dir:          c.DataDir,
		FS:           fs,
		Sync:         pebble.SyncMode(c.Sync.Mode),
		SyncInterval: c.Sync.Interval,
		CacheBytes:   blocks,
		ValueBytes:   kept,
		MaxOpenFiles: tables,
		Logger:       log,
		OnFsync:      m.ObserveFsync,
		OnResume:     unblocked,
		OnWritable:   func(error) { unblocked() },
	})
	// Again, as no restore can begin any more.
	if unfinished := backup.Usable(c.DataDir); unfinished != nil {
		if err == nil {
			_ = s.Close() // nothing was written
		}
		return openedStore{}, unfinished
	}
	if err != nil {
		return openedStore{}, cannotUse(err, c.DataDir)
	}
	k := openedStore{
		Store: s, checkpoint: s.Checkpoint, sync: s.Sync, leave: func() {},
		stats: func() metrics.StoreStats { return storeStats(s.Stats()) },
	}
	if !c.StoreDelay.IsZero() {
		slow := delay.Wrap(s, c.StoreDelay, c.StoreParallel)
		k.Store, k.leave = slow, slow.Leave
	}
	return k, nil
}

// shareCache divides the cache between Pebble's blocks, and memtables with them, and
// the values in front of it.
func shareCache(all int64) (blocks, kept int64) {
	kept = all / 2
	return all - kept, kept
}

// clusterOptions returns how to use the cluster that is configured.
func clusterOptions(c *config.Config, log *slog.Logger) cassandra.Options {
	return cassandra.Options{
		Hosts:            strings.Split(c.CassandraHosts, ","),
		Keyspace:         c.CassandraKeyspace,
		Replication:      c.CassandraReplicationFactor,
		Consistency:      c.CassandraConsistency,
		Username:         c.CassandraUsername,
		Password:         c.CassandraPassword,
		SpeculativeDelay: c.CassandraSpeculativeDelay,
		Logger:           log,
	}
}

// storeStats hands figures on between two packages that must not know each other.
func storeStats(s pebble.Stats) metrics.StoreStats {
	levels := make([]metrics.StoreLevel, len(s.Levels))
	for i, l := range s.Levels {
		levels[i] = metrics.StoreLevel(l)
	}
	return metrics.StoreStats{
		Compactions:         s.Compactions,
		Levels:              levels,
		ReadAmplification:   s.ReadAmplification,
		CacheHits:           s.CacheHits,
		CacheMisses:         s.CacheMisses,
		ValueCacheHits:      s.Values.Hits,
		ValueCacheMisses:    s.Values.Misses,
		ValueCacheBytes:     s.Values.Bytes,
		DiskBytes:           s.DiskBytes,
		DiskFreeBytes:       s.DiskFreeBytes,
		WriteStalls:         s.WriteStalls,
		WriteStallTime:      s.WriteStallTime,
		MemtableBytes:       s.MemTableBytes,
		CompactionDebtBytes: s.CompactionDebtBytes,
	}
}
