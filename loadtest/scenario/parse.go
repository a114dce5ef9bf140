package scenario

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// The bounds of what a file may ask for.
const (
	maxBytes       = 64 << 10
	maxRepetitions = 1000
	maxTime        = 24 * time.Hour
	maxText        = 2000
)

// Load reads a scenario file. The scenario's name is that of the file, without
// its ending. What over has is written over what the file says, its cases and its
// short form included.
func Load(path string, over ...Settings) (*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1)) // which Parse refuses
	if err != nil {
		return nil, err
	}
	return Parse(path, data, over...)
}

// maxDepth bounds the brackets that are open at once: the parser takes a time
// that grows with their square.
const maxDepth = 32

// depth returns how many brackets are open at once at most.
func depth(data []byte) (most int) {
	open := 0
	for _, c := range data {
		switch c {
		case '[', '{':
			open++
			most = max(most, open)
		case ']', '}':
			open--
		}
	}
	return most
}

// Parse reads a scenario from the content of a file of that name, as Load does.
// The errors are those of package scenario.
func Parse(file string, data []byte, over ...Settings) (*Scenario, error) {
	r := reader{file: file}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s: longer than %d bytes", file, maxBytes)
	}
	if depth(data) > maxDepth {
		return nil, fmt.Errorf("%s: nested more than %d deep", file, maxDepth)
	}
	read, err := r.decode(data)
	if err != nil {
		return nil, err
	}
	f := defaults()
	for _, settings := range over {
		if _, err := settings.Combinations(); err != nil {
			return nil, err // not the file's
		}
		maps.Copy(f.over, settings)
	}
	if err := r.fill(read, &f); err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	s, err := f.scenario(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if read.Short == nil {
		return s, nil
	}
	// What short says is written over what the file says.
	f.settings = maps.Clone(f.settings)
	if err := r.overrides(read.Short, &f); err != nil {
		return nil, err
	}
	if s.Short, err = f.scenario(name); err != nil {
		return nil, fmt.Errorf("%s: short: %w", file, err)
	}
	return s, nil
}

// form is a file, or its short form: a scenario before its settings are multiplied.
type form struct {
	Scenario
	settings, over Settings
	cases          []Settings
}

// defaults returns the form of a file that says nothing.
func defaults() form {
	return form{settings: Settings{}, over: Settings{}, Scenario: Scenario{
		Duration: 10 * time.Second, Warmup: 2 * time.Second, SLO: 100 * time.Millisecond, Timeout: 10 * time.Second,
		Repetitions: 9, Seed: 1,
	}}
}

// New returns a scenario without a file: the product of the settings, with the
// defaults of a file. It fails as [Settings.Combinations] does.
func New(name, title, question string, settings Settings) (*Scenario, error) {
	f := defaults()
	f.Title, f.Question, f.settings = title, question, settings
	return f.scenario(name)
}

// scenario returns what the form says.
func (f *form) scenario(name string) (*Scenario, error) {
	for _, text := range []struct{ name, text string }{{"title", f.Title}, {"question", f.Question}} {
		if text.text == "" {
			return nil, fmt.Errorf("%s: missing", text.name)
		}
	}
	s := new(f.Scenario)
	s.Name = name
	cases := f.cases
	if cases == nil {
		cases = []Settings{{}}
	}
	for i, c := range cases {
		merged := maps.Clone(f.settings)
		maps.Copy(merged, c)
		maps.Copy(merged, f.over)
		combinations, err := merged.Combinations()
		if err != nil {
			if f.cases != nil {
				return nil, fmt.Errorf("cases[%d]: %w", i, err)
			}
			return nil, err
		}
		for _, c := range combinations {
			if !slices.Contains(s.Combinations, c) {
				s.Combinations = append(s.Combinations, c)
			}
		}
		if len(s.Combinations) > MaxCombinations {
			return nil, fmt.Errorf("cases: more than %d combinations", MaxCombinations)
		}
	}
	return s, nil
}

// file is what a scenario file may hold.
type file struct {
	Title       *value     `yaml:"title"`
	Question    *value     `yaml:"question"`
	Expectation *value     `yaml:"expectation"`
	Overrides   overrides  `yaml:",inline"`
	Seed        *value     `yaml:"seed"`
	Short       *overrides `yaml:"short"`
}

// overrides are what its short form may hold as well.
type overrides struct {
	Parts       parts   `yaml:",inline"`
	Cases       []parts `yaml:"cases"`
	Duration    *value  `yaml:"duration"`
	Warmup      *value  `yaml:"warmup"`
	SLO         *value  `yaml:"slo"`
	Timeout     *value  `yaml:"timeout"`
	Repetitions *value  `yaml:"repetitions"`
}

// parts are what a case may hold as well.
type parts struct {
	Service map[string]value `yaml:"service"`
	Load    map[string]value `yaml:"load"`
}

// known is said of a field that is none of these.
const known = "a file has title, question, expectation, service, load, cases, duration, warmup, slo, timeout, repetitions, seed, short; " +
	"short has service, load, cases, duration, warmup, slo, timeout, repetitions; a case has service, load"

// value is where a value, or a list of them, is written.
type value struct{ node ast.Node }

// UnmarshalYAML keeps the node.
func (v *value) UnmarshalYAML(node ast.Node) error {
	v.node = node
	return nil
}

// reader reads a file.
type reader struct{ file string }

// errorf returns an error about what is at a node.
func (r *reader) errorf(at ast.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %s", r.file, at.GetToken().Position.Line, strings.TrimPrefix(at.GetPath(), "$."), fmt.Sprintf(format, args...))
}

// decode returns what a file holds.
func (r *reader) decode(data []byte) (*file, error) {
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, r.located(err)
	}
	bodies := slices.DeleteFunc(parsed.Docs, func(doc *ast.DocumentNode) bool { return doc.Body == nil || doc.Body.Type() == ast.CommentType })
	switch {
	case len(bodies) == 0:
		return nil, fmt.Errorf("%s: is empty: a scenario has at least a title and a question", r.file)
	case len(bodies) > 1:
		return nil, fmt.Errorf("%s: has %d parts with --- between them: a file is one scenario", r.file, len(bodies))
	}
	read := new(file)
	if err := yaml.NodeToValue(bodies[0].Body, read, yaml.Strict()); err != nil {
		return nil, r.located(err)
	}
	return read, nil
}

// located returns an error of the decoder as one line.
func (r *reader) located(err error) error {
	at, ok := errors.AsType[yaml.Error](err)
	if !ok || at.GetToken() == nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	message := at.GetMessage()
	if _, unknown := errors.AsType[*yaml.UnknownFieldError](err); unknown {
		message += ": " + known
	}
	return fmt.Errorf("%s:%d: %s", r.file, at.GetToken().Position.Line, message)
}

// fill writes what a file says over the defaults.
func (r *reader) fill(read *file, f *form) error {
	err := r.set([]field{
		{read.Title, prose(&f.Title)}, {read.Question, prose(&f.Question)}, {read.Expectation, prose(&f.Expectation)},
		{read.Seed, func(text string) (err error) {
			if f.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
				return fmt.Errorf("%q is not a whole number from 0 to %d", text, uint64(math.MaxUint64))
			}
			return nil
		}},
	})
	if err != nil {
		return err
	}
	return r.overrides(&read.Overrides, f)
}

// overrides writes what a file or its short form says over what was said before.
func (r *reader) overrides(o *overrides, f *form) error {
	if err := r.parts(&o.Parts, f.settings); err != nil {
		return err
	}
	if o.Cases != nil {
		if f.cases = make([]Settings, len(o.Cases)); len(f.cases) == 0 {
			return fmt.Errorf("%s: cases: is an empty list", r.file)
		}
	}
	for i := range o.Cases {
		f.cases[i] = Settings{}
		if err := r.parts(&o.Cases[i], f.cases[i]); err != nil {
			return err
		}
	}
	return r.set([]field{
		{o.Duration, duration(&f.Duration, time.Millisecond)}, {o.Warmup, duration(&f.Warmup, 0)},
		{o.SLO, duration(&f.SLO, time.Millisecond)}, {o.Timeout, duration(&f.Timeout, time.Millisecond)},
		{o.Repetitions, func(text string) (err error) {
			n, err := number(1, maxRepetitions, false)(text)
			f.Repetitions = int(n.(uint64))
			return err
		}},
	})
}

// field is a value, nil if it is not given, and what takes it.
type field struct {
	value *value
	set   func(text string) error
}

func (r *reader) set(fields []field) error {
	for _, f := range fields {
		if f.value == nil {
			continue
		}
		text, err := r.text(f.value.node)
		if err != nil {
			return err
		}
		if err := f.set(text); err != nil {
			return r.errorf(f.value.node, "%v", err)
		}
	}
	return nil
}

func prose(field *string) func(string) error {
	return func(text string) error {
		*field = strings.Join(strings.Fields(text), " ")
		if n := len(*field); n == 0 || n > maxText {
			return fmt.Errorf("is %d bytes long, not 1 to %d", n, maxText)
		}
		return nil
	}
}

func duration(field *time.Duration, least time.Duration) func(string) error {
	return func(text string) (err error) {
		if *field, err = time.ParseDuration(text); err != nil || *field < least || *field > maxTime {
			return fmt.Errorf("%q is not a duration such as 10s, from %v to %v", text, least, maxTime)
		}
		return nil
	}
}

// parts reads settings of the service and of the load.
func (r *reader) parts(p *parts, into Settings) error {
	for _, part := range []struct {
		name   Part
		values map[string]value
	}{{OfService, p.Service}, {OfLoad, p.Load}} {
		for _, name := range slices.Sorted(maps.Keys(part.values)) {
			v := part.values[name]
			if v.node == nil {
				return fmt.Errorf("%s: %s.%s: has no value", r.file, part.name, name)
			}
			s := find(name)
			if s == nil || s.Part != part.name {
				var known []string
				for _, s := range All {
					if s.Part == part.name {
						known = append(known, s.Name)
					}
				}
				return r.errorf(v.node, "unknown, known are %s", strings.Join(known, ", "))
			}
			values, err := r.values(v.node, s)
			if err != nil {
				return err
			}
			into[name] = values
		}
	}
	return nil
}

// values reads one value of a setting, or a list of them.
func (r *reader) values(node ast.Node, s *Setting) (values []string, err error) {
	nodes := []ast.Node{node}
	if list, ok := node.(*ast.SequenceNode); ok {
		if nodes = list.Values; len(nodes) == 0 {
			return nil, r.errorf(node, "is an empty list")
		}
	}
	for _, n := range nodes {
		text, err := r.text(n)
		if err != nil {
			return nil, err
		}
		if err := s.set(new(Combination), text); err != nil {
			return nil, r.errorf(n, "%v", err)
		}
		if slices.Contains(values, text) {
			return nil, r.errorf(n, "%q is given twice", text)
		}
		values = append(values, text)
	}
	return values, nil
}

// text reads one value as it is written.
func (r *reader) text(node ast.Node) (string, error) {
	switch n := node.(type) {
	case nil:
		return "", fmt.Errorf("%s: a value is missing", r.file)
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.MappingNode, *ast.MappingValueNode:
		return "", r.errorf(node, "is not a plain value; what has a colon needs quotes in a list")
	default:
		return "", r.errorf(node, "is not a plain value")
	}
}
