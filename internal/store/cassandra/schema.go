package cassandra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// A cluster may still be forming when the service starts, or be slow: its nodes
// take clients before they know each other, and what one of them has been told of
// the schema reaches the others when it does. So
//
//   - the schema is looked at and made through one node, which knows what it has
//     been told a moment before;
//   - then the start waits until the nodes that it is connected to have the table.
//     One that has not got as far as the keyspace cannot be connected to, and is
//     when it has;
//   - what a node does not know even so, since it came later, it is asked for in
//     vain once: another is asked then (see oneMore).

const (
	tableName    = "entities"
	findKeyspace = "SELECT count(*) FROM system_schema.keyspaces WHERE keyspace_name = ?"
)

const (
	// schemaTimeout bounds what a start does about the schema, which takes its
	// time.
	schemaTimeout = time.Minute
	// schemaInterval is how often it is looked at meanwhile.
	schemaInterval = 100 * time.Millisecond
	// schemaPatience is how long that may take until the log is told.
	schemaPatience = 3 * time.Second
)

// prepare makes the keyspace and the table if they are not there, through the first
// of the hosts that can be reached, and returns the name of its datacentre, which
// is the local one. It asks before it makes, so that who may not make anything can
// use what is there.
func prepare(ctx context.Context, o *Options, log *driverLog) (local string, err error) {
	for _, host := range o.Hosts {
		var node *soleNode
		if node, err = connectTo(host, o, log); err == nil {
			defer node.session.Close()
			return node.datacentre, node.makeSchema(ctx, o)
		}
	}
	return "", err
}

// soleNode is a session with one node.
type soleNode struct {
	session        *gocql.Session
	id, datacentre string
}

// connectTo connects to the node at that address, or one of those if it is the
// name of several.
func connectTo(host string, o *Options, log *driverLog) (*soleNode, error) {
	c := cluster(o, log)
	c.Hosts = []string{host}
	c.Timeout = schemaTimeout
	c.Consistency = gocql.LocalOne
	c.NumConns = 1
	c.Metadata.CacheMode = gocql.Disabled
	var sole atomic.Pointer[soleNode]
	c.HostFilter = gocql.HostFilterFunc(func(h *gocql.HostInfo) bool {
		// The driver asks of the node that it has connected to before all others.
		sole.CompareAndSwap(nil, &soleNode{id: h.HostID(), datacentre: h.DataCenter()})
		return h.HostID() == sole.Load().id
	})
	session, err := c.CreateSession()
	if err != nil {
		return nil, err
	}
	n := *sole.Load()
	n.session = session
	return &n, nil
}

// makeSchema makes what is not there of the keyspace and the table.
func (n *soleNode) makeSchema(ctx context.Context, o *Options) error {
	for _, part := range []struct {
		what, find string
		names      []any
		make       string
	}{
		{
			"the keyspace " + o.Keyspace, findKeyspace,
			[]any{o.Keyspace}, createKeyspace(o.Keyspace, n.datacentre, o.Replication),
		},
		{"the table " + o.Keyspace + "." + tableName, findTable, []any{o.Keyspace, tableName}, createTable(o.Keyspace)},
	} {
		var found int
		if err := one(n.session.Query(part.find, part.names...).IterContext(ctx), &found); err != nil {
			return fmt.Errorf("look for %s: %w", part.what, err)
		}
		if found > 0 {
			continue
		}
		if o.Existing {
			return fmt.Errorf("%s %w", part.what, ErrAbsent)
		}
		// The driver returns when all nodes that this one knows have it, or ctx ends.
		if err := n.session.Query(part.make).ExecContext(ctx); err != nil {
			return fmt.Errorf("make %s: %w", part.what, err)
		}
	}
	return nil
}

const findTable = "SELECT count(*) FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"

func createKeyspace(keyspace, local string, replication map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE KEYSPACE IF NOT EXISTS %s WITH replication = {'class': 'NetworkTopologyStrategy'", keyspace)
	for _, name := range slices.Sorted(maps.Keys(replication)) {
		datacentre := name
		if name == "" {
			datacentre = local
		}
		fmt.Fprintf(&b, ", '%s': %d", strings.ReplaceAll(datacentre, "'", "''"), replication[name])
	}
	b.WriteString("}")
	return b.String()
}

func createTable(keyspace string) string {
	return "CREATE TABLE IF NOT EXISTS " + keyspace + "." + tableName + " (key blob PRIMARY KEY, value blob)"
}

// persist tries until it succeeds or ctx ends, and returns what it has failed with
// last. If it takes long, the log is told once what for.
func persist(ctx context.Context, log *slog.Logger, what string, try func(context.Context) error) error {
	var last error
	for began, told := time.Now(), false; ; {
		err := try(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return cmp.Or(last, err) // err may be no more than that the time is over
		}
		last = err
		if !told && time.Since(began) >= schemaPatience {
			told = true
			log.Info("cassandra: the start waits "+what, "err", err)
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(schemaInterval):
		}
	}
}

// settle waits until all nodes have the table that it is connected to. If ctx ends
// before, it is enough that one has: the others are left to the operations then, so
// that one node in trouble does not keep a service from starting. look returns how
// many have it, and an error that says which do not.
func settle(ctx context.Context, log *slog.Logger, look func(context.Context) (have int, err error)) error {
	somewhere := false
	err := persist(ctx, log, "for the nodes to have the table", func(ctx context.Context) error {
		have, err := look(ctx)
		somewhere = somewhere || have > 0
		return err
	})
	if err != nil && somewhere {
		log.Warn("cassandra: not all nodes have the table", "err", err)
		return nil
	}
	return err
}

// whoHasTable asks each node that the session is connected to.
func whoHasTable(ctx context.Context, session *gocql.Session, keyspace string) (have int, err error) {
	var without []error
	for _, h := range session.GetHosts() {
		var found int
		err := one(session.Query(findTable, keyspace, tableName).Consistency(gocql.LocalOne).SetHostID(h.HostID()).IterContext(ctx), &found)
		switch {
		case errors.Is(err, gocql.ErrNoConnections): // it is down, elsewhere, or has no such keyspace yet
		case err != nil:
			without = append(without, fmt.Errorf("node %s: %w", h.ConnectAddress(), err))
		case found == 0:
			without = append(without, fmt.Errorf("node %s does not have the table", h.ConnectAddress()))
		default:
			have++
		}
	}
	if have == 0 && without == nil {
		return 0, gocql.ErrNoConnections
	}
	return have, joined(without)
}

// joined is errors.Join in one line.
func joined(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w; %w", errs[0], joined(errs[1:]))
}
