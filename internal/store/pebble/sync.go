package pebble

import "github.com/cockroachdb/pebble/v2"

// Sync makes all acknowledged writes durable, without what else Close does. The
// error says why they may not be. It is for a stop that cannot close the store,
// since a backup that hangs still reads from it.
func (s *Store) Sync() error {
	inst, err := s.acquire()
	if err != nil {
		return err
	}
	defer inst.release()
	// Failures come through the disk. Pebble returns none.
	_ = inst.db.LogData(nil, pebble.Sync)
	return inst.lost()
}
