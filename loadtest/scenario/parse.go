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
	root, err := r.parse(data)
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
	short, err := r.form(root, &f, "")
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	s, err := f.scenario(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if short == nil {
		return s, nil
	}
	// What short says is written over what the file says.
	f.settings = maps.Clone(f.settings)
	if _, err := r.form(short, &f, "short."); err != nil {
		return nil, err
	}
	if s.Short, err = f.scenario(name); err != nil {
		return nil, fmt.Errorf("%s: short: %w", file, err)
	}
	return s, nil
}

// form is a file, or its short form.
type form struct {
	title, question, expectation   string
	duration, warmup, slo, timeout time.Duration
	repetitions                    int
	seed                           uint64
	settings, over                 Settings
	cases                          []Settings
}

// defaults returns the form of a file that says nothing.
func defaults() form {
	return form{
		duration: 10 * time.Second, warmup: 2 * time.Second, slo: 100 * time.Millisecond, timeout: 10 * time.Second,
		repetitions: 9, seed: 1, settings: Settings{}, over: Settings{},
	}
}

// New returns a scenario without a file: the product of the settings, with the
// defaults of a file. It fails as [Settings.Combinations] does.
func New(name, title, question string, settings Settings) (*Scenario, error) {
	f := defaults()
	f.title, f.question, f.settings = title, question, settings
	return f.scenario(name)
}

// scenario returns what the form says.
func (f *form) scenario(name string) (*Scenario, error) {
	for _, text := range []struct{ name, text string }{{"title", f.title}, {"question", f.question}} {
		if text.text == "" {
			return nil, fmt.Errorf("%s: missing", text.name)
		}
	}
	s := &Scenario{
		Name: name, Title: f.title, Question: f.question, Expectation: f.expectation,
		Duration: f.duration, Warmup: f.warmup, SLO: f.slo, Timeout: f.timeout,
		Repetitions: f.repetitions, Seed: f.seed,
	}
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

// reader reads the parts of a file. The paths it takes end with a dot, or are
// empty.
type reader struct{ file string }

// errorf returns an error about what is at a node.
func (r *reader) errorf(at ast.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.file, at.GetToken().Position.Line, fmt.Sprintf(format, args...))
}

// parse returns the one mapping that a file holds.
func (r *reader) parse(data []byte) (ast.Node, error) {
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil {
			return nil, fmt.Errorf("%s:%d: %s", r.file, at.GetToken().Position.Line, at.GetMessage())
		}
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	var bodies []ast.Node
	for _, doc := range parsed.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) != 1 {
		return nil, fmt.Errorf("%s: holds %d YAML documents, not one", r.file, len(bodies))
	}
	return bodies[0], nil
}

// form reads a mapping into f, and returns the node of the short form.
func (r *reader) form(node ast.Node, f *form, path string) (short ast.Node, err error) {
	fields := map[string]func(ast.Node) error{
		"service":     func(n ast.Node) error { return r.settings(n, f.settings, path+"service.", false) },
		"load":        func(n ast.Node) error { return r.settings(n, f.settings, path+"load.", true) },
		"cases":       func(n ast.Node) (err error) { f.cases, err = r.cases(n, path+"cases"); return err },
		"duration":    func(n ast.Node) error { return r.duration(n, &f.duration, path+"duration", time.Millisecond) },
		"warmup":      func(n ast.Node) error { return r.duration(n, &f.warmup, path+"warmup", 0) },
		"slo":         func(n ast.Node) error { return r.duration(n, &f.slo, path+"slo", time.Millisecond) },
		"timeout":     func(n ast.Node) error { return r.duration(n, &f.timeout, path+"timeout", time.Millisecond) },
		"repetitions": func(n ast.Node) error { return r.repetitions(n, &f.repetitions, path+"repetitions") },
	}
	if path == "" {
		fields["title"] = func(n ast.Node) error { return r.prose(n, &f.title, "title") }
		fields["question"] = func(n ast.Node) error { return r.prose(n, &f.question, "question") }
		fields["expectation"] = func(n ast.Node) error { return r.prose(n, &f.expectation, "expectation") }
		fields["seed"] = func(n ast.Node) error { return r.seed(n, &f.seed) }
		fields["short"] = func(n ast.Node) error { short = n; return nil }
	}
	err = r.mapping(node, path, slices.Sorted(maps.Keys(fields)), func(key string, value ast.Node) error {
		return fields[key](value)
	})
	return short, err
}

// mapping calls field for each entry of a mapping.
func (r *reader) mapping(node ast.Node, path string, known []string, field func(key string, value ast.Node) error) error {
	// Not ast.MapNode, which anchors, aliases and tags are too.
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		what := strings.TrimSuffix(path, ".")
		if what == "" {
			what = "the file"
		}
		return r.errorf(node, "%s: has to hold some of %s", what, strings.Join(known, ", "))
	}
	for _, entry := range entries {
		key := entry.Key.GetToken().Value
		if !slices.Contains(known, key) {
			return r.errorf(entry.Key, "%s%s: unknown, known are %s", path, key, strings.Join(known, ", "))
		}
		if err := field(key, entry.Value); err != nil {
			return err
		}
	}
	return nil
}

// cases reads a list of overridden settings.
func (r *reader) cases(node ast.Node, path string) ([]Settings, error) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return nil, r.errorf(node, "%s: is not a list", path)
	}
	cases := []Settings{}
	for _, item := range list.Values {
		s := Settings{}
		path := fmt.Sprintf("%s[%d].", path, len(cases))
		err := r.mapping(item, path, []string{"service", "load"}, func(key string, value ast.Node) error {
			return r.settings(value, s, path+key+".", key == "load")
		})
		if err != nil {
			return nil, err
		}
		cases = append(cases, s)
	}
	if len(cases) == 0 {
		return nil, r.errorf(node, "%s: is empty", path)
	}
	return cases, nil
}

// settings reads those of the service, or of the load.
func (r *reader) settings(node ast.Node, into Settings, path string, load bool) error {
	var known []string
	for _, s := range settings {
		if s.load == load {
			known = append(known, s.name)
		}
	}
	return r.mapping(node, path, known, func(key string, value ast.Node) error {
		values, err := r.values(value, path+key)
		if err != nil {
			return err
		}
		into[key] = nil
		for _, v := range values {
			if err := find(key).set(new(Combination), v.text); err != nil {
				return r.errorf(v.node, "%s%s: %v", path, key, err)
			}
			if slices.Contains(into[key], v.text) {
				return r.errorf(v.node, "%s%s: %q is given twice", path, key, v.text)
			}
			into[key] = append(into[key], v.text)
		}
		return nil
	})
}

type value struct {
	text string
	node ast.Node
}

// values reads one value, or a list of them.
func (r *reader) values(node ast.Node, path string) ([]value, error) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		text, err := r.text(node, path)
		return []value{{text, node}}, err
	}
	var values []value
	for _, item := range list.Values {
		text, err := r.text(item, path)
		if err != nil {
			return nil, err
		}
		values = append(values, value{text, item})
	}
	if len(values) == 0 {
		return nil, r.errorf(node, "%s: is an empty list", path)
	}
	return values, nil
}

// text reads one value as it is written.
func (r *reader) text(node ast.Node, path string) (string, error) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.NullNode:
		return "", r.errorf(node, "%s: has no value", path)
	case *ast.MappingNode, *ast.MappingValueNode:
		return "", r.errorf(node, "%s: is not a plain value; what has a colon needs quotes in a list", path)
	default:
		return "", r.errorf(node, "%s: is not a plain value", path)
	}
}

func (r *reader) prose(node ast.Node, field *string, path string) (err error) {
	if *field, err = r.text(node, path); err != nil {
		return err
	}
	*field = strings.Join(strings.Fields(*field), " ")
	if n := len(*field); n == 0 || n > maxText {
		return r.errorf(node, "%s: is %d bytes long, not 1 to %d", path, n, maxText)
	}
	return nil
}

func (r *reader) duration(node ast.Node, field *time.Duration, path string, least time.Duration) error {
	text, err := r.text(node, path)
	if err != nil {
		return err
	}
	if *field, err = time.ParseDuration(text); err != nil || *field < least || *field > maxTime {
		return r.errorf(node, "%s: %q is not a duration such as 10s, from %v to %v", path, text, least, maxTime)
	}
	return nil
}

func (r *reader) repetitions(node ast.Node, field *int, path string) error {
	text, err := r.text(node, path)
	if err != nil {
		return err
	}
	if err := setInt(field, text, maxRepetitions); err != nil {
		return r.errorf(node, "%s: %v", path, err)
	}
	return nil
}

func (r *reader) seed(node ast.Node, field *uint64) error {
	text, err := r.text(node, "seed")
	if err != nil {
		return err
	}
	if *field, err = strconv.ParseUint(text, 10, 64); err != nil {
		return r.errorf(node, "seed: %q is not a whole number from 0 to %d", text, uint64(math.MaxUint64))
	}
	return nil
}
