package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/proxy/rules"
)

const (
	// lookUpEvery passes between two look-ups of the names of upstreams, each of which may take lookUpTimeout.
	lookUpEvery   = 5 * time.Second
	lookUpTimeout = 2 * time.Second
)

// upstreams are what requests are forwarded to: one queue before all of them. They are given as URLs. A name that has
// several addresses, as that of a headless service has, stands for an upstream at each; it is looked up again and again.
// Of more than rules.MostUpstreams the first are taken.
type upstreams struct {
	o        *Options
	group    *admission.Group
	own      atomic.Pointer[[]net.Addr] // the proxy's own addresses
	resolver func(ctx context.Context, network, host string) ([]netip.Addr, error)

	// known are those of now by name, and those that are gone while requests may still use them.
	known atomic.Pointer[map[string]*upstream]

	mu    sync.Mutex          // one change at a time, none after the end
	urls  []*url.URL          // as they are given
	last  map[string][]string // addresses of names, as of the last look-up that did not fail
	found int                 // how many upstreams they stand for

	end     context.Context
	stop    context.CancelFunc
	looking sync.WaitGroup
}

// target is where an upstream is.
type target struct {
	name    string // for people and metrics
	address string
	url     *url.URL
}

// openUpstreams finds out what there is. The group is given later, and begin is called then.
func openUpstreams(o *Options, self net.Addr) *upstreams {
	u := &upstreams{o: o, resolver: o.resolver, urls: o.Upstreams, last: map[string][]string{}}
	if u.resolver == nil {
		u.resolver = net.DefaultResolver.LookupNetIP
	}
	u.own.Store(&[]net.Addr{self})
	u.end, u.stop = context.WithCancel(context.Background())
	u.known.Store(&map[string]*upstream{})
	u.meet(u.targets(u.urls))
	return u
}

// begin has names looked up from now on.
func (u *upstreams) begin(g *admission.Group) {
	u.group = g
	u.looking.Go(func() {
		ticker := time.NewTicker(lookUpEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				u.mu.Lock()
				_ = u.set(u.urls)
				u.mu.Unlock()
			case <-u.end.Done():
				return
			}
		}
	})
}

// change has requests go to these from now on. What other upstreams have begun they end.
func (u *upstreams) change(urls []*url.URL) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.set(urls)
}

// set is change, or looks the same up again. The caller holds mu.
func (u *upstreams) set(urls []*url.URL) error {
	if u.end.Err() != nil {
		return errStopping
	}
	targets := u.targets(urls)
	known := u.meet(targets)
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.name
	}
	if err := u.group.SetResources(names); err != nil {
		return err
	}
	u.urls = urls
	left := map[string]*upstream{}
	for name, one := range known {
		if slices.Contains(names, name) {
			left[name] = one
		} else if !one.leave(time.Now()) {
			left[name] = one
		}
	}
	u.known.Store(&left)
	return nil
}

// meet returns what is known together with what is new.
func (u *upstreams) meet(targets []target) map[string]*upstream {
	known := map[string]*upstream{}
	for name, one := range *u.known.Load() {
		known[name] = one
	}
	opened := make([]*upstream, len(targets))
	var opening sync.WaitGroup
	for i, t := range targets {
		if one := known[t.name]; one != nil {
			one.stay()
			continue
		}
		opening.Go(func() { opened[i] = openUpstream(u.end, u.o, t, func() []net.Addr { return *u.own.Load() }) })
		if u.group != nil {
			u.o.Logger.Info("another upstream", "upstream", t.name)
		}
	}
	opening.Wait()
	for _, one := range opened {
		if one != nil {
			known[one.name] = one
		}
	}
	u.known.Store(&known)
	return known
}

// targets returns where the upstreams are, at least one, none twice.
func (u *upstreams) targets(urls []*url.URL) (all []target) {
	addresses := make([][]string, len(urls))
	var looking sync.WaitGroup
	for i, url := range urls {
		looking.Go(func() { addresses[i] = u.addresses(url.Hostname()) })
	}
	looking.Wait()
	for i, url := range urls {
		port := rules.Port(url)
		for _, host := range addresses[i] {
			t := target{name: url.String(), address: net.JoinHostPort(host, port), url: url}
			if host != url.Hostname() {
				t.name = url.Scheme + "://" + t.address
			}
			if !slices.ContainsFunc(all, func(o target) bool { return o.name == t.name }) {
				all = append(all, t)
			}
		}
	}
	if n := len(all); n > rules.MostUpstreams && n != u.found {
		u.o.Logger.Warn("names stand for more upstreams than there may be: the first are taken", "found", n, "taken", rules.MostUpstreams)
	}
	u.found = len(all)
	all = all[:min(len(all), rules.MostUpstreams)]
	clear(u.last)
	for i, url := range urls {
		u.last[url.Hostname()] = addresses[i]
	}
	return all
}

// addresses returns those of a host that has several in one family, else the host: then whoever dials finds the address.
// If the look-up fails, those of the last one stand.
func (u *upstreams) addresses(host string) []string {
	if _, err := netip.ParseAddr(host); err == nil || u.o.dial != nil && u.o.resolver == nil {
		return []string{host}
	}
	ctx, cancel := context.WithTimeout(u.end, lookUpTimeout)
	defer cancel()
	found, err := u.resolver(ctx, "ip", host)
	if err != nil {
		if last := u.last[host]; last != nil {
			return last
		}
		return []string{host}
	}
	var v4, v6 []string
	slices.SortFunc(found, netip.Addr.Compare)
	for _, a := range found {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, a.String())
		} else {
			v6 = append(v6, a.String())
		}
	}
	v4, v6 = slices.Compact(v4), slices.Compact(v6)
	switch {
	case len(v4) < 2 && len(v6) < 2:
		return []string{host}
	case len(v4) >= len(v6):
		return v4
	default:
		return v6
	}
}

// of returns the upstream of that name, or another if it is gone.
func (u *upstreams) of(name string) (one *upstream) {
	known := *u.known.Load()
	if one = known[name]; one == nil {
		for _, one = range known {
			break
		}
	}
	return one
}

// another returns one that can be reached as far as is known, and was not tried, or nil.
func (u *upstreams) another(tried []string) *upstream {
	for name, one := range *u.known.Load() {
		if one.ready() == nil && !one.hasLeft() && !slices.Contains(tried, name) {
			return one
		}
	}
	return nil
}

// one reports whether there is no other.
func (u *upstreams) one() bool { return len(*u.known.Load()) == 1 }

// probe is admission.GroupOptions.Probe.
func (u *upstreams) probe(ctx context.Context, name string) error {
	return u.of(name).try(ctx)
}

// rests is admission.GroupOptions.Rests.
func (u *upstreams) rests(name string, rests bool) {
	if rests {
		u.o.Logger.Warn("an upstream fails, and rests", "upstream", name)
	} else {
		u.o.Logger.Info("an upstream is well again", "upstream", name)
	}
}

// names returns those of now.
func (u *upstreams) names() (all []string) {
	for name := range *u.known.Load() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// ready returns nil if one can be reached, or why none can.
func (u *upstreams) ready() (err error) {
	states := u.group.Resources()
	for _, state := range states {
		e := u.of(state.Name).ready()
		if e == nil {
			return nil
		}
		err = cmp.Or(err, e)
	}
	if len(states) > 1 {
		err = fmt.Errorf("none of %d upstreams can be reached: %w", len(states), err)
	}
	return err
}

// each calls do for all.
func (u *upstreams) each(do func(*upstream)) {
	for _, one := range *u.known.Load() {
		do(one)
	}
}

// cut ends all requests that are under way, and has none begin.
func (u *upstreams) cut() {
	u.stop()
	u.each((*upstream).cut)
}

func (u *upstreams) closeAll() {
	u.stop()
	u.looking.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.each((*upstream).closeAll)
}

// Own tells of another address that this process listens at: nothing is forwarded there, as to its own. It must not be
// called by several goroutines at once.
func (s *Server) Own(addr net.Addr) {
	own := append(slices.Clone(*s.upstreams.own.Load()), addr)
	s.upstreams.own.Store(&own)
}

// Upstream is the state of one of several upstreams.
type Upstream struct {
	admission.ResourceState
	// Up is whether requests go there, Answered how many were answered, and Failed how many were not, or with an error
	// from 500 on.
	Up               bool
	Answered, Failed uint64
}

// Upstreams returns the state of each.
func (s *Server) Upstreams() (all []Upstream) {
	for _, state := range s.controller.Resources() {
		one := s.upstreams.of(state.Name)
		all = append(all, Upstream{
			ResourceState: state, Up: state.Allowed > 0 && one.ready() == nil, Answered: one.answered.Load(), Failed: one.failed.Load(),
		})
	}
	return all
}

// SetUpstreams changes where requests are forwarded to, as rules.Upstreams reads it.
func (s *Server) SetUpstreams(list string) error {
	urls, err := rules.Upstreams(list)
	if err != nil {
		return err
	}
	return s.upstreams.change(urls)
}
