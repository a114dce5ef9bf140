package cassandra

import (
	"fmt"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/spillway-go/spillway/internal/store"
)

// levels are the cluster's names of what requests may ask for.
type levels [store.ConsistencyAll + 1]gocql.Consistency

// levelsOf returns the levels around the default of that name. If it is local to
// a datacentre, so are one and quorum.
func levelsOf(name string) (levels, error) {
	one, quorum := gocql.One, gocql.Quorum
	switch name {
	case "LOCAL_ONE", "LOCAL_QUORUM":
		one, quorum = gocql.LocalOne, gocql.LocalQuorum
	case "ONE", "TWO", "THREE", "QUORUM", "EACH_QUORUM", "ALL":
	default: // such as ANY, under which nothing can be read
		return levels{}, fmt.Errorf("cassandra: the consistency %q is not one of ONE, TWO, THREE, QUORUM, EACH_QUORUM, ALL, LOCAL_ONE, LOCAL_QUORUM", name)
	}
	byDefault, err := gocql.ParseConsistencyWrapper(name)
	if err != nil {
		return levels{}, err
	}
	return levels{
		store.ConsistencyDefault: byDefault,
		store.ConsistencyOne:     one,
		store.ConsistencyQuorum:  quorum,
		store.ConsistencyAll:     gocql.All,
	}, nil
}

func (l *levels) of(c store.Consistency) gocql.Consistency { return l[c] }

// serialOf returns the level at which replicas agree on conditional writes: local to a
// datacentre if the default is.
func serialOf(name string) gocql.Consistency {
	if strings.HasPrefix(name, "LOCAL_") {
		return gocql.LocalSerial
	}
	return gocql.Serial
}
