package peers

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// keyValue is Pebble. All methods are safe for concurrent use.
type keyValue struct {
	db    *pebble.DB
	write *pebble.WriteOptions
}

func openKeyValue(o *Options) (*keyValue, error) {
	p := pebbleOptions(o.CacheBytes)
	p.Cache = pebble.NewCache(o.CacheBytes)
	defer p.Cache.Unref() // the store has its own reference
	db, err := pebble.Open(o.Dir, p)
	if err != nil {
		return nil, fmt.Errorf("cannot open the data folder %s: %w", o.Dir, err)
	}
	kv := &keyValue{db: db, write: pebble.NoSync}
	if o.Sync {
		kv.write = pebble.Sync
	}
	return kv, nil
}

// do does what a request with a method and an id asks for, and returns the status of its answer.
// It calls found with the value that was asked for, which may not be kept.
func (kv *keyValue) do(method string, id, value []byte, found func(value []byte)) (status int, err error) {
	switch method {
	case http.MethodGet:
		value, closer, err := kv.db.Get(id)
		if errors.Is(err, pebble.ErrNotFound) {
			return http.StatusNotFound, nil
		}
		if err != nil {
			return 0, err
		}
		found(value)
		return http.StatusOK, closer.Close()
	case http.MethodPut:
		return http.StatusCreated, kv.db.Set(id, value, kv.write)
	case http.MethodDelete:
		return http.StatusAccepted, kv.db.Delete(id, kv.write)
	default:
		return http.StatusMethodNotAllowed, nil
	}
}

// pebbleOptions are those of the service; see github.com/spillway-go/spillway/internal/store/pebble for
// their reasons. A test opens both and compares what Pebble says of them.
func pebbleOptions(cache int64) *pebble.Options {
	p := &pebble.Options{
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                uint64(min(max(cache/8, 1<<20), 64<<20)),
		MemTableStopWritesThreshold: 16,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       80,
		LBaseMaxBytes:               64 << 20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, max(2, runtime.GOMAXPROCS(0)/2) },
		MaxOpenFiles:                8192,
		WALBytesPerSync:             512 << 10,
		Logger:                      quiet{},
	}
	for i := range p.Levels {
		l := &p.Levels[i]
		l.FilterPolicy = bloom.FilterPolicy(10)
		l.FilterType = pebble.TableFilter
		l.BlockSize = 8 << 10
		l.IndexBlockSize = 64 << 10
	}
	p.TargetFileSizes[0] = 8 << 20
	return p
}

// quiet keeps Pebble from writing what it does to stderr.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}

// Fatalf must not return.
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
