// Package cassandra keeps the data in an Apache Cassandra cluster.
//
// # Data
//
// One table, entities (key blob PRIMARY KEY, value blob): each key is a partition
// of its own, so that a read or a write asks the replicas of that key alone, and
// the driver sends it to one of them. Writes of different keys are different
// partitions and never share a batch, which would make one node log and forward
// what several could take.
//
// # What holds
//
// Cassandra keeps of each key the write with the highest timestamp. The timestamps
// are made here: microseconds of this machine's clock, each greater than the one
// before. So of two writes of a key through one process, where the first was
// answered before the second began, the second wins, whatever nodes they went
// through and however often they were sent. Read and written by quorums, a key is
// linearizable through one process: a read repairs what it found on a minority
// before it answers. Through several processes that holds as far as their clocks
// agree: a write by a clock that is behind may be acknowledged and yet lose to an
// older one.
//
// A write that was not acknowledged in time is in an unknown state, not absent: a
// replica may have it, and the others get it later.
//
// # What is sent again
//
// Everything is idempotent, a write because it keeps its timestamp. An operation
// is sent a second time, to another node, if the first did not answer or refused
// for itself; not if it answered that the replicas were too slow, as another node
// would ask the same replicas. Of a write a node says so in time; of a read it does
// by default only after attemptTimeout. Slow replicas are what the nodes hedge against
// themselves (speculative_retry of the table); a node that is slow to begin with, or
// hangs, is what speculative reads are for, which are off unless asked for.
//
// # Conditions
//
// A write with a condition is a lightweight transaction: see conditional.go.
//
// # Ranges, batches
//
// There are none: see docs/scaling.md.
package cassandra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/store"
)

const (
	// attemptTimeout is how long a node may take to answer. It is longer than the
	// 2 s after which a node gives a write up, so that it can say so, and shorter
	// than the 5 s for a read, so that one that hangs leaves time for another.
	attemptTimeout = 2500 * time.Millisecond
	// operationTimeout bounds an operation with its second attempt.
	operationTimeout = 5 * time.Second
	// maxInFlight bounds the operations under way. A connection carries 32,768,
	// and those that nobody waits for any more count until they are answered.
	maxInFlight = 16384
	// probeInterval is how often the cluster is asked whether it is there.
	probeInterval = time.Second
)

// ErrAbsent is returned, wrapped, if a keyspace or table is not there that must be.
var ErrAbsent = errors.New("is not there")

// Options say where the cluster is and how it is used. All fields must be set,
// but for those that say otherwise.
type Options struct {
	// Hosts are nodes to begin with, "host" or "host:port"; the others are found.
	// All must be of one datacentre: the nodes of that of the first that answers
	// are the ones that are talked to.
	Hosts []string
	// Keyspace is made if it is not there, and the table in it. It consists of
	// lower-case letters, digits and underscores.
	Keyspace string
	// Existing says that keyspace and table are not made: that they are not there is
	// ErrAbsent.
	Existing bool
	// Replication is how many replicas a keyspace that is made has in each
	// datacentre, by its name; the name "" stands for the one that is talked to.
	Replication map[string]int
	// Consistency is the name of a level, such as LOCAL_QUORUM, under which
	// operations run whose terms do not say.
	Consistency string
	// Username and Password are empty if the cluster wants none.
	Username, Password string
	// SpeculativeDelay is how long a read waits for its answer before another node
	// is asked as well, 0 for no such reads.
	SpeculativeDelay time.Duration
	// Logger is told what operators should know.
	Logger *slog.Logger
}

// Store is an open connection to a cluster.
type Store struct {
	session  *gocql.Session
	keyspace string
	hosts    *cautious
	levels   levels
	serial   gocql.Consistency // at which replicas agree
	clock    clock
	slots    chan struct{} // holds one element for each operation under way

	speculation speculation

	selectStmt, insertStmt, expireStmt, deleteStmt string
	conditional                                    conditional

	closed   atomic.Bool
	trouble  atomic.Pointer[error] // why the cluster cannot be used, nil if it can
	stopping context.Context       // ends when Close is called
	stop     context.CancelFunc
	probing  sync.WaitGroup
}

var _ store.Remote = (*Store)(nil)

// Open connects, and makes the keyspace and the table if they are not there. A
// cluster that can be reached may take up to a minute until it is ready.
func Open(o Options) (*Store, error) {
	levels, err := levelsOf(o.Consistency)
	if err != nil {
		return nil, err
	}
	log := &driverLog{log: o.Logger}
	session, hosts, err := start(&o, log)
	if err != nil {
		return nil, fmt.Errorf("cassandra at %v: %w", o.Hosts, err)
	}
	table := o.Keyspace + "." + tableName
	s := &Store{
		session:    session,
		keyspace:   o.Keyspace,
		hosts:      hosts,
		levels:     levels,
		serial:     serialOf(o.Consistency),
		slots:      make(chan struct{}, maxInFlight),
		selectStmt: "SELECT value, TTL(value) FROM " + table + " WHERE key = ?",
		insertStmt: "INSERT INTO " + table + " (key, value) VALUES (?, ?)",
		expireStmt: "INSERT INTO " + table + " (key, value) VALUES (?, ?) USING TTL ?",
		deleteStmt: "DELETE FROM " + table + " WHERE key = ?",
	}
	s.conditional = conditionalOf(table)
	s.speculation = speculation{delay: o.SpeculativeDelay, slots: s.slots}
	s.stopping, s.stop = context.WithCancel(context.Background())
	if err := s.check(); err != nil {
		s.stop()
		session.Close()
		return nil, fmt.Errorf("cassandra at %v: %w", o.Hosts, err)
	}
	log.on.Store(true)
	s.probing.Go(func() { s.probe(o.Logger) })
	return s, nil
}

// check finds out whether the table is the one that the statements want.
func (s *Store) check() error {
	for _, statement := range []string{s.selectStmt, s.insertStmt, s.expireStmt, s.deleteStmt} {
		if _, err := s.session.StatementMetadata(s.stopping, statement, ""); err != nil {
			return fmt.Errorf("prepare %q: %w", statement, err)
		}
	}
	return nil
}

// Get implements store.Store.
func (s *Store) Get(dst, key []byte) ([]byte, store.Meta, error) {
	return s.GetUnder(store.Terms{}, dst, key)
}

// GetUnder implements store.Remote.
func (s *Store) GetUnder(t store.Terms, dst, key []byte) ([]byte, store.Meta, error) {
	ctx, end, err := s.begin(t)
	if err != nil {
		return dst, store.Meta{}, err
	}
	defer end()
	if s.speculation.delay == 0 {
		return s.get(ctx, t.Consistency, dst, key)
	}
	return s.speculation.read(ctx, dst, key, func(ctx context.Context, dst, key []byte) ([]byte, store.Meta, error) {
		return s.get(ctx, t.Consistency, dst, key)
	})
}

func (s *Store) get(ctx context.Context, level store.Consistency, dst, key []byte) ([]byte, store.Meta, error) {
	return s.getAt(ctx, s.levels.of(level), dst, key)
}

func (s *Store) getAt(ctx context.Context, level gocql.Consistency, dst, key []byte) ([]byte, store.Meta, error) {
	it := s.session.Query(s.selectStmt, key).RoutingKey(key).Consistency(level).IterContext(ctx)
	value := appended{to: dst}
	var ttl int
	it.Scan(&value, &ttl)
	if err := it.Close(); err != nil {
		return dst, store.Meta{}, readError(err)
	}
	if !value.found {
		return dst, store.Meta{}, store.ErrNotFound
	}
	return value.to, store.Meta{TTL: uint32(max(ttl, 0))}, nil
}

// appended receives a value behind what is there already.
type appended struct {
	to    []byte
	found bool // there is one
}

// UnmarshalCQL copies the value, which belongs to the driver. It is nil if the row has
// none, as when its value alone has expired.
func (a *appended) UnmarshalCQL(_ gocql.TypeInfo, value []byte) error {
	if a.found = value != nil; a.found {
		a.to = append(bufpool.Grow(a.to, len(value)), value...)
	}
	return nil
}

// Apply implements store.Store.
func (s *Store) Apply(writes []store.Write) (store.Commit, error) {
	return nil, s.ApplyUnder(store.Terms{}, writes)
}

// ApplyUnder implements store.Remote. The writes are under way at the same time;
// those of one key have timestamps in their order. If several fail, the error is
// that of one of them, and one whose outcome is unknown comes first.
func (s *Store) ApplyUnder(t store.Terms, writes []store.Write) error {
	if len(writes) == 0 {
		return nil
	}
	last := len(writes) - 1
	stamp := s.clock.take(len(writes))
	var failed []error
	if last > 0 {
		failed = make([]error, last)
	}
	var others sync.WaitGroup
	for i := range failed {
		others.Go(func() { failed[i] = s.apply(t, &writes[i], stamp+int64(i)) })
	}
	err := s.apply(t, &writes[last], stamp+int64(last))
	others.Wait()
	for _, e := range failed {
		if err == nil || errors.Is(e, store.ErrUnknownOutcome) {
			err = e
		}
	}
	return err
}

func (s *Store) apply(t store.Terms, w *store.Write, stamp int64) error {
	ctx, end, err := s.begin(t)
	if err != nil {
		return err
	}
	defer end()
	if !w.If.IsZero() {
		return tooLong(w, s.applyIf(ctx, t, w))
	}
	var q *gocql.Query
	switch {
	case w.Delete:
		q = s.session.Query(s.deleteStmt, w.Key)
	case w.TTL != 0:
		q = s.session.Query(s.expireStmt, w.Key, notNil(w.Value), int(w.TTL))
	default:
		q = s.session.Query(s.insertStmt, w.Key, notNil(w.Value))
	}
	var retries remembering
	err = q.RoutingKey(w.Key).WithTimestamp(stamp).Consistency(s.levels.of(t.Consistency)).RetryPolicy(&retries).ExecContext(ctx)
	if err != nil {
		return tooLong(w, writeError(err, retries.begun))
	}
	return nil
}

// tooLong says so if a cluster takes no value that expires so late: as it is set up by
// default, none after 2038.
func tooLong(w *store.Write, err error) error {
	if said, ok := errors.AsType[gocql.RequestError](err); ok && w.TTL != 0 && said.Code() == gocql.ErrCodeInvalid {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// notNil returns a value that is not nil, which is the absence of one.
func notNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// begin waits until an operation may begin, and returns when it has to end, and
// what to call then.
func (s *Store) begin(t store.Terms) (context.Context, func(), error) {
	if s.closed.Load() {
		return nil, nil, store.ErrClosed
	}
	now := time.Now()
	limit := operationTimeout
	if !t.Deadline.IsZero() {
		// A sixteenth is left for the answer to reach the client while it waits.
		left := t.Deadline.Sub(now)
		limit = min(limit, left-left/16)
	}
	if limit <= 0 {
		return nil, nil, fmt.Errorf("%w: the deadline has passed", store.ErrTimeout)
	}
	ctx, cancel := context.WithDeadline(context.Background(), now.Add(limit))
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, nil, fmt.Errorf("%w: %d operations are under way", store.ErrTimeout, maxInFlight)
	}
	return ctx, func() { <-s.slots; cancel() }, nil
}

// Range implements store.Store: it always fails.
func (*Store) Range(_, _ []byte, _ bool) (store.Iterator, error) {
	return nil, fmt.Errorf("ranges of a distributed store: %w", errors.ErrUnsupported)
}

// View implements store.Store: it always fails.
func (*Store) View(func(store.View) error) error { return errSteps }

// Transact implements store.Store: it always fails.
func (*Store) Transact([]store.Look, func(store.View) ([]store.Write, error)) (store.Commit, error) {
	return nil, errSteps
}

var errSteps = fmt.Errorf("steps over several keys of a distributed store: %w", errors.ErrUnsupported)

// Stalled implements store.Store: whoever waits for the cluster waits in an
// operation.
func (*Store) Stalled() bool { return false }

// Writable implements store.Store. The reason is that no node answers; whether
// the replicas of a key do is found out by each operation.
func (s *Store) Writable() error {
	if trouble := s.trouble.Load(); trouble != nil {
		return *trouble
	}
	return nil
}

// probe asks any node for its name, and each of the silent ones, again and again
// until Close is called.
func (s *Store) probe(log *slog.Logger) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stopping.Done():
			return
		case <-tick.C:
		}
		s.hosts.keep(s.session.GetHosts())
		var others sync.WaitGroup
		for _, id := range s.hosts.silentOnes() {
			others.Go(func() { _ = s.ask(id, probeInterval) }) // an answer is observed
		}
		err := s.ask("", operationTimeout)
		absent := s.keyspaceAbsent()
		others.Wait()
		if s.stopping.Err() != nil {
			return
		}
		s.probed(err, absent, log)
	}
}

// probed notes how a probe of any node has ended. That it failed says little if
// anything has succeeded since the one before.
func (s *Store) probed(err error, absent bool, log *slog.Logger) {
	succeeded := s.hosts.succeeded.Swap(false)
	// What is asked is valid, but for the keyspace of the connection, and the driver may not
	// have heard of that yet.
	said, refused := errors.AsType[gocql.RequestError](err)
	absent = absent || refused && said.Code() == gocql.ErrCodeInvalid
	switch {
	case absent: // sooner or later the driver cannot connect either
		err = fmt.Errorf("%w: the keyspace %s %w any more", store.ErrUnwritable, s.keyspace, ErrAbsent)
	case succeeded:
		err = nil
	case err != nil:
		err = fmt.Errorf("%w: no node of the cluster answers: %w", store.ErrUnwritable, err)
	}
	switch was := s.trouble.Load(); {
	case err != nil && (was == nil || errors.Is(*was, ErrAbsent) != absent):
		s.trouble.Store(&err)
		log.Error("the store has failed", "err", err)
	case err == nil && was != nil:
		s.trouble.Store(nil)
		log.Info("the store is back")
	}
}

// keyspaceAbsent reports whether the keyspace was dropped: the cluster has told
// that, and no node that can be asked has it.
func (s *Store) keyspaceAbsent() bool {
	if _, err := s.session.KeyspaceMetadata(s.keyspace); !errors.Is(err, gocql.ErrKeyspaceDoesNotExist) {
		return false
	}
	ctx, cancel := context.WithTimeout(s.stopping, probeInterval)
	defer cancel()
	var found int
	err := one(s.session.Query(findKeyspace, s.keyspace).Consistency(gocql.One).IterContext(ctx), &found)
	return err != nil || found == 0
}

// ask asks a node for its name, any if it does not say which.
func (s *Store) ask(id string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(s.stopping, within)
	defer cancel()
	return s.session.Query("SELECT key FROM system.local").SetHostID(id).Consistency(gocql.One).ExecContext(ctx)
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return store.ErrClosed
	}
	s.stop()
	s.probing.Wait()
	s.session.Close()
	return nil
}
