package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"

	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/store/delay"
	"github.com/spillway-go/spillway/strategies"
)

// ValueError says that the value of a setting is bad.
type ValueError struct {
	// Setting is the name of the setting, as in its flag.
	Setting string
	// Value is the value as it was given, blanked if it is secret.
	Value string
	// Allowed completes the sentence "want …".
	Allowed string
	// With is the setting that asks for another value, if there is one.
	With string
	// From is the line of the configuration file that it is from, if it is.
	From string
}

// Error returns one line that names the variable, if there is one, the flag, the
// value and what is allowed.
func (e *ValueError) Error() string {
	value := e.Value
	if len(value) > 100 {
		value = value[:100] + "…"
	}
	name := "--" + e.Setting
	if e.Setting == "shell" { // the argument of completion
		name = "SHELL"
	} else if !slices.Contains(flagsOnly, e.Setting) {
		name = fmt.Sprintf("%s (%s)", variable(e.Setting), name)
	}
	where := ""
	if e.From != "" {
		where = e.From + ": "
	}
	return fmt.Sprintf("%sbad value %q for %s: want %s", where, value, name, e.Allowed)
}

// variable returns the name of a setting's environment variable.
func variable(setting string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// mappers tell kong how to read the types of Config's fields.
func mappers() []kong.Option {
	return []kong.Option{
		kong.KindMapper(reflect.String, mapper(parseChoice)),
		kong.KindMapper(reflect.Int, mapper(parseNumber)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), mapper(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[Sync](), mapper(parseSync)),
		kong.TypeMapper(reflect.TypeFor[Objective](), mapper(parseObjective)),
		kong.TypeMapper(reflect.TypeFor[Workers](), mapper(parseWorkers)),
		kong.TypeMapper(reflect.TypeFor[delay.Distribution](), mapper(parseDelay)),
		kong.TypeMapper(reflect.TypeFor[Replication](), mapper(parseReplication)),
		kong.TypeMapper(reflect.TypeFor[Weights](), mapper(parseWeights)),
		kong.TypeMapper(reflect.TypeFor[Names](), mapper(parseNames)),
		kong.TypeMapper(reflect.TypeFor[Origins](), mapper(parseOrigins)),
		kong.TypeMapper(reflect.TypeFor[rules.Client](), mapper(parseText[rules.Client])),
		kong.TypeMapper(reflect.TypeFor[rules.Priorities](), mapper(parseText[rules.Priorities])),
		kong.TypeMapper(reflect.TypeFor[rules.Paths](), mapper(parseText[rules.Paths])),
		kong.TypeMapper(reflect.TypeFor[rules.Routes](), mapper(parseText[rules.Routes])),
		kong.NamedMapper("upstream", mapper(parseUpstream)),
		kong.NamedMapper("hosts", mapper(parseHosts)),
		kong.NamedMapper("source", mapper(parseSource)),
		kong.NamedMapper("target", mapper(parseTarget)),
		kong.NamedMapper("keyspace", mapper(parseKeyspace)),
		kong.NamedMapper("address", mapper(parseAddress)),
		kong.NamedMapper("size", mapper(parseSize)),
		kong.NamedMapper("token", mapper(parseToken)),
	}
}

// mapper returns a mapper whose errors are ValueErrors. The errors of parse say
// what is allowed.
func mapper[T any](parse func(*kong.Value, string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		token := ctx.Scan.Pop()
		s, _ := token.Value.(string) // the end of the arguments is no value
		value, err := parse(ctx.Value, s)
		if err != nil {
			switch {
			case ctx.Value.Tag.Has("secret") && s != "":
				s = blank
			case ctx.Value.Tag.Type == "upstream":
				s = secure.HideUser(s)
			}
			return &ValueError{Setting: ctx.Value.Name, Value: s, Allowed: err.Error()}
		}
		target.Set(reflect.ValueOf(value).Convert(target.Type()))
		return nil
	}
}

// parseChoice reads one of the choices of v, or any text if there are none.
func parseChoice(v *kong.Value, s string) (string, error) {
	if v.Enum == "" {
		if s == "" {
			return "", errors.New("some text")
		}
		return s, nil
	}
	choices := v.EnumSlice()
	if !slices.Contains(choices, s) {
		if len(choices) == 1 {
			return "", errors.New(choices[0])
		}
		return "", fmt.Errorf("one of %s", strings.Join(choices, ", "))
	}
	return s, nil
}

// parseText reads what reads itself.
func parseText[T any, P interface {
	*T
	UnmarshalText([]byte) error
}](_ *kong.Value, s string) (v T, err error) {
	err = P(&v).UnmarshalText([]byte(s))
	return v, err
}

// parseUpstream reads the URLs of services.
func parseUpstream(_ *kong.Value, s string) (string, error) {
	urls, err := rules.Upstreams(s)
	var all []string
	for _, u := range urls {
		all = append(all, u.String())
	}
	return strings.Join(all, ","), err
}

func parseNumber(v *kong.Value, s string) (int, error) {
	low, high := bounds(v)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("a number from %d to %d", low, high)
	}
	return int(n), nil
}

func parseWorkers(v *kong.Value, s string) (Workers, error) {
	if s == "auto" {
		return Auto, nil
	}
	n, err := parseNumber(v, s)
	if err != nil {
		err = fmt.Errorf("%w, or auto to have it learned", err)
	}
	return Workers(n), err
}

// parseSize reads a number of bytes.
func parseSize(v *kong.Value, s string) (int64, error) {
	low, high := bounds(v)
	n, ok := size(s)
	if !ok || n < low || n > high {
		allowed := fmt.Sprintf("a number of bytes such as 1048576, 256MB or 1GiB, at least %d", low)
		if high < math.MaxInt64 {
			allowed += fmt.Sprintf(" and at most %d", high)
		}
		return 0, errors.New(allowed)
	}
	return n, nil
}

// bounds returns the least and the greatest number allowed for v.
func bounds(v *kong.Value) (low, high int64) {
	low, high = math.MinInt64, math.MaxInt64
	if v.Tag.Has("min") {
		low, _ = strconv.ParseInt(v.Tag.Get("min"), 10, 64)
	}
	if v.Tag.Has("max") {
		high, _ = strconv.ParseInt(v.Tag.Get("max"), 10, 64)
	}
	return low, high
}

// size reads a number of bytes. A comma is a point to some and nothing to others,
// and refused.
func size(s string) (int64, bool) {
	n, err := humanize.ParseBytes(s)
	return int64(n), err == nil && n <= math.MaxInt64 && !strings.Contains(s, ",")
}

// longest is the longest time that may be configured. Longer ones are mistakes,
// and could overflow when they are added to a point in time.
const longest = 24 * time.Hour

func parseDuration(v *kong.Value, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case v.Tag.Has("positive") && (err != nil || d <= 0 || d > longest):
		return 0, errors.New("a duration such as 250ms, 10s or 1m30s, greater than 0 and at most 24h")
	case err != nil || d < 0 || d > longest:
		return 0, errors.New("a duration such as 250ms, 10s or 1m30s, or 0, at most 24h")
	}
	return d, nil
}

func parseObjective(_ *kong.Value, s string) (Objective, error) {
	d, err := strategies.ParseObjective(s)
	return Objective(d), err
}

// shortestInterval is the least time between two syncs of the log. To sync more
// often is what always does, which shares each sync among those that wait for it.
const shortestInterval = time.Millisecond

func parseSync(_ *kong.Value, s string) (Sync, error) {
	if s == SyncAlways || s == SyncNever {
		return Sync{Mode: s}, nil
	}
	if interval, ok := strings.CutPrefix(s, SyncInterval+":"); ok {
		if d, err := time.ParseDuration(interval); err == nil && d >= shortestInterval && d <= longest {
			return Sync{Mode: SyncInterval, Interval: d}, nil
		}
	}
	return Sync{}, errors.New("always, never, or interval:<duration> with a duration such as 100ms, at least 1ms and at most 24h")
}

func parseDelay(_ *kong.Value, s string) (delay.Distribution, error) {
	d, err := delay.ParseDistribution(s)
	if err != nil {
		return d, fmt.Errorf("0, a duration such as 4ms, or a distribution such as exp:4ms, at most %v", delay.Max)
	}
	return d, nil
}

// parseAddress reads an address to listen on: a host, which may be missing, and
// a port.
func parseAddress(_ *kong.Value, s string) (string, error) {
	if host, port, err := net.SplitHostPort(s); err == nil && !strings.ContainsAny(host, " \t\r\n/") {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return s, nil
		}
	}
	return "", errors.New("an address such as 127.0.0.1:8080, :8080 or [::1]:8080, with a port from 0 to 65535")
}

// parseHosts reads addresses to connect to: hosts, each with a port or without. An
// IPv6 address without one loses the brackets, which belong to the port.
func parseHosts(_ *kong.Value, s string) (string, error) {
	entries := strings.Split(s, ",")
	for i, entry := range entries {
		host, port, err := net.SplitHostPort(entry)
		if err != nil { // no port
			host, port = entry, "1"
			if inside, ok := strings.CutPrefix(entry, "["); ok {
				if inside, ok = strings.CutSuffix(inside, "]"); ok && strings.Contains(inside, ":") {
					host = inside
				}
			}
			entries[i] = host
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || host == "" || strings.ContainsAny(host, " \t\r\n/[]") ||
			strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", errors.New("hosts such as 10.0.0.1, db1:9042 or [::1]:9042, separated by commas")
		}
	}
	return strings.Join(entries, ","), nil
}

// longestClient is how long the name of a client may be, and largestWeight what its weight may be.
const (
	longestClient = 128
	largestWeight = 1000
)

// parseWeights reads weights of clients. A name may hold an equals sign, but no comma.
func parseWeights(_ *kong.Value, s string) (Weights, error) {
	w := Weights{}
	for entry := range strings.SplitSeq(s, ",") {
		at := max(0, strings.LastIndexByte(entry, '='))
		name, number := entry[:at], strings.TrimPrefix(entry[at:], "=")
		weight, err := strconv.Atoi(number)
		if _, twice := w[name]; err != nil || weight < 1 || weight > largestWeight || name == "" || len(name) > longestClient || twice {
			return nil, fmt.Errorf("names of clients, each once, with weights from 1 to %d, such as gold=4,free=1", largestWeight)
		}
		w[name] = weight
	}
	return w, nil
}

// parseNames reads names of hosts, without ports.
func parseNames(_ *kong.Value, s string) (Names, error) {
	var names Names
	for name := range strings.SplitSeq(s, ",") {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" {
			return nil, errors.New("names such as spillway or kv.example.com, without ports, separated by commas")
		}
		names = append(names, name)
	}
	return names, nil
}

// parseOrigins reads origins, and writes them as browsers do: in lower case, without
// the port that the scheme has anyway.
func parseOrigins(_ *kong.Value, s string) (Origins, error) {
	var origins Origins
	for origin := range strings.SplitSeq(s, ",") {
		u, err := url.Parse(strings.ToLower(origin))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
			u.Scheme+"://"+u.Host != strings.ToLower(origin) || strings.ContainsAny(u.Host, " *\"") {
			return nil, errors.New("origins such as https://app.example.com or http://localhost:3000, without paths, separated by commas")
		}
		host := u.Host
		if port := u.Port(); port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
			host = strings.TrimSuffix(host, ":"+port)
		}
		origins = append(origins, u.Scheme+"://"+host)
	}
	return origins, nil
}

// parseSource reads what to copy, and returns the folder.
func parseSource(_ *kong.Value, s string) (string, error) {
	if dir, ok := strings.CutPrefix(s, StorePebble+":"); ok && dir != "" {
		return dir, nil
	}
	return "", errors.New("pebble:DIR, a data folder or a backup; copying from a cluster is not supported, which has no snapshot of all keys")
}

// parseTarget reads where to copy to, and returns the hosts.
func parseTarget(v *kong.Value, s string) (string, error) {
	list, ok := strings.CutPrefix(s, StoreCassandra+":")
	if !ok {
		return "", errors.New("cassandra:HOST[:PORT],…; a folder is filled by restoring a backup (spillway restore)")
	}
	hosts, err := parseHosts(v, list)
	if err != nil {
		return "", fmt.Errorf("%s:HOSTS with %w", StoreCassandra, err)
	}
	return hosts, nil
}

// parseKeyspace reads a name that needs no quotes.
func parseKeyspace(_ *kong.Value, s string) (string, error) {
	for i, c := range s {
		if letter := 'a' <= c && c <= 'z'; !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			s = ""
			break
		}
	}
	if s == "" || len(s) > 48 {
		return "", errors.New("a letter and up to 47 letters, digits and underscores, in lower case")
	}
	return s, nil
}

// maxReplicas is more than anybody has of one key in one datacentre.
const maxReplicas = 100

// parseReplication reads a number of replicas, or one for each datacentre.
func parseReplication(_ *kong.Value, s string) (Replication, error) {
	bad := fmt.Errorf("a number from 1 to %d, or one for each datacentre such as dc1:3,dc2:3", maxReplicas)
	r := Replication{}
	for entry := range strings.SplitSeq(s, ",") {
		name, number, named := strings.Cut(entry, ":")
		if !named {
			name, number = "", entry
		}
		n, err := strconv.Atoi(number)
		_, twice := r[name]
		// One without a name stands alone: it might be of one that is named.
		if err != nil || n < 1 || n > maxReplicas || twice || named == (name == "") || !named && s != entry || strings.ContainsAny(name, " \t\r\n'\"") {
			return nil, bad
		}
		r[name] = n
	}
	return r, nil
}

// parseToken reads a bearer token.
func parseToken(_ *kong.Value, s string) (string, error) {
	visible := func(r rune) bool { return r > ' ' && r < 0x7f }
	if s == "" || strings.IndexFunc(s, func(r rune) bool { return !visible(r) }) >= 0 {
		return "", errors.New("visible ASCII characters without spaces")
	}
	return s, nil
}
