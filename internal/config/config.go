// Package config turns flags and environment variables into one checked struct.
//
// Every setting has a flag and a variable of the same name
// (--queue-capacity, SPILLWAY_QUEUE_CAPACITY), and the flag wins. The fields of
// [Config] are that list: names, defaults, bounds and help texts are their tags.
//
// The package has no side effects. Arguments, environment, the machine and the
// reading of files are passed in.
package config

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/store/delay"
	"github.com/spillway-go/spillway/strategies"
)

// Config is how the service is to run. All fields have been checked. The names
// of the variables are "SPILLWAY_" and the name in the tag, in upper case with
// underscores.
//
// A variable that is set to nothing counts as not set. What has the tag live can be changed
// while the service runs: see Invocation.Reload.
type Config struct {
	ConfigFile string `name:"config" help:"YAML file of settings by the names of their flags. Environment and flags win. SIGHUP reads it again."`

	Strategy    string `name:"strategy" live:"" default:"auto" enum:"${strategies}" help:"Queueing strategy: see spillway --help."`
	Mode        string `name:"mode" live:"" default:"enforce" enum:"enforce,observe" help:"What becomes of requests that the strategy turns away: enforce (refused), observe (counted, and served)."`
	Listen      string `name:"listen" default:"127.0.0.1:8080" type:"address" help:"Address of the data plane; port 0 picks a free one."`
	AdminListen string `name:"admin-listen" default:"127.0.0.1:6060" type:"address" help:"Address of the admin plane; port 0 picks a free one."`
	AcceptLoops int    `name:"accept-loops" default:"${cpus}" min:"1" max:"1024" help:"Concurrent accept loops; by default the number of CPUs."`
	// Workers is Auto if their number is to be learned.
	Workers Workers `name:"workers" live:"" default:"${workers}" min:"1" max:"65536" help:"How many requests run at once: a number, or auto, which learns it. By default twice the number of CPUs; 128 with the distributed store; auto in the proxy."`
	Pools   string  `name:"pools" default:"shared" enum:"shared,split" help:"shared (one queue for all), or split (reads and writes have a queue and half the workers each)."`
	// QueueCapacity is 0 if it is not set: then it is that of the active strategy.
	QueueCapacity int `name:"queue-capacity" live:"" unset:"256, or 4096 under auto" min:"1" max:"1048576" help:"Requests that may wait."`

	Store      string `name:"store" default:"pebble" enum:"pebble,cassandra" help:"Where the data is kept: pebble (embedded), cassandra (distributed)."`
	DataDir    string `name:"data-dir" default:"./data" help:"Folder of the embedded store."`
	Sync       Sync   `name:"sync" default:"always" help:"When a write is acknowledged: always (it is on the disk), interval:DURATION (a crash may lose that much), never (a crash may lose more)."`
	CacheBytes int64  `name:"cache-bytes" default:"${cache}" type:"size" min:"1" help:"Caches of the embedded store, half for values and half for blocks; by default a quarter of the memory."`

	CassandraHosts             string        `name:"cassandra-hosts" type:"hosts" help:"Nodes of the Cassandra cluster to connect to first, HOST[:PORT],…, all of the local datacentre."`
	CassandraKeyspace          string        `name:"cassandra-keyspace" type:"keyspace" default:"spillway" help:"Keyspace, created if it is absent."`
	CassandraConsistency       string        `name:"cassandra-consistency" default:"LOCAL_QUORUM" enum:"ONE,TWO,THREE,QUORUM,EACH_QUORUM,ALL,LOCAL_ONE,LOCAL_QUORUM" help:"Consistency of requests that do not say: ${enum}."`
	CassandraUsername          string        `name:"cassandra-username" help:"User name, if the cluster wants one."`
	CassandraPassword          string        `name:"cassandra-password" secret:"" help:"Password of that user."`
	CassandraReplicationFactor Replication   `name:"cassandra-replication-factor" default:"3" help:"Replicas of each key in a keyspace that is created: a number, or DATACENTRE:NUMBER,… for several."`
	CassandraSpeculativeDelay  time.Duration `name:"cassandra-speculative-delay" default:"0s" help:"How long a read waits before it asks a second node as well; 0 for never."`

	MaxKeyBytes              int   `name:"max-key-bytes" default:"4096" type:"size" min:"1" max:"65535" help:"Longest key."`
	MaxValueBytes            int   `name:"max-value-bytes" live:"" default:"1048576" type:"size" min:"1" max:"1073741824" help:"Longest value."`
	MaxBatchBytes            int   `name:"max-batch-bytes" live:"" default:"4194304" type:"size" min:"1" max:"1073741824" help:"Longest batch of operations, and longest answer to one."`
	MaxBodyBytes             int64 `name:"max-body-bytes" live:"" default:"${bodies}" type:"size" min:"1" help:"Total size of bodies that are being read or wait; by default an eighth of the memory."`
	MaxConnections           int   `name:"max-connections" live:"" default:"16384" min:"1" max:"10000000" help:"Most open connections; further ones are turned away."`
	MaxConnectionsPerAddress int   `name:"max-connections-per-address" live:"" default:"0" min:"0" max:"10000000" help:"Most open connections from one address, or one IPv6 /64 network; 0 for no such limit."`

	TrustRequestStart string `name:"trust-request-start" default:"false" enum:"false,true" help:"Take the time of arrival from X-Request-Start. Only behind a proxy that sets it: ${enum}."`

	AdminMaxConnections int `name:"admin-max-connections" live:"" default:"256" min:"1" max:"65536" help:"Most open connections of the admin plane; further ones are turned away."`

	FairWeights Weights `name:"fair-weights" placeholder:"NAME=WEIGHT,…" help:"Shares of clients under the strategy fair, from 1 to ${heaviest} each, such as gold=4,free=1; everybody else has 1."`

	SLO Objective `name:"slo" live:"" placeholder:"DURATION|none" unset:"100ms, or more where the work takes longer" help:"Latency objective: within it an answer is in time, and auto refuses what would be later. Unset, it is 100ms or, if that is longer, ${usual} times the usual service time. With none nothing is refused for being late."`

	ReadTimeout  time.Duration `name:"read-timeout" live:"" default:"10s" positive:"" help:"How long a client may take to send a request."`
	WriteTimeout time.Duration `name:"write-timeout" live:"" default:"10s" positive:"" help:"How long a client may read nothing of its answer."`
	IdleTimeout  time.Duration `name:"idle-timeout" live:"" default:"60s" positive:"" help:"How long a connection may be silent between requests."`
	DrainDelay   time.Duration `name:"drain-delay" live:"" default:"0s" help:"How long to go on serving after SIGTERM, while /readyz says 503."`
	DrainTimeout time.Duration `name:"drain-timeout" live:"" default:"10s" help:"How long queued requests may take to finish before they are shed."`

	TLSCert      string  `name:"tls-cert" help:"File with the TLS certificate of both planes, PEM."`
	TLSKey       string  `name:"tls-key" help:"File with the key of that certificate, PEM."`
	DataToken    string  `name:"data-token" type:"token" secret:"" help:"Bearer token that requests of the data plane must carry."`
	AllowedHosts Names   `name:"allowed-hosts" help:"Host names by which browsers may reach a data plane on loopback without a token, beside localhost and IP addresses: HOST,…."`
	CORSOrigins  Origins `name:"cors-origins" help:"Origins whose pages may call the data plane from a browser, SCHEME://HOST[:PORT],…."`
	AdminToken   string  `name:"admin-token" type:"token" secret:"" help:"Bearer token that requests of the admin plane must carry."`

	// StoreDelay makes the store slow, in the lab. The zero value does not.
	StoreDelay    delay.Distribution `name:"store-delay" default:"0" help:"How long each operation sleeps first, such as 4ms or exp:4ms."`
	StoreParallel int                `name:"store-parallel" default:"0" min:"0" max:"65536" help:"With a delay: how many operations the store does at once, while others wait in it; 0 for no bound."`

	AccessLog string `name:"access-log" default:"off" enum:"off,all,shed" help:"A line of JSON on stdout for each request: ${enum}; shed is what was not good."`
	LogLevel  string `name:"log-level" live:"" default:"info" enum:"debug,info,warn,error" help:"Lowest level that is logged: ${enum}."`
	LogFormat string `name:"log-format" default:"text" enum:"text,json" help:"Format of the log on stderr: ${enum}."`
}

// Workers is a number of workers, or Auto.
type Workers int

// Auto has the number of workers learned.
const Auto Workers = 0

// Shown returns w for other eyes: a number, or auto.
func (w Workers) Shown() any {
	if w == Auto {
		return "auto"
	}
	return int(w)
}

// Objective is a latency objective: 0 if none is set, or strategies.NoObjective.
type Objective time.Duration

// String returns o in the form in which it is configured.
func (o Objective) String() string { return strategies.FormatObjective(time.Duration(o)) }

// ModeObserve is the Mode in which nothing is shed for a strategy's own reasons.
const ModeObserve = "observe"

// The modes of Sync.
const (
	SyncAlways   = "always"   // a write is on the disk before it is acknowledged
	SyncInterval = "interval" // written to the disk every Interval
	SyncNever    = "never"    // written to the disk when the store likes
)

// Sync says how durable an acknowledged write is.
type Sync struct {
	Mode string
	// Interval is at least a millisecond with SyncInterval, otherwise 0.
	Interval time.Duration
}

// String returns s in the form in which it is configured.
func (s Sync) String() string {
	if s.Mode == SyncInterval {
		return s.Mode + ":" + s.Interval.String()
	}
	return s.Mode
}

// The stores.
const (
	StorePebble    = "pebble"
	StoreCassandra = "cassandra"
)

// Replication is how many replicas a key has in each datacentre, by its name. The
// name "" stands for the one that the service is in.
type Replication map[string]int

// String returns r in the form in which it is configured.
func (r Replication) String() string {
	return strings.TrimPrefix(pairs(r, ":"), ":") // the name "" stands alone
}

// pairs returns a map in the form in which it is configured.
func pairs(of map[string]int, between string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, name+between+strconv.Itoa(of[name]))
	}
	return strings.Join(parts, ",")
}

// Weights are the weights of clients by name.
type Weights map[string]int

// String returns w in the form in which it is configured.
func (w Weights) String() string { return pairs(w, "=") }

// Names are names of hosts, in lower case.
type Names []string

// String returns n in the form in which it is configured.
func (n Names) String() string { return strings.Join(n, ",") }

// Origins are origins of pages as browsers write them.
type Origins []string

// String returns o in the form in which it is configured.
func (o Origins) String() string { return strings.Join(o, ",") }

// Redacted returns the value of every setting by the name of its variable, fit
// for JSON and for other eyes: what is secret is blanked.
func (c *Config) Redacted() map[string]any { return redacted(*c) }

// Redacted returns the values of those settings that the command reads.
func (i *Invocation) Redacted() map[string]any {
	settings := i.Config.Redacted()
	if i.Command == Proxy {
		maps.DeleteFunc(settings, func(name string, _ any) bool {
			return !slices.ContainsFunc(proxySettings, func(s string) bool { return variable(s) == name })
		})
		maps.Copy(settings, redacted(i.Proxy))
		if len(i.Config.FairWeights) > 0 && i.Proxy.Client.Hashes() {
			settings[variable("fair-weights")] = blank // the names may be keys
		}
	}
	return settings
}

func redacted(of any) map[string]any {
	settings := make(map[string]any)
	v := reflect.ValueOf(of)
	for _, f := range reflect.VisibleFields(v.Type()) {
		var shown any
		switch value := v.FieldByIndex(f.Index).Interface().(type) {
		case string:
			shown = value
			if _, secret := f.Tag.Lookup("secret"); secret && value != "" {
				shown = blank
			}
		case interface{ String() string }:
			shown = value.String()
		case Workers:
			shown = value.Shown()
		default:
			shown = value
		}
		settings[variable(f.Tag.Get("name"))] = shown
	}
	return settings
}

// blank stands for a secret.
const blank = "(secret)"
