// Package rules says of a request, as the proxy's settings do, whom it counts for, how
// important it is, and whether it has to wait.
package rules

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/strategies"
)

// Request is what the rules look at. They are functions, as few rules look at all of it.
type Request struct {
	Peer   string                   // the client's IP address
	Path   func() string            // decoded
	Header func(name string) string // the first value, empty if there is none
}

// Client says whom a request counts for: "address", or "header:NAME", such as the bearer
// token or an API key. A request without that header counts for its address.
type Client string

// String returns the text.
func (c Client) String() string { return string(c) }

// UnmarshalText checks and takes a text.
func (c *Client) UnmarshalText(text []byte) error {
	name, header := strings.CutPrefix(string(text), "header:")
	if !header && string(text) != "address" || header && !isToken(name) {
		return errors.New("address, or header:NAME such as header:Authorization")
	}
	*c = Client(text)
	return nil
}

// salt keeps what is made of a header from being found by trying others.
var salt = func() (salt [16]byte) {
	_, _ = rand.Read(salt[:]) // does not fail
	return salt
}()

// Of returns the name of the client of a request. That of a header is hashed: it may be
// a secret, and strategies and their metrics need no more than to tell clients apart.
func (c Client) Of(r *Request) string {
	if name, ok := strings.CutPrefix(string(c), "header:"); ok {
		if value := r.Header(name); value != "" {
			return hashed(value)
		}
	}
	return r.Peer
}

// Hashes reports whether clients are known by a header, whose value is hashed.
func (c Client) Hashes() bool { return strings.HasPrefix(string(c), "header:") }

func hashed(value string) string {
	sum := sha256.Sum256(append(salt[:], value...))
	return hex.EncodeToString(sum[:12])
}

// Weights returns the weights of clients by what Client.Of returns, whichever Client it is, as that may change: those
// of headers are given by their values, and a name that a client may give itself by that.
func Weights(given map[string]int) map[string]int {
	weights := maps.Clone(given)
	for name, weight := range given {
		weights[hashed(name)] = weight
	}
	return weights
}

// Priorities are rules, of which the first that fits says how important a request is:
// "path:/admin=6,path:/checkout=0,header:NAME". A path fits itself and what is below it;
// a header fits if its value is 0 to 7, or begins with u= and such a digit.
type Priorities []rule

type rule struct {
	path     string // empty for a rule of a header
	header   string
	priority strategies.Priority
	text     string
}

// String returns the rules as UnmarshalText reads them.
func (p Priorities) String() string {
	var rules []string
	for _, r := range p {
		rules = append(rules, r.text)
	}
	return strings.Join(rules, ",")
}

// UnmarshalText reads rules.
func (p *Priorities) UnmarshalText(text []byte) error {
	bad := errors.New("rules such as path:/admin=6,path:/checkout=0,header:NAME, with priorities from 0, the most important, to 7")
	var rules Priorities
	for part := range strings.SplitSeq(string(text), ",") {
		if name, ok := strings.CutPrefix(part, "header:"); ok && isToken(name) {
			rules = append(rules, rule{header: name, text: part})
			continue
		}
		at := strings.LastIndexByte(part, '=')
		path, ok := strings.CutPrefix(part[:max(at, 0)], "path:")
		if !ok || !strings.HasPrefix(path, "/") {
			return bad
		}
		priority, ok := urgency(part[at+1:])
		if !ok {
			return bad
		}
		rules = append(rules, rule{path: path, priority: priority, text: part})
	}
	*p = rules
	return nil
}

// Of returns how important a request is, 0 for what no rule fits, which is ordinary.
func (p Priorities) Of(r *Request) strategies.Priority {
	if len(p) == 0 {
		return 0
	}
	at := resolved(r.Path())
	for i := range p {
		rule := &p[i]
		if rule.path != "" && below(rule.path, at) {
			return rule.priority
		}
		if rule.header == "" {
			continue
		}
		value := r.Header(rule.header)
		if priority, ok := urgency(strings.TrimPrefix(value[:min(len(value), len("u=0"))], "u=")); ok {
			return priority
		}
	}
	return 0
}

func urgency(digit string) (strategies.Priority, bool) {
	if len(digit) != 1 || digit[0] < '0' || digit[0] > '7' {
		return 0, false
	}
	return strategies.Urgency(int(digit[0] - '0')), true
}

// Paths are paths, each with what is below it: "/health,/static/".
type Paths []string

// String returns the paths as UnmarshalText reads them.
func (p Paths) String() string { return strings.Join(p, ",") }

// UnmarshalText reads paths.
func (p *Paths) UnmarshalText(text []byte) error {
	paths := strings.Split(string(text), ",")
	for _, path := range paths {
		if !strings.HasPrefix(path, "/") {
			return errors.New("paths such as /health,/static, separated by commas")
		}
	}
	*p = paths
	return nil
}

// Has reports whether a path is one of them or below one.
func (p Paths) Has(path string) bool {
	path = resolved(path)
	return slices.ContainsFunc(p, func(above string) bool { return below(above, path) })
}

// MostRoutes is how many names of routes there may be.
const MostRoutes = 64

// Other is the name of what no route fits.
const Other = "other"

// Routes give names to paths: "/orders/*=orders,/search=search". A star stands for one segment,
// at the end for any number of bytes. The first that fits decides.
type Routes []route

type route struct{ pattern, name string }

// String returns the routes as UnmarshalText reads them.
func (r Routes) String() string {
	var routes []string
	for _, route := range r {
		routes = append(routes, route.pattern+"="+route.name)
	}
	return strings.Join(routes, ",")
}

// UnmarshalText reads routes.
func (r *Routes) UnmarshalText(text []byte) error {
	bad := errors.New("routes such as /orders/*=orders,/search=search, with at most 64 names of letters, digits, - and _")
	var routes Routes
	names := map[string]bool{}
	for part := range strings.SplitSeq(string(text), ",") {
		pattern, name, ok := strings.Cut(part, "=")
		if !ok || !strings.HasPrefix(pattern, "/") || !isToken(name) {
			return bad
		}
		if names[name] = true; len(names) > MostRoutes {
			return bad
		}
		routes = append(routes, route{pattern, name})
	}
	*r = routes
	return nil
}

// Names returns the names, without Other, each once.
func (r Routes) Names() []string {
	var names []string
	for _, route := range r {
		if !slices.Contains(names, route.name) {
			names = append(names, route.name)
		}
	}
	return names
}

// Of returns the name of the route of a path.
func (r Routes) Of(path string) string {
	path = resolved(path)
	for i := range r {
		if fits(r[i].pattern, path) {
			return r[i].name
		}
	}
	return Other
}

// fits reports whether a pattern fits a path.
func fits(pattern, path string) bool {
	for {
		before, after, star := strings.Cut(pattern, "*")
		if !star {
			return pattern == path
		}
		rest, ok := strings.CutPrefix(path, before)
		if !ok {
			return false
		}
		if after == "" {
			return true
		}
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return false
		}
		pattern, path = after, rest[end:]
	}
}

// resolved returns a path as servers do that resolve dots and empty segments before they
// look where it leads: otherwise /health/../report would be below /health.
func resolved(p string) string {
	if !strings.Contains(p, "/.") && !strings.Contains(p, "//") {
		return p
	}
	clean := path.Clean(p)
	if clean != "/" && (strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..")) {
		clean += "/"
	}
	return clean
}

// below reports whether a resolved path is another or below it.
func below(above, path string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(above, "/"))
}

// isToken reports whether a header may be called so.
func isToken(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && strings.Trim(name, letters) == ""
}
