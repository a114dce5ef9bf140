package config

import (
	"fmt"
	"math"
)

// What the process needs file descriptors for beside the connections that it
// serves.
const (
	// otherFiles are standard ones, listeners, epoll sets, logs, manifests, what
	// compactions and a backup write, connections to a cluster, connections that
	// are being refused.
	otherFiles = 512
	// leastTables is how many tables the store must be able to keep open.
	leastTables = 128
	// mostTables is how many it keeps open where there is room.
	mostTables = 8192
)

// FitDescriptors shares out the descriptors that the process may have among both
// planes and the store, so that none can take those of another. If they are too
// few for all connections that are allowed, MaxConnections is lowered and the
// warning says so. It returns how many tables the store may keep open.
func (c *Config) FitDescriptors(limit uint64) (tables int, warning string, err error) {
	fixed := otherFiles + c.AcceptLoops + c.AdminMaxConnections
	rest := int(min(limit, math.MaxInt32)) - fixed
	tables = min(max(rest-c.MaxConnections, leastTables), mostTables)
	connections := rest - tables
	if connections < 1 {
		return 0, "", fmt.Errorf("at most %d file descriptors may be open (ulimit -n), and %d are needed beside those of connections of the data plane: raise the limit, or lower %s, which is %d",
			limit, fixed+leastTables, variable("admin-max-connections"), c.AdminMaxConnections)
	}
	if connections < c.MaxConnections {
		warning = fmt.Sprintf("%s is lowered from %d to %d: at most %d file descriptors may be open (ulimit -n), and others are kept for the admin plane and the store; %d would be enough",
			variable("max-connections"), c.MaxConnections, connections, limit, fixed+leastTables+c.MaxConnections)
		c.MaxConnections = connections
	}
	return tables, warning, nil
}
