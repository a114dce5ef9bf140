package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/strategies"
)

const prefix = "SPILLWAY_"

// Input is all that Parse looks at.
type Input struct {
	// Args are the arguments, without the name of the program.
	Args []string
	// Env is the environment, "key=value" each.
	Env []string
	// Machine sizes some of the defaults.
	Machine Machine
	// ReadFile is secure.ReadFile, or a fake of it.
	ReadFile func(name string, pipe bool) ([]byte, error)
	// NoEmptyFile makes an empty configuration file an error. Otherwise it sets nothing.
	NoEmptyFile bool
	// Version is what --version prints.
	Version string
}

// Command is what the program is asked to do.
type Command int

const (
	// Serve runs the service.
	Serve Command = iota
	// Healthcheck asks a running service whether it is ready.
	Healthcheck
	// Backup asks a running service for a backup in Invocation.Dir.
	Backup
	// Restore puts the backup in Invocation.Dir in the data folder.
	Restore
	// Check checks Invocation.Dir, or the data folder if that is empty.
	Check
	// Copy does what Invocation.Copy says.
	Copy
	// Proxy forwards requests as Invocation.Proxy says.
	Proxy
	// CheckConfig has checked Config.ConfigFile, and prints Invocation.Text.
	CheckConfig
	// Print prints Invocation.Text.
	Print
)

// Invocation is what the arguments and the environment say.
type Invocation struct {
	Command Command
	// Dir is the folder that was named for Backup, Restore or Check.
	Dir string
	// Copy says what to copy, with Copy. The cluster is Config.CassandraHosts.
	Copy Transfer
	// Proxy says what to forward, with Proxy.
	Proxy Forward
	// Text is the help or the version, with Print, and what was found, with CheckConfig.
	Text string
	// Config is complete, except with Print.
	Config Config
	// From says where values are from that are no defaults, by the names of their variables:
	// "flag", "environment", or file and line. Only with Serve and Proxy.
	From map[string]string
	// Empty says that the configuration file has nothing in it, not even a comment.
	Empty bool
	// Warnings are for the log, a sentence each.
	Warnings []string
}

// Transfer are the flags of Copy.
type Transfer struct {
	// From is a data folder or a backup.
	From string `name:"from" required:"" type:"source" placeholder:"pebble:DIR" help:"What to copy: pebble:DIR, a backup, or a data folder that no service uses."`
	// To are nodes of a cluster.
	To string `name:"to" required:"" type:"target" placeholder:"cassandra:HOSTS" help:"Where to: cassandra:HOST[:PORT],…, nodes of the cluster, all of the local datacentre. Keyspace, replication, consistency, user and password are set as for the service. --workers says how many operations run at once."`
	// State is the path of the file with which an interrupted copy goes on.
	State string `name:"state" default:"spillway-copy.json" help:"File with the progress, from which the same command goes on after an interruption. It is removed at the end."`
	// VerifyOnly says that nothing is to be copied.
	VerifyOnly bool `name:"verify-only" help:"Compare only; copy nothing."`
}

// Forward are the settings of Proxy, beside those of Config.
type Forward struct {
	Upstream     string           `name:"upstream" type:"upstream" live:"" placeholder:"URL,…" help:"The service to forward to, such as http://127.0.0.1:3000, or several that do the same, with commas. A name with several addresses is one at each. How many requests each gets at once is learned, or --workers says so."`
	Client       rules.Client     `name:"proxy-client" live:"" default:"address" placeholder:"address|header:NAME" help:"Who the client is: the address, or a header such as header:Authorization, which is kept hashed."`
	Priority     rules.Priorities `name:"proxy-priority" live:"" placeholder:"RULES" help:"How important a request is, from 0, the most, to 7: path:/admin=6,path:/checkout=0,header:NAME. The first rule that fits decides."`
	Exempt       rules.Paths      `name:"proxy-exempt" live:"" placeholder:"PATHS" help:"Paths that bypass the queue, with all below them: /health,/static."`
	Hold         string           `name:"proxy-hold" live:"" default:"auto" enum:"auto,body,headers" help:"How long a request holds its place: until the headers of the answer, or the end of its body. auto: the body, but the headers for upgrades, and for event streams in answer to a GET. One of ${enum}."`
	BufferBytes  int64            `name:"proxy-buffer-bytes" live:"" default:"64KiB" type:"size" min:"1" max:"16777216" help:"How much of a request's body arrives before the request waits, and how much of an answer is held for a slow client without a place."`
	Routes       rules.Routes     `name:"proxy-routes" live:"" placeholder:"ROUTES" help:"Names of paths for metrics, access log, spans and the slowest requests, at most 64: /orders/*=orders,/search=search."`
	TrustHeaders string           `name:"proxy-trust-headers" live:"" default:"false" enum:"false,true" help:"Whether to trust the client's headers Spillway-*, Priority and X-Forwarded-*: ${enum}."`
	Timeout      time.Duration    `name:"proxy-timeout" live:"" default:"60s" positive:"" help:"How long the upstream may take until the headers of its answer, and then for each further piece of it."`
}

// configFile is the setting that names the configuration file.
const configFile = "config"

// proxyCommand is the name of Proxy.
const proxyCommand = "proxy"

// flagsOnly are the flags that are no settings, and have no variable.
var flagsOnly = []string{"help", "version", "from", "to", "state", "verify-only"}

// grammar is the command line.
type grammar struct {
	Config `embed:""`

	DataTokenFile  string `name:"data-token-file" help:"File with the token of the data plane."`
	AdminTokenFile string `name:"admin-token-file" help:"File with the token of the admin plane."`

	Version kong.VersionFlag `name:"version" help:"Print version, commit and Go version."`

	Serve       struct{} `cmd:"" default:"withargs" help:"Serve. The default."`
	Healthcheck struct{} `cmd:"" help:"Exit with 0 if the service with this configuration is ready, otherwise with 1."`
	Backup      folder   `cmd:"" help:"Have the running service with this configuration write a backup into DIR, which must be absent or empty. The service goes on."`
	Restore     folder   `cmd:"" help:"Restore the backup in DIR into the data folder, which must be absent or empty. No service may be using it."`
	Check       struct {
		Dir string `arg:"" optional:"" help:"A data folder or a backup (default: the data folder)."`
	} `cmd:"" help:"Verify all checksums in the data folder, or in DIR. Nothing is changed. No service may be using it."`
	ConfigCommand struct {
		Check struct {
			File string `arg:"" help:"The file."`
		} `cmd:"" help:"Say whether FILE is right, together with the environment. One with upstream, or a setting of the proxy, is for the proxy. Nothing is started."`
	} `cmd:"" name:"config" help:"Check a configuration file: spillway config check FILE."`
	Completion struct {
		Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
	} `cmd:"" help:"Print what a shell reads to complete commands and flags: source <(spillway completion bash)."`
	Man struct{} `cmd:"" help:"Print the manual page: spillway man | man -l -."`

	Proxy Forward  `cmd:"" help:"Put the queue in front of any HTTP service: forward requests, each in its turn. It has the same console and metrics."`
	Copy  Transfer `cmd:"" help:"Copy all keys from an embedded store to a Cassandra cluster, and verify the copy. A key that was written later in the cluster keeps its value."`
}

// folder is the argument of a command.
type folder struct {
	Dir string `arg:"" help:"Folder of the backup."`
}

// Parse reads the arguments and the environment. A ValueError says that the
// value of a setting is bad; other errors are about arguments that are not
// known. All of them are one line.
func Parse(in Input) (Invocation, error) {
	src := &sources{in: &in, env: environment(in.Env), from: map[string]string{}}
	inv, err := parse(in, src)
	if err != nil {
		return Invocation{}, src.locate(err)
	}
	return inv, nil
}

func parse(in Input, src *sources) (Invocation, error) {
	env := src.env
	var (
		g       grammar
		printed bool
		text    bytes.Buffer
	)
	options := append(mappers(),
		kong.Name("spillway"),
		kong.Description("A durable key-value service whose queueing strategy can be chosen, and switched while it runs.\n\n"+
			"Every setting is a flag, an environment variable and a name in the configuration file, and counts in this order."),
		kong.Vars{
			"version":    in.Version,
			"strategies": strings.Join(strategies.Names(), ","),
			"usual":      strconv.Itoa(strategies.StandInTimes),
			"heaviest":   strconv.Itoa(largestWeight),
			"cpus":       strconv.Itoa(in.Machine.CPUs),
			"workers":    strconv.Itoa(2 * in.Machine.CPUs),
			"cache":      strconv.FormatInt(max(1, in.Machine.Memory/4), 10),
			"bodies":     strconv.FormatInt(max(1, in.Machine.Memory/8), 10),
		},
		kong.WithHyphenPrefixedParameters(true), // so that -1 is a bad value and not an unknown flag
		kong.Help(printHelp),
		kong.Writers(&text, &text),
		kong.Exit(func(int) { printed = true }),
		// Not kong's own reading of the environment, which has a side effect
		// the other way round: it depends on the process.
		kong.Resolvers(src),
	)
	parser, err := kong.New(&g, options...)
	if err != nil {
		return Invocation{}, fmt.Errorf("command line: %w", err)
	}
	ctx, err := parser.Parse(in.Args)
	if printed {
		return Invocation{Command: Print, Text: text.String()}, nil
	}
	if err != nil {
		return Invocation{}, plain(err, in.Args)
	}
	if err := g.readTokens(&in); err != nil {
		return Invocation{}, err
	}
	command, _, _ := strings.Cut(ctx.Command(), " ") // its arguments follow
	switch command {
	case "config":
		return checkFile(in, g.ConfigCommand.Check.File)
	case "completion":
		return Invocation{Command: Print, Text: completion(ctx.Model, g.Completion.Shell)}, nil
	case "man":
		return Invocation{Command: Print, Text: manual(ctx.Model, in.Version)}, nil
	}
	copies := command == "copy"
	if copies {
		g.CassandraHosts = g.Copy.To
	}
	switch {
	case given(ctx, "workers"):
	case command == proxyCommand:
		g.Workers = Auto
	case copies || g.Store == StoreCassandra:
		g.Workers = waitingWorkers
	}
	var warnings []string
	if command == proxyCommand {
		if err = g.checkProxy(ctx); err != nil {
			// What is missing may be misspelt.
			if bad, ok := errors.AsType[*ValueError](err); ok {
				bad.Allowed = strings.Join(append([]string{bad.Allowed}, unknown(env, ctx)...), "; ")
			}
		}
	} else {
		warnings, err = g.check(copies)
	}
	if err != nil {
		return Invocation{}, err
	}
	ignored := append(unknown(env, ctx), src.useless(ctx)...)
	slices.Sort(ignored)
	inv := Invocation{Command: Serve, Config: g.Config, Warnings: append(ignored, warnings...)}
	inv.Config.ConfigFile, inv.Empty = src.name, src.empty
	switch command {
	case "healthcheck":
		inv.Command = Healthcheck
	case "backup":
		inv.Command, inv.Dir = Backup, g.Backup.Dir
	case "restore":
		inv.Command, inv.Dir = Restore, g.Restore.Dir
	case "check":
		inv.Command, inv.Dir = Check, g.Check.Dir
	case "copy":
		inv.Command, inv.Copy = Copy, g.Copy
	case proxyCommand:
		inv.Command, inv.Proxy = Proxy, g.Proxy
	}
	if inv.Command == Serve || inv.Command == Proxy {
		inv.From = src.origins(ctx)
	}
	return inv, nil
}

// environment returns the variables that are ours.
func environment(env []string) map[string]string {
	ours := make(map[string]string)
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, prefix) {
			ours[name] = value
		}
	}
	return ours
}

// isSetting reports whether a flag is a setting.
func isSetting(v *kong.Value) bool { return !slices.Contains(flagsOnly, v.Name) }

// helpText adds the variable and the default to the help of a flag.
func helpText(v *kong.Value) string {
	var notes []string
	if isSetting(v) {
		notes = append(notes, "$"+variable(v.Name))
	}
	if v.HasDefault && v.Default != "" {
		notes = append(notes, "default "+v.Default)
	} else if unset := v.Tag.Get("unset"); unset != "" {
		notes = append(notes, "default "+unset)
	}
	if len(notes) == 0 {
		return v.Help
	}
	return v.Help + " [" + strings.Join(notes, ", ") + "]"
}

// plain returns the ValueError within a parser's error, or a line that says
// where to find help.
func plain(err error, args []string) error {
	if bad, ok := errors.AsType[*ValueError](err); ok {
		return bad
	}
	if bad, ok := errors.AsType[*FileError](err); ok {
		return bad
	}
	return errors.New(mistake(err, args))
}

// readTokens reads the tokens that were given as files.
func (g *grammar) readTokens(in *Input) error {
	for _, t := range []struct {
		setting, file string
		token         *string
	}{
		{"data-token", g.DataTokenFile, &g.DataToken},
		{"admin-token", g.AdminTokenFile, &g.AdminToken},
	} {
		if t.file == "" {
			continue
		}
		bad := &ValueError{Setting: t.setting + "-file", Value: t.file}
		if *t.token != "" {
			bad.Allowed = fmt.Sprintf("either it or %s (--%s), not both", variable(t.setting), t.setting)
			return bad
		}
		content, err := in.read(t.file, false)
		if err != nil {
			bad.Allowed = fmt.Sprintf("a file that can be read (%v)", err)
			return bad
		}
		if *t.token, err = parseToken(nil, strings.TrimRight(string(content), "\r\n")); err != nil {
			bad.Allowed = fmt.Sprintf("a file that holds a token: %v", err)
			return bad
		}
	}
	return nil
}

// waitingWorkers is how many workers there are for a store on other machines:
// they bound what is in flight there, and each costs a goroutine that waits.
const waitingWorkers = 128

// given reports whether a setting was given, by its flag or its variable.
func given(ctx *kong.Context, setting string) bool {
	return slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == setting })
}

// check looks at the settings that depend on each other, also if it is for a copy.
func (c *Config) check(copies bool) (warnings []string, err error) {
	switch {
	case copies && c.Workers == Auto:
		return nil, &ValueError{Setting: "workers", Value: "auto", Allowed: "a number when copying"}
	case c.Pools == "split" && c.Workers == Auto:
		return nil, &ValueError{Setting: "workers", Value: "auto", With: "pools", Allowed: "a number, at least 2, when " + variable("pools") + " is split: what is learned is one number for all"}
	case c.Pools == "split" && c.Workers < 2:
		return nil, &ValueError{Setting: "workers", Value: strconv.Itoa(int(c.Workers)), With: "pools", Allowed: "at least 2 when " + variable("pools") + " is split"}
	case c.StoreParallel > 0 && c.StoreDelay.IsZero():
		return nil, &ValueError{Setting: "store-parallel", Value: strconv.Itoa(c.StoreParallel), Allowed: "0 unless " + variable("store-delay") + " is set: it bounds a delayed store only"}
	}
	if err := c.checkTLS(); err != nil {
		return nil, err
	}
	if c.Store == StoreCassandra {
		if err := c.checkCassandra(); err != nil {
			return nil, err
		}
	}
	if copies {
		if err := c.checkLogin(); err != nil {
			return nil, err
		}
	}
	if !copies && c.Store != StoreCassandra && c.CassandraHosts != "" {
		warnings = append(warnings, fmt.Sprintf("%s is set, and %s is %s: the data is in %s, not in the cluster",
			variable("cassandra-hosts"), variable("store"), c.Store, variable("data-dir")))
	}
	if c.MaxBodyBytes < int64(c.MaxValueBytes) {
		warnings = append(warnings, fmt.Sprintf("%s is %d and %s is %d: values of more than %d bytes will always be turned away",
			variable("max-body-bytes"), c.MaxBodyBytes, variable("max-value-bytes"), c.MaxValueBytes, c.MaxBodyBytes))
	}
	return warnings, nil
}

func (c *Config) checkTLS() error {
	switch {
	case c.TLSCert != "" && c.TLSKey == "":
		return &ValueError{Setting: "tls-key", With: "tls-cert", Allowed: "the file with the key of " + variable("tls-cert")}
	case c.TLSKey != "" && c.TLSCert == "":
		return &ValueError{Setting: "tls-cert", With: "tls-key", Allowed: "the file with the certificate of " + variable("tls-key")}
	}
	return nil
}

func (c *Config) checkCassandra() error {
	with := " when " + variable("store") + " is " + StoreCassandra
	switch {
	case c.CassandraHosts == "":
		return &ValueError{Setting: "cassandra-hosts", With: "store", Allowed: "nodes of the cluster, such as 10.0.0.1,10.0.0.2:9042," + with}
	case !c.StoreDelay.IsZero():
		return &ValueError{Setting: "store-delay", Value: c.StoreDelay.String(), Allowed: "0" + with}
	}
	return c.checkLogin()
}

// useless reports whether a flag is a setting of which the command has no use.
func useless(ctx *kong.Context, f *kong.Flag) bool {
	return isSetting(f.Value) && slices.Contains(ctx.Model.Flags, f) && !reads(ctx.Selected().Name, f.Name)
}

// checkProxy looks at what the proxy needs, and at what has no meaning for it: a flag is
// refused, and a variable that others may read only if it is there to restrict clients.
func (g *grammar) checkProxy(ctx *kong.Context) error {
	const with = " with the proxy"
	switch {
	case g.Proxy.Upstream == "":
		return &ValueError{Setting: "upstream", Value: "", Allowed: "the service to forward to, such as http://127.0.0.1:3000"}
	case g.DataToken != "":
		return &ValueError{Setting: "data-token", Value: blank, With: "data-token-file", Allowed: "nothing" + with + ": the upstream checks its clients' tokens"}
	case g.Pools != "shared":
		return &ValueError{Setting: "pools", Value: g.Pools, Allowed: "shared" + with}
	case g.MaxConnectionsPerAddress != 0:
		return &ValueError{Setting: "max-connections-per-address", Value: strconv.Itoa(g.MaxConnectionsPerAddress), Allowed: "0" + with}
	case g.TrustRequestStart != "false":
		return &ValueError{Setting: "trust-request-start", Value: g.TrustRequestStart, Allowed: "false" + with}
	}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved && useless(ctx, p.Flag) {
			return fmt.Errorf("the proxy has no flag --%s (see spillway proxy --help)", p.Flag.Name)
		}
	}
	return g.checkTLS()
}

func (c *Config) checkLogin() error {
	switch {
	case c.CassandraUsername != "" && c.CassandraPassword == "":
		return &ValueError{Setting: "cassandra-password", With: "cassandra-username", Allowed: "the password of " + variable("cassandra-username")}
	case c.CassandraUsername == "" && c.CassandraPassword != "":
		return &ValueError{Setting: "cassandra-username", With: "cassandra-password", Allowed: "the user of " + variable("cassandra-password")}
	}
	return nil
}

// unknown warns of the variables that are no settings, or that the proxy does not read,
// sorted.
func unknown(env map[string]string, ctx *kong.Context) (warnings []string) {
	var known []string
	for _, flag := range ctx.Flags() {
		if !isSetting(flag.Value) {
			continue
		}
		name := variable(flag.Name)
		known = append(known, name)
		// The image sets the data folder for all commands.
		if env[name] != "" && flag.Name != "data-dir" && useless(ctx, flag) {
			warnings = append(warnings, fmt.Sprintf("environment variable %q is ignored: the proxy has no use for it", name))
		}
	}
	for name := range env {
		if !slices.Contains(known, name) {
			warnings = append(warnings, fmt.Sprintf("unknown environment variable %q is ignored", name))
		}
	}
	return warnings
}
