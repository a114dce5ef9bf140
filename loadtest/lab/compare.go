package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Runner sends a load: generator.Run, or a stand-in.
type Runner func(context.Context, workload.Options) (*result.Result, error)

// CompareOptions says how a comparison is made.
type CompareOptions struct {
	// Binary is the path of the service's binary.
	Binary string
	// Services are commands by name, each of which starts a service of any kind.
	// Combinations name them as service:NAME. The shell runs them, with {port} replaced by
	// a free port of 127.0.0.1. The service must listen there and stay in the foreground.
	// If there are any, all combinations must name one; then Binary is not needed, and no
	// store is filled.
	Services map[string]string
	// Load adds to what the combinations say: Targets, whose URLs may be paths under the
	// service's or contain {port}, Headers, Good, Engine, HTTP, CAFile and Insecure. Its
	// other fields are ignored.
	Load workload.Options
	// Dir is the folder of the results, which is made if it does not exist.
	Dir string
	// Restart discards an earlier comparison in Dir, which is an error otherwise.
	Restart bool
	// Command is recorded as the way to repeat the comparison.
	Command string
	// Lab is recorded as the version of the program that measures.
	Lab string
	// Progress, if set, is called when a step begins, and about twice per second while load
	// is sent. Its calls do not overlap.
	Progress func(Progress)
	// Run sends the load: generator.Run by default.
	Run Runner
	// Simulator, if not nil, stands for the service and for Run. Binary is then
	// the program that simulates, and no store is filled.
	Simulator Simulator
}

// Simulator makes the runs of a comparison without a service.
type Simulator interface {
	// Version says what simulates, in the place of the service's version.
	Version() string
	// Capacity returns how many requests a second a service with these settings
	// serves at most under this load.
	Capacity(*scenario.Combination, workload.Options) (float64, error)
	// Simulate does what a service with these settings does under this load. It
	// ends with an error when the context does.
	Simulate(context.Context, *scenario.Combination, workload.Options) (*result.Result, error)
}

// Progress is how far a comparison has come.
type Progress struct {
	// Doing says what is being done: "fill a store with 100000 values of 100
	// bytes", "lifo, 0.9x, repetition 2 of 9".
	Doing string
	// Done of Total runs have been made.
	Done, Total int
	// Left is an estimate of the time until the end.
	Left time.Duration
}

// The runs by which a capacity is measured, and the longest that they last.
const (
	capacityRuns   = 3
	capacityTime   = 3 * time.Second
	capacityWarmup = time.Second
)

// Compare runs every combination of a scenario as often as it says, and writes
// Dir/comparison.json and the results, Dir/runs/*.json. It fails if there is
// nothing to begin with: the options are wrong, Dir holds a comparison, the
// disk is too small. If anything ends it later, such as the end of ctx, a service that
// dies or a full disk, Partial says so, and the comparison is valid as far as it goes.
//
// The store of a run holds every key of its load, so that gets find what they
// ask for, and more if the combination says how many bytes. Every run gets a
// fresh clone of it.
//
// A relative rate is a multiple of the capacity of its load: of the rate of
// served requests in a closed loop, the median of three runs made before all
// others. It is that of the service under fifo, whatever is compared and in
// whichever order (see reference), so that all settings are offered the same.
func Compare(ctx context.Context, s scenario.Scenario, o CompareOptions) (*Comparison, error) {
	if o.Run == nil {
		o.Run = generator.Run
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	l := &comparing{o: o, s: &s, groups: make([]grouping, len(s.Combinations)), unlock: func() {}}
	if err := l.check(); err != nil {
		return nil, err
	}
	defer func() { l.unlock() }()
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	partial := ""
	if err := l.runAll(ctx); err != nil {
		partial = oneLine(err)
		if ctx.Err() != nil {
			partial = fmt.Sprintf("interrupted after %d of %d runs", l.done(), l.total())
		}
	}
	var err error
	if l.stored() {
		err = l.stores.close()
	}
	if failed := l.save(partial); failed != nil && partial == "" {
		partial = oneLine(failed) // on disk it is partial still
	}
	l.c.Partial = partial
	return l.c, err
}

// comparing is a comparison that is being made.
type comparing struct {
	unlock func() // lets others into the folder
	o      CompareOptions
	s      *scenario.Scenario
	c      *Comparison
	stores stores
	groups []grouping // beside those of the comparison
	// How long the runs that have ended took, and when the present one began; zero between
	// them.
	took  time.Duration
	begun time.Time
}

// grouping is what a group needs in order to be run.
type grouping struct {
	load    workload.Options
	filling filling
	// relative says that the rate is a multiple of the capacity.
	relative bool
	results  []*result.Result // by repetition; nil if it has not been run
}

// stored tells whether the services have stores to be filled.
func (l *comparing) stored() bool { return l.o.Simulator == nil && len(l.o.Services) == 0 }

func (l *comparing) total() int { return len(l.groups) * l.s.Repetitions }

func (l *comparing) done() (n int) {
	for i := range l.c.Groups {
		n += len(l.c.Groups[i].Runs)
	}
	return n
}

// file is where the result of a run goes, relative to the folder.
func (l *comparing) file(group, repetition int) string {
	name := fmt.Sprintf("%03d-%s-r%d.json", group+1, slug(l.c.Groups[group].Label), repetition+1)
	return filepath.Join(runsFolder, name)
}

// save writes the comparison as it stands.
func (l *comparing) save(partial string) error {
	l.c.Partial = partial
	return result.SaveJSON(filepath.Join(l.o.Dir, comparisonFile), l.c)
}

func (l *comparing) runAll(ctx context.Context) error {
	if l.stored() {
		if err := l.stores.prepare(ctx, l.fillings()); err != nil {
			return err
		}
	}
	if err := l.measureCapacities(ctx); err != nil {
		return err
	}
	for repetition, order := range l.c.Order {
		for _, group := range order {
			if err := l.run(ctx, group, repetition); err != nil {
				return fmt.Errorf("run %d of %d (%s, repetition %d): %w",
					l.done()+1, l.total(), l.c.Groups[group].Label, repetition+1, err)
			}
		}
	}
	return nil
}

// fillings returns those that the runs need, each once.
func (l *comparing) fillings() (all []filling) {
	for i := range l.groups {
		if f := l.groups[i].filling; !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// measureCapacities learns what relative rates stand for. Loads that differ by who
// asks, how patiently and when have the same capacity, so that they may be
// compared.
func (l *comparing) measureCapacities(ctx context.Context) error {
	measured := map[string]float64{} // by what is asked
	l.c.Capacity = map[string]float64{}
	for i := range l.groups {
		if !l.groups[i].relative {
			continue
		}
		load, asked := l.c.Groups[i].Load, asked(&l.c.Groups[i].Combination)
		if measured[asked] == 0 {
			capacity, err := l.capacityOf(ctx, i)
			if err == nil && !(capacity > 0) {
				err = errors.New("no request was served")
			}
			if err != nil {
				return fmt.Errorf("measure the capacity of %s: %w", load, err)
			}
			measured[asked] = capacity
		}
		l.c.Capacity[load] = measured[asked]
	}
	return nil
}

// asked names what a load asks for, whoever asks, how patiently and when.
func asked(c *scenario.Combination) string {
	what := *c
	what.Retries, what.Profile, what.Clients, what.Priority, what.TimeoutHeader = "", "", "", "", ""
	return loadName(&what)
}

func (l *comparing) capacityOf(ctx context.Context, group int) (float64, error) {
	combination := reference(l.s.Combinations, &l.c.Groups[group].Combination)
	o := l.options(group, 0)
	o.Rate = 0
	if l.o.Simulator != nil {
		return l.o.Simulator.Capacity(&combination, o)
	}
	o.Connections = probing(&combination)
	o.Duration, o.Warmup = min(l.s.Duration, capacityTime), min(l.s.Warmup, capacityWarmup)
	// What is not served at once, or in time, says nothing of what can be.
	o.Retries, o.TimeoutHeader, o.Timeout = workload.Retries{}, false, max(o.Timeout, workload.Options{}.WithDefaults().Timeout)
	var rates []float64
	for n := range capacityRuns {
		doing := fmt.Sprintf("capacity of %s, run %d of %d", l.c.Groups[group].Load, n+1, capacityRuns)
		result, err := l.measure(ctx, &combination, l.groups[group].filling, o, doing)
		if err != nil {
			return 0, err
		}
		rates = append(rates, float64(result.Served())/result.Seconds)
	}
	return Spread(rates).Median, nil
}

// progress is what a comparison says of itself until it has ended.
func (l *comparing) progress() string {
	return fmt.Sprintf("%d of %d runs have been made", l.done(), l.total())
}

// run makes one run and keeps its result.
func (l *comparing) run(ctx context.Context, group, repetition int) error {
	g := &l.groups[group]
	o := l.options(group, repetition)
	if g.relative {
		o.Rate *= l.c.Capacity[l.c.Groups[group].Load]
	}
	doing := fmt.Sprintf("%s, repetition %d of %d", l.c.Groups[group].Label, repetition+1, l.s.Repetitions)
	l.begun = time.Now()
	result, err := l.measure(ctx, &l.c.Groups[group].Combination, g.filling, o, doing)
	if result != nil {
		if err != nil && result.Partial == "" {
			result.Partial = oneLine(err)
		}
		// A partial one is kept for who wants to know, but does not count.
		saved := result.Save(filepath.Join(l.o.Dir, l.file(group, repetition)))
		if err = errors.Join(err, saved); err == nil {
			l.keep(group, repetition, result)
			l.c.Finished = time.Now()
			err = l.save(l.progress())
		}
	}
	l.took += time.Since(l.begun)
	l.begun = time.Time{}
	return err
}

func (l *comparing) keep(group, repetition int, r *result.Result) {
	r.Profiles = nil // they are in their files
	l.groups[group].results[repetition] = r
	g := &l.c.Groups[group]
	g.Metrics = Summarize(l.groups[group].results)
	g.Runs, g.Shares = g.Runs[:0], nil
	for repetition, r := range l.groups[group].results {
		if r == nil {
			continue
		}
		g.Runs = append(g.Runs, filepath.ToSlash(l.file(group, repetition)))
		for name, share := range r.Shares {
			if g.Shares == nil {
				g.Shares = map[string]result.Share{}
			}
			g.Shares[name] = g.Shares[name].Add(share)
		}
	}
}

// options are those of a group. All groups are sent the same requests in the same repetition.
func (l *comparing) options(group, repetition int) workload.Options {
	o := l.groups[group].load
	o.Duration, o.Warmup = l.s.Duration, l.s.Warmup
	o.SLO, o.Timeout = l.s.SLO, l.s.Timeout
	o.Seed = l.s.Seed + uint64(repetition)
	return o
}

// measure sends a load to a fresh service. With an error there may be a result,
// of what came before it.
func (l *comparing) measure(ctx context.Context, combination *scenario.Combination, f filling, o workload.Options, doing string) (*result.Result, error) {
	l.tell(doing)
	if l.o.Simulator != nil {
		return l.o.Simulator.Simulate(ctx, combination, o)
	}
	s, err := l.start(ctx, combination, f)
	if err != nil {
		return nil, err
	}
	// However it stops: all is measured by then, and the clone goes anyway. After
	// an overload it may not finish within its drain time-out.
	defer func() { _ = s.stop(stopPatience) }()
	if _, command := combination.Command(); command && len(o.Targets) == 0 {
		if err := l.fillBy(ctx, s, f, doing); err != nil {
			return nil, err
		}
	}
	return l.send(ctx, s, o, doing)
}

// start starts the service of a combination, on a store of its own if it has one.
func (l *comparing) start(ctx context.Context, combination *scenario.Combination, f filling) (*service, error) {
	if name, ok := combination.Command(); ok {
		c, err := Start(ctx, func(number string) (string, error) { return strings.ReplaceAll(l.o.Services[name], port, number), nil })
		if err != nil {
			return nil, err
		}
		return c.s, nil
	}
	dir, err := l.stores.clone(f)
	if err != nil {
		return nil, err
	}
	return startService(ctx, l.o.Binary, dir, settings(combination, l.s.SLO))
}

// send sends a load to a service. An error says also that the load has not been
// sent to its end.
func (l *comparing) send(ctx context.Context, s *service, o workload.Options, doing string) (*result.Result, error) {
	o.URL = s.data
	if len(l.o.Services) > 0 {
		o.Targets = withPort(o.Targets, s.port)
	}
	if o.Count == 0 { // filling a store is nothing to observe
		o.Admin = s.admin
		if s.admin == "" {
			o.ServerCPU = s.cpu
		}
	}
	o.Progress = func(workload.Progress) { l.tell(doing) }
	living, release := s.while(ctx)
	defer release()
	result, err := l.o.Run(living, o)
	if err == nil && result.Partial != "" {
		err = errors.New(result.Partial)
	}
	if err == nil {
		return result, s.death()
	}
	// Who loses a service that dies may know so before its end is known.
	select {
	case <-s.exited:
		err = s.death()
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return result, err
}

func (l *comparing) tell(doing string) {
	p := Progress{Doing: doing, Done: l.done(), Total: l.total()}
	each := l.s.Duration + l.s.Warmup + time.Second
	if p.Done > 0 {
		each = l.took / time.Duration(p.Done)
	}
	p.Left = time.Duration(p.Total-p.Done) * each
	if !l.begun.IsZero() {
		p.Left -= min(time.Since(l.begun), each)
	}
	l.o.Progress(p)
}

// fill fills a store by way of the service, without waiting for the disk. No put is late.
func (l *comparing) fill(ctx context.Context, dir string, f filling) (err error) {
	doing := fmt.Sprintf("fill a store with %v", f)
	l.tell(doing)
	s, err := startService(ctx, l.o.Binary, dir, []string{"SPILLWAY_SYNC=never", "SPILLWAY_SLO=none"})
	if err != nil {
		return err
	}
	defer func() {
		const patience = 2 * time.Minute // large stores have much to write
		if stopped := s.stop(patience); err == nil {
			err = stopped
		}
	}()
	if err := l.fillBy(ctx, s, f, doing); err != nil {
		return err
	}
	return awaitQuiet(ctx, s, 250*time.Millisecond)
}

// fillBy fills the store of a service that is running.
func (l *comparing) fillBy(ctx context.Context, s *service, f filling, doing string) error {
	result, err := l.send(ctx, s, workload.Options{
		Count:        f.keys,
		Mix:          workload.Mix{Put: 1},
		Keys:         f.keys,
		Distribution: workload.Sequential,
		ValueSize:    f.sizes,
		Seed:         l.s.Seed,
		Timeout:      time.Minute,                                                // the disk may make writes wait
		Retries:      workload.Retries{Attempts: 100, Backoff: time.Millisecond}, // and a limiter refuse them
	}, doing)
	if err != nil {
		return err
	}
	if written := result.Status["201"]; written != int64(f.keys) {
		return fmt.Errorf("%d of %d values were not written", int64(f.keys)-written, f.keys)
	}
	return nil
}
