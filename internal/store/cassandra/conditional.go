package cassandra

import (
	"context"
	"errors"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
)

// A write with a condition is a lightweight transaction, which the replicas of the key
// agree on by Paxos. It needs a quorum of them, whatever the request's consistency,
// and takes its timestamp from the replicas' clocks. So conditional writes of a key
// are in order with each other. With plain writes they are not: these do not take part
// in the agreement, and which of the two is later is a matter of clocks.
//
// The cluster cannot compare validators, so whoever asks for one reads the value, makes
// its validator, and writes if the value is still that one.
//
// The conditions are on the value, not on the row: a row whose value has expired may be
// there still, if it was once written without expiry.
type conditional struct{ put, remove writeIf }

// writeIf are the statements of a write under the conditions that there is no value,
// that there is one, and that it is this one.
type writeIf struct{ absent, present, same string }

func conditionalOf(table string) conditional {
	return conditional{put: ifs("UPDATE " + table + " USING TTL ? SET value = ? WHERE key = ?"), remove: ifs("DELETE FROM " + table + " WHERE key = ?")}
}

func ifs(statement string) writeIf {
	return writeIf{statement + " IF value = null", statement + " IF value != null", statement + " IF value = ?"}
}

// applyIf applies a write with a condition.
func (s *Store) applyIf(ctx context.Context, t store.Terms, w *store.Write) error {
	statements := s.conditional.remove
	args := []any{w.Key}
	if !w.Delete {
		statements = s.conditional.put
		args = []any{int(w.TTL), notNil(w.Value), w.Key}
	}
	switch {
	case w.If.Absent:
		_, err := s.agree(ctx, t, w.Key, statements.absent, args)
		return err
	case w.If.Tags == nil:
		_, err := s.agree(ctx, t, w.Key, statements.present, args)
		return err
	}
	present, _, err := s.getAt(ctx, s.serial, nil, w.Key)
	for {
		if errors.Is(err, store.ErrNotFound) {
			return &store.ConditionError{}
		}
		if err != nil {
			return err
		}
		if tag := etag.Of(present); !w.If.Holds(true, tag) {
			return &store.ConditionError{Tag: tag}
		}
		var refused *store.ConditionError
		now, err := s.agree(ctx, t, w.Key, statements.same, append(args[:len(args):len(args)], notNil(present)))
		if !errors.As(err, &refused) {
			return err
		}
		if now == nil {
			return refused
		}
		present = now // it has become another one, which may do as well
	}
}

// agree has the replicas agree on a write. If they do not, it returns the value that
// there is, or nil, and a *store.ConditionError.
func (s *Store) agree(ctx context.Context, t store.Terms, key []byte, statement string, args []any) (present []byte, _ error) {
	q := s.session.Query(statement, args...).RoutingKey(key).
		Consistency(s.levels.of(t.Consistency)).SerialConsistency(s.serial).
		// To send it again could find its own first attempt.
		Idempotent(false).RetryPolicy(&gocql.SimpleRetryPolicy{})
	var value appended
	applied, err := q.ScanCASContext(ctx, &value)
	switch {
	case err != nil:
		return nil, writeError(err, false)
	case applied:
		return nil, nil
	case !value.found:
		return nil, &store.ConditionError{}
	}
	return notNil(value.to), &store.ConditionError{Tag: etag.Of(value.to)}
}
