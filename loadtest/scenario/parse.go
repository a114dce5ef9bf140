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
	root, err := r.root(data)
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
	if err := r.form(root, &f, false); err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	s, err := f.scenario(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.short == nil {
		return s, nil
	}
	// What short says is written over what the file says.
	f.settings = maps.Clone(f.settings)
	if err := r.form(r.short, &f, true); err != nil {
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

// plain are the fields of a file that have one value.
var plain = map[string]func(f *form, text string) error{
	"title":       func(f *form, text string) error { return prose(&f.Title, text) },
	"question":    func(f *form, text string) error { return prose(&f.Question, text) },
	"expectation": func(f *form, text string) error { return prose(&f.Expectation, text) },
	"duration":    func(f *form, text string) error { return duration(&f.Duration, time.Millisecond, text) },
	"warmup":      func(f *form, text string) error { return duration(&f.Warmup, 0, text) },
	"slo":         func(f *form, text string) error { return duration(&f.SLO, time.Millisecond, text) },
	"timeout":     func(f *form, text string) error { return duration(&f.Timeout, time.Millisecond, text) },
	"repetitions": func(f *form, text string) error {
		n, err := number(1, maxRepetitions, false)(text)
		f.Repetitions = int(n.(uint64))
		return err
	},
	"seed": func(f *form, text string) error {
		n, err := number(0, math.MaxUint64, false)(text)
		f.Seed = n.(uint64)
		return err
	},
}

// once are the fields that the short form does not have.
var once = []string{"title", "question", "expectation", "seed", "short"}

// known is said of a field that is none of these.
const known = "a file has title, question, expectation, service, load, cases, duration, warmup, slo, timeout, repetitions, seed, short; " +
	"short has service, load, cases, duration, warmup, slo, timeout, repetitions; a case has service, load"

func prose(field *string, text string) error {
	*field = strings.Join(strings.Fields(text), " ")
	if n := len(*field); n == 0 || n > maxText {
		return fmt.Errorf("is %d bytes long, not 1 to %d", n, maxText)
	}
	return nil
}

func duration(field *time.Duration, least time.Duration, text string) (err error) {
	if *field, err = time.ParseDuration(text); err != nil || *field < least || *field > maxTime {
		return fmt.Errorf("%q is not a duration such as 10s, from %v to %v", text, least, maxTime)
	}
	return nil
}

// reader reads a file.
type reader struct {
	file  string
	short ast.Node // what it says of the short form; nil if nothing
}

// at returns an error about the line of a node.
func (r *reader) at(node ast.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.file, node.GetToken().Position.Line, fmt.Sprintf(format, args...))
}

// errorf returns an error about what is at a node.
func (r *reader) errorf(node ast.Node, format string, args ...any) error {
	return r.at(node, "%s: %s", strings.TrimPrefix(node.GetPath(), "$."), fmt.Sprintf(format, args...))
}

// root returns what a file holds.
func (r *reader) root(data []byte) (ast.Node, error) {
	parsed, err := parser.ParseBytes(data, 0)
	if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil {
		return nil, fmt.Errorf("%s:%d: %s", r.file, at.GetToken().Position.Line, at.GetMessage())
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	bodies := slices.DeleteFunc(parsed.Docs, func(doc *ast.DocumentNode) bool { return doc.Body == nil || doc.Body.Type() == ast.CommentType })
	switch {
	case len(bodies) == 0:
		return nil, fmt.Errorf("%s: is empty: a scenario has at least a title and a question", r.file)
	case len(bodies) > 1:
		return nil, fmt.Errorf("%s: has %d parts with --- between them: a file is one scenario", r.file, len(bodies))
	}
	return bodies[0].Body, nil
}

// each calls do with the fields of a mapping; with none if it says nothing.
func (r *reader) each(node ast.Node, do func(name string, value ast.Node) error) error {
	if node.Type() == ast.NullType {
		return nil
	}
	fields, ok := node.(ast.MapNode)
	if !ok {
		return r.at(node, "%s was used where mapping is expected", node.Type().YAMLName())
	}
	for all := fields.MapRange(); all.Next(); {
		if err := do(all.Key().GetToken().Value, all.Value()); err != nil {
			return err
		}
	}
	return nil
}

// form writes what a file or its short form says over what was said before.
func (r *reader) form(node ast.Node, f *form, short bool) error {
	return r.each(node, func(name string, value ast.Node) error {
		set := plain[name]
		switch {
		case short && slices.Contains(once, name):
			return r.at(value, "unknown field %q: %s", name, known)
		case value.Type() == ast.NullType && (set != nil || name == "short" || name == "cases"):
			return nil
		case name == "short":
			r.short = value
			return nil
		case name == "cases":
			return r.cases(value, f)
		case set == nil:
			return r.part(name, value, f.settings)
		}
		text, err := r.text(value)
		if err != nil {
			return err
		}
		if err := set(f, text); err != nil {
			return r.errorf(value, "%v", err)
		}
		return nil
	})
}

// cases reads a list of parts.
func (r *reader) cases(node ast.Node, f *form) error {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return r.at(node, "%s was used where sequence is expected", node.Type().YAMLName())
	}
	if len(list.Values) == 0 {
		return fmt.Errorf("%s: cases: is an empty list", r.file)
	}
	f.cases = nil
	for _, n := range list.Values {
		one := Settings{}
		f.cases = append(f.cases, one)
		if err := r.each(n, func(name string, value ast.Node) error { return r.part(name, value, one) }); err != nil {
			return err
		}
	}
	return nil
}

// part reads settings of the service or of the load.
func (r *reader) part(part string, node ast.Node, into Settings) error {
	if part != string(OfService) && part != string(OfLoad) {
		return r.at(node, "unknown field %q: %s", part, known)
	}
	return r.each(node, func(name string, value ast.Node) (err error) {
		s := find(name)
		if s == nil || string(s.Part) != part {
			var known []string
			for _, s := range All {
				if string(s.Part) == part {
					known = append(known, s.Name)
				}
			}
			return r.errorf(value, "unknown, known are %s", strings.Join(known, ", "))
		}
		if value.Type() == ast.NullType {
			return fmt.Errorf("%s: %s.%s: has no value", r.file, part, name)
		}
		into[name], err = r.values(value, s)
		return err
	})
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
