package cassandra

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const (
	connectTimeout = 5 * time.Second
	// reconnectInterval is how often nodes that are down are tried.
	reconnectInterval = 2 * time.Second
)

// cluster returns what all sessions have in common.
func cluster(o *Options, log *driverLog) *gocql.ClusterConfig {
	c := gocql.NewCluster(o.Hosts...)
	c.ConnectTimeout = connectTimeout
	c.ReconnectInterval = reconnectInterval
	// Once, as that is tried again after reconnectInterval anyway. Each further time a
	// start waits another connectTimeout for a node that hangs, and so do nodes that
	// have come back, which are tried after it.
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: 100 * time.Millisecond}
	c.Logger = log
	if o.Username != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	return c
}

// start opens the session that operations use, once the schema is there, and
// returns what chooses its nodes as well.
func start(o *Options, log *driverLog) (session *gocql.Session, hosts *cautious, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), schemaTimeout)
	defer cancel()
	local, err := prepare(ctx, o, log)
	if err != nil {
		return nil, nil, err
	}
	// The cluster can be reached, but the node that knows the keyspace may not know
	// the others yet, nor they the keyspace.
	err = persist(ctx, o.Logger, "to connect to nodes that have the keyspace", func(context.Context) error {
		hosts = newCautious() // one that failed knows hosts as they were
		session, err = connect(o, log, local, hosts)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	err = settle(ctx, o.Logger, func(ctx context.Context) (int, error) { return whoHasTable(ctx, session, o.Keyspace) })
	if err != nil {
		session.Close()
		return nil, nil, fmt.Errorf("wait for the table: %w", err)
	}
	if keyspace, err := session.KeyspaceMetadata(o.Keyspace); err == nil { // or the operations will say
		warnOfReplicas(o.Logger, keyspace, local, session.GetHosts())
	}
	return session, hosts, nil
}

// warnOfReplicas tells the log if the keyspace has more replicas than there are
// nodes: a start finds nothing wrong with that, and operations fail.
func warnOfReplicas(log *slog.Logger, keyspace *gocql.KeyspaceMetadata, local string, hosts []*gocql.HostInfo) {
	setting := cmp.Or(keyspace.StrategyOptions[local], keyspace.StrategyOptions["replication_factor"])
	replicas, err := strconv.Atoi(fmt.Sprint(setting))
	if err != nil {
		return // it has none here, or transient ones
	}
	nodes := 0
	for _, h := range hosts {
		if h.DataCenter() == local {
			nodes++
		}
	}
	if replicas > nodes {
		log.Warn("cassandra: the keyspace has more replicas than the datacentre has nodes, as far as is known: requests that need more replicas than there are nodes will be answered 503",
			"keyspace", keyspace.Name, "replicas", replicas, "datacentre", local, "nodes", nodes)
	}
}

// connect opens the session that operations use, with nodes of the local
// datacentre alone. That is no mere preference: a node elsewhere would take
// another datacentre for the local one, and its quorum need not meet ours.
func connect(o *Options, log *driverLog, local string, hosts *cautious) (*gocql.Session, error) {
	c := cluster(o, log)
	c.Keyspace = o.Keyspace
	c.Timeout = attemptTimeout
	c.RetryPolicy = oneMore{}
	c.DefaultIdempotence = true
	c.HostFilter = gocql.DataCenterHostFilter(local)
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(hosts, gocql.ShuffleReplicas())
	if o.SpeculativeDelay > 0 {
		c.PoolConfig.HostSelectionPolicy = elsewhere{c.PoolConfig.HostSelectionPolicy}
	}
	c.QueryObserver = hosts
	c.Metadata.CacheMode = gocql.KeyspaceOnly
	return c.CreateSession()
}

// one reads the one row that an answer has.
func one(it *gocql.Iter, dest ...any) error {
	found := it.Scan(dest...)
	if err := it.Close(); err != nil {
		return err
	}
	if !found {
		return gocql.ErrNotFound
	}
	return nil
}
