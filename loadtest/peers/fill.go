package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// Apart is how far from each other the far keys of [FillStore] are.
const Apart = 1000

// FillStore makes a store in dir, which must not be there, with twice as many
// values of size bytes as keys, at least 1, says: under the keys of the load generator from 0
// to keys-1, and under those behind them at a distance of Apart from each other.
// So a key below keys is there, and of those below keys×(1+Apart) two in a
// thousand are; but the absent ones lie between others, as many as there are of
// the present ones, and a store must search for them.
//
// It writes with Pebble itself and in the order of the keys, since 10 GB by way
// of the service would take several times as long. The store has nothing left to
// compact.
func FillStore(ctx context.Context, dir string, keys uint64, size int) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	p := pebbleOptions(64 << 20)
	p.DisableWAL = true
	db, err := pebble.Open(dir, p)
	if err != nil {
		return fmt.Errorf("cannot make a store in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// Values are cut from many places of one pool of random bytes, so that those
	// in one block hardly overlap, which could be compressed.
	const cuts = 1 << 20
	pool := make([]byte, cuts+size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(pool) // does not fail
	places := rand.New(rand.NewPCG(1, 2))
	key := make([]byte, 0, 32)
	batch := db.NewBatch()
	defer func() { _ = batch.Close() }()
	for i := range 2 * keys {
		number := i
		if i >= keys {
			number = keys + (i-keys)*Apart
		}
		key = fmt.Appendf(key[:0], "key%012d", number)
		if err := batch.Set(key, pool[places.IntN(cuts):][:size], nil); err != nil {
			return err
		}
		if batch.Len() < 1<<20 && i < 2*keys-1 {
			continue
		}
		if err := errors.Join(context.Cause(ctx), batch.Commit(pebble.NoSync)); err != nil {
			return err
		}
		batch.Reset()
	}
	if err := db.Flush(); err != nil {
		return err
	}
	return db.Compact(ctx, []byte("k"), []byte("l"), true)
}
