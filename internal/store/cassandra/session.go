package cassandra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const tableName = "entities"

const (
	connectTimeout = 5 * time.Second
	// schemaTimeout bounds each statement that looks at the schema or changes it,
	// which takes its time.
	schemaTimeout = 30 * time.Second
	// reconnectInterval is how often nodes that are down are tried.
	reconnectInterval = 2 * time.Second
)

// cluster returns what all sessions have in common.
func cluster(o *Options, log *driverLog) *gocql.ClusterConfig {
	c := gocql.NewCluster(o.Hosts...)
	c.ConnectTimeout = connectTimeout
	c.ReconnectInterval = reconnectInterval
	c.Logger = log
	if o.Username != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	return c
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
	c.QueryObserver = hosts
	c.Metadata.CacheMode = gocql.KeyspaceOnly
	return c.CreateSession()
}

// prepare makes the keyspace and the table if they are not there, and returns the
// name of the local datacentre. It asks before it makes, so that who may not make
// anything can use what is there.
func prepare(o *Options, log *driverLog) (local string, err error) {
	c := cluster(o, log)
	c.Timeout = schemaTimeout
	c.Consistency = gocql.LocalOne
	c.NumConns = 1
	c.Metadata.CacheMode = gocql.Disabled
	session, err := c.CreateSession()
	if err != nil {
		return "", err
	}
	defer session.Close()
	ctx := context.Background()
	if err := one(session.Query("SELECT data_center FROM system.local").IterContext(ctx), &local); err != nil {
		return "", fmt.Errorf("find the local datacentre: %w", err)
	}
	var found int
	if err := one(session.Query("SELECT count(*) FROM system_schema.keyspaces WHERE keyspace_name = ?", o.Keyspace).IterContext(ctx), &found); err != nil {
		return "", fmt.Errorf("look for the keyspace: %w", err)
	}
	if found == 0 {
		if err := session.Query(createKeyspace(o.Keyspace, local, o.Replication)).ExecContext(ctx); err != nil {
			return "", fmt.Errorf("make the keyspace: %w", err)
		}
	}
	if err := one(session.Query("SELECT count(*) FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", o.Keyspace, tableName).IterContext(ctx), &found); err != nil {
		return "", fmt.Errorf("look for the table: %w", err)
	}
	if found == 0 {
		if err := session.Query(createTable(o.Keyspace)).ExecContext(ctx); err != nil {
			return "", fmt.Errorf("make the table: %w", err)
		}
	}
	return local, nil
}

// one reads the one row that an answer has.
func one(it *gocql.Iter, dest any) error {
	found := it.Scan(dest)
	if err := it.Close(); err != nil {
		return err
	}
	if !found {
		return gocql.ErrNotFound
	}
	return nil
}

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
