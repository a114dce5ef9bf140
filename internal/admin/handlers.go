package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

func (*Options) healthz(w http.ResponseWriter, _ *http.Request) { ok(w) }

func (o *Options) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := o.Ready(); err != nil {
		// It is public: no token is asked for.
		problem(w, http.StatusServiceUnavailable, secure.HidePaths(err.Error()))
		return
	}
	ok(w)
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

func (o *Options) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
		Go      string `json:"go"`
	}{o.Version, o.Commit, runtime.Version()})
}

func (o *Options) getStrategy(w http.ResponseWriter, _ *http.Request) {
	status := o.Dispatcher.Gauge()
	answer := struct {
		Strategy  string    `json:"strategy"`
		Mode      string    `json:"mode"`
		Workers   int       `json:"workers"`
		Capacity  *int      `json:"capacity"` // null for none
		Objective objective `json:"objective"`
		Available []string  `json:"available"`
		Learned   *learned  `json:"learned,omitempty"`   // of workers; absent if their number is given
		Upstreams []string  `json:"upstreams,omitempty"` // of the proxy
	}{
		Strategy: status.Strategy, Mode: Mode(status), Workers: status.Workers,
		Objective: objectiveOf(o.Dispatcher.Objective().State()), Available: strategies.Names(), Learned: learnedOf(status.Learned),
	}
	if status.Capacity != strategies.Unbounded {
		answer.Capacity = &status.Capacity
	}
	if list := o.Tuner.Now().Upstreams; list != "" {
		answer.Upstreams = strings.Split(list, ",")
	}
	writeJSON(w, http.StatusOK, answer)
}

// objective is the latency objective, as SPILLWAY_SLO has it.
type objective struct {
	Set     string `json:"set"` // "" if none is
	InForce string `json:"in_force"`
	Why     string `json:"why"` // that is in force
}

func objectiveOf(s strategies.ObjectiveState) objective {
	inForce := s.InForce
	switch {
	case inForce == 0:
		inForce = strategies.NoObjective
	case s.Set == 0:
		inForce = inForce.Round(time.Millisecond) // it was measured
	}
	return objective{Set: strategies.FormatObjective(s.Set), InForce: strategies.FormatObjective(inForce), Why: s.Why}
}

// learned is a number of workers that is learned.
type learned struct {
	Limit int    `json:"limit"`
	Min   int    `json:"min"`
	Max   int    `json:"max"`
	Why   string `json:"why"` // the limit is that

	stuck  int
	paused bool
}

// learnedOf returns nil for a number that is given.
func learnedOf(l *dispatch.Learned) *learned {
	if l == nil {
		return nil
	}
	return &learned{Limit: l.Limit, Min: l.Min, Max: l.Max, Why: l.Why, stuck: l.Stuck, paused: l.Paused}
}

// Mode is what SPILLWAY_MODE says.
func Mode(s dispatch.Gauge) string {
	if s.Observe {
		return tuning.Observe
	}
	return tuning.Enforce
}

// change is what is to be different, nil for what stays.
type change struct {
	Strategy *string `json:"strategy"`
	Workers  *number `json:"workers"`
	Capacity *int    `json:"capacity"`
	SLO      *string `json:"slo"`
	Mode     *string `json:"mode"`
	// Upstreams are the proxy's alone.
	Upstreams *[]string `json:"upstreams"`
}

// number is a number of workers, or "auto", which is 0.
type number int

// UnmarshalJSON is for package json.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == `"auto"` {
		*n = 0
		return nil
	}
	if err := json.Unmarshal(text, (*int)(n)); err != nil || *n < 1 {
		return new(json.UnmarshalTypeError) // in which package json puts the field
	}
	return nil
}

// change returns what to do to the settings. The error names the field, its value and the
// choices.
func (c *change) change() (func(*tuning.Settings), error) {
	var objective time.Duration
	if c.SLO != nil {
		var err error
		if objective, err = strategies.ParseObjective(*c.SLO); err != nil {
			return nil, fmt.Errorf("slo is %.40q, want %w, or nothing for one that follows the usual service time", *c.SLO, err)
		}
	}
	return func(s *tuning.Settings) {
		set(&s.Strategy, c.Strategy)
		set(&s.Workers, (*int)(c.Workers))
		set(&s.Capacity, c.Capacity)
		set(&s.Mode, c.Mode)
		if c.SLO != nil {
			s.Objective = objective
		}
		if c.Upstreams != nil {
			s.Upstreams = strings.Join(*c.Upstreams, ",")
		}
	}, nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// putStrategy changes what the queue works by, all that was asked for or nothing.
func (o *Options) putStrategy(w http.ResponseWriter, r *http.Request) {
	var wanted change
	err := readJSON(w, r, &wanted)
	if err == nil && wanted == (change{}) {
		err = errors.New("nothing is to be changed")
	}
	if wrong, ok := errors.AsType[wrongField](err); ok {
		problem(w, http.StatusBadRequest, wrong.Error()+tuning.Wants(wrong.name))
		return
	}
	if err != nil {
		bodyProblem(w, err, `{"strategy":"…","workers":…,"capacity":…,"slo":"…","mode":"…"} with any of these: a strategy of `+strings.Join(strategies.Names(), ", ")+
			`; workers from 1, or "auto"; a capacity from 1, or 0 for that of the strategy; an slo such as 250ms, none or nothing; a mode of `+tuning.Enforce+", "+tuning.Observe+`; in the proxy "upstreams":["http://HOST:PORT",…]`)
		return
	}
	change, err := wanted.change()
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	err = o.Tuner.Change(change)
	switch _, refused := errors.AsType[tuning.Refusal](err); {
	case refused:
		problem(w, http.StatusBadRequest, err.Error())
	case err != nil:
		o.fail(w, "change the strategy", err)
	default:
		o.getStrategy(w, r)
	}
}

func (o *Options) getConfig(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, o.Config())
}

func (o *Options) postBackup(w http.ResponseWriter, r *http.Request) {
	var wanted struct {
		Dir string `json:"dir"`
	}
	err := readJSON(w, r, &wanted)
	const want = "an absolute path on the server, of a folder to be made"
	switch wrong, ok := errors.AsType[wrongField](err); {
	case ok:
		problem(w, http.StatusBadRequest, wrong.Error()+want)
		return
	case err != nil:
		bodyProblem(w, err, `{"dir":"…"} with the path of a folder to be made`)
		return
	case !filepath.IsAbs(wanted.Dir):
		problem(w, http.StatusBadRequest, fmt.Sprintf("dir is %.100q, want %s", wanted.Dir, want))
		return
	}
	switch done, err := o.Backup(r.Context(), wanted.Dir); {
	case errors.Is(err, fs.ErrInvalid):
		problem(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, fs.ErrExist), errors.Is(err, backup.ErrBusy):
		problem(w, http.StatusConflict, err.Error())
	case errors.Is(err, store.ErrUnwritable), errors.Is(err, store.ErrClosed), errors.Is(err, backup.ErrClosed):
		problem(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, errors.ErrUnsupported):
		problem(w, http.StatusNotImplemented, err.Error())
	case err != nil:
		o.fail(w, "write the backup", err)
	default:
		o.Logger.Info("backup written", "dir", done.Dir, "files", done.Files, "bytes", done.Bytes, "took", done.Took.String())
		writeJSON(w, http.StatusOK, struct {
			Dir     string  `json:"dir"`
			Files   int     `json:"files"`
			Bytes   int64   `json:"bytes"`
			Seconds float64 `json:"seconds"`
		}{done.Dir, done.Files, done.Bytes, done.Took.Seconds()})
	}
}

// fail answers and logs an error that is not the client's.
func (o *Options) fail(w http.ResponseWriter, what string, err error) {
	o.Logger.Error("cannot "+what, "err", err)
	problem(w, http.StatusInternalServerError, fmt.Sprintf("cannot %s: %v", what, err))
}

// maxBody is the largest body of a request, in bytes: a path and some more.
const maxBody = 8 << 10

// readJSON reads the body of a request into v: one object, no unknown fields, none null,
// nothing behind it.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	var text bytes.Buffer
	decoder := json.NewDecoder(io.TeeReader(http.MaxBytesReader(w, r.Body, maxBody), &text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return inWords(err, text.Bytes())
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the object")
	}
	var fields map[string]any
	if err := json.Unmarshal(text.Bytes(), &fields); err != nil {
		return err
	}
	for name, value := range fields {
		if value == nil {
			return fmt.Errorf("%s is null", name)
		}
	}
	// A backup may take longer than its body.
	return http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// wrongField is the error of a field whose value is of another type.
type wrongField struct {
	name  string
	value []byte // as in the body
}

// Error says what was wrong, to be followed by what is allowed.
func (e wrongField) Error() string { return fmt.Sprintf("%s is %.40s, want ", e.name, e.value) }

// inWords returns what was wrong with an object in the terms of whoever has sent it.
func inWords(err error, text []byte) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends too early")
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	var fields map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(text)).Decode(&fields) != nil {
		return errors.New("it is no object")
	}
	for name, value := range fields {
		if strings.EqualFold(name, wrong.Field) { // as package json compares them
			return wrongField{wrong.Field, value}
		}
	}
	return err
}

// bodyProblem answers a body that readJSON refused.
func bodyProblem(w http.ResponseWriter, err error, want string) {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes, want %s", tooLarge.Limit, want))
		return
	}
	problem(w, http.StatusBadRequest, fmt.Sprintf("the body is malformed (%v), want %s", err, want))
}
