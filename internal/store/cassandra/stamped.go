package cassandra

import (
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/spillway-go/spillway/internal/store"
)

// Stamped is a Store that also takes timestamps from whoever writes, and tells
// them. All methods are safe for concurrent use, but for Close.
type Stamped struct {
	*Store
	// TableID tells the table from others, also from one of the same name that was
	// there before.
	TableID string

	stampedStmt string
}

// OpenStamped does what Open does.
func OpenStamped(o Options) (*Stamped, error) {
	s, err := Open(o)
	if err != nil {
		return nil, err
	}
	var id gocql.UUID
	err = one(s.session.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", o.Keyspace, tableName).
		IterContext(s.stopping), &id)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cassandra at %v: look for the table: %w", o.Hosts, err), s.Close())
	}
	return &Stamped{
		Store:       s,
		TableID:     id.String(),
		stampedStmt: "SELECT value, WRITETIME(value) FROM " + o.Keyspace + "." + tableName + " WHERE key = ?",
	}, nil
}

// PutStamped writes a value as of the timestamp, in microseconds since 1970: it has no
// effect on a key that was written or deleted later. The value is gone after ttl seconds
// from now, 0 for never. It is safe to repeat, even after an unknown outcome. Its errors
// are those of Apply.
func (s *Stamped) PutStamped(key, value []byte, ttl uint32, stamp int64) error {
	return s.apply(store.Terms{}, &store.Write{Key: key, Value: value, TTL: ttl}, stamp)
}

// GetStamped is Get, and returns the timestamp of the value as well.
func (s *Stamped) GetStamped(dst, key []byte) (_ []byte, stamp int64, _ error) {
	ctx, end, err := s.begin(store.Terms{})
	if err != nil {
		return dst, 0, err
	}
	defer end()
	it := s.session.Query(s.stampedStmt, key).RoutingKey(key).Consistency(s.levels.of(store.ConsistencyDefault)).IterContext(ctx)
	value := appended{to: dst}
	it.Scan(&value, &stamp)
	if err := it.Close(); err != nil {
		return dst, 0, readError(err)
	}
	if !value.found {
		return dst, 0, store.ErrNotFound
	}
	return value.to, stamp, nil
}
