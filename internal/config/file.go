package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/spillway-go/spillway/internal/secure"
)

// MaxFile is how many bytes a file of settings, or of a token, may have.
const MaxFile = secure.MaxFile

// maxNested is how much of a configuration file may nest its values. The parser takes memory by the
// square of it, and of the file.
const maxNested = 100

// FileError says what is wrong with a configuration file.
type FileError struct {
	File   string
	Line   int // 0 if it is about the whole file
	Reason string
}

// Error returns one line.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// fileEntry is a setting of a configuration file.
type fileEntry struct {
	value string // as in a variable; empty for a setting that is not set
	line  int
}

// parseFile reads a configuration file: YAML, the names of flags with a value each. A list is
// the same as its elements with commas in between.
func parseFile(name string, content []byte) (map[string]fileEntry, error) {
	wrong := func(line int, format string, args ...any) error {
		return &FileError{name, line, fmt.Sprintf(format, args...)}
	}
	tokens := lexer.Tokenize(strings.TrimPrefix(string(content), "\ufeff")) // some editors begin with a byte order mark
	if line := tooDeep(tokens); line > 0 {
		return nil, wrong(line, "more than %d brackets are open, or dashes without a value, want one value, or a list of them", maxNested)
	}
	parsed, err := parser.Parse(tokens, 0)
	if err != nil {
		var line int
		var reason string
		if bad, ok := errors.AsType[*yaml.SyntaxError](err); !ok {
			reason = err.Error()
		} else if reason = bad.Message; bad.Token != nil { // not its Error, which takes minutes to draw some files
			line = bad.Token.Position.Line
		}
		return nil, wrong(line, "it is not valid YAML: %s", strings.Join(strings.Fields(reason), " "))
	}
	settings := map[string]fileEntry{}
	for i, doc := range parsed.Docs {
		if doc.Body == nil {
			continue
		}
		body, ok := doc.Body.(*ast.MappingNode)
		if !ok || i > 0 {
			return nil, wrong(lineOf(doc.Body), "want settings by the names of their flags, a line each, such as queue-capacity: 64")
		}
		for _, pair := range body.Values {
			key, line := pair.Key.GetToken().Value, lineOf(pair.Key)
			if _, twice := settings[key]; twice {
				return nil, wrong(line, "%s is set twice", key)
			}
			value, ok := text(pair.Value)
			if !ok {
				return nil, wrong(line, "the value of %s is none: want one value, or a list of them, and pairs as name=value", key)
			}
			settings[key] = fileEntry{value, line}
		}
	}
	return settings, nil
}

// tooDeep returns the line of one too many of what nests values, or 0: brackets within brackets, dashes
// without a value in their line, and what no file of settings needs. By indentation alone a file has
// no room for many.
func tooDeep(tokens token.Tokens) int {
	open, nested := 0, 0
	for i, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			if open++; open > 1 {
				nested++
			}
		case token.SequenceEndType, token.MappingEndType:
			open = max(0, open-1)
		case token.SequenceEntryType:
			if i+1 == len(tokens) || tokens[i+1].Position.Line > t.Position.Line || tokens[i+1].Type == token.SequenceEntryType {
				nested++
			}
		case token.MappingKeyType, token.DocumentHeaderType, token.DocumentEndType, token.AnchorType, token.TagType:
			nested++
		}
		if nested > maxNested {
			return t.Position.Line
		}
	}
	return 0
}

func lineOf(n ast.Node) int { return n.GetToken().Position.Line }

// text returns the value of a scalar, or of a list of them.
func text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.NullNode:
		return "", true
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	case *ast.SequenceNode:
		var parts []string
		for _, element := range n.Values {
			part, ok := text(element)
			if _, list := element.(*ast.SequenceNode); !ok || list {
				return "", false
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ","), true
	}
	return "", false
}

// Where a value is from, if it is not the default: these, or the line of the file.
const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
)

// read reads a file that Input.ReadFile may. The error does not name it.
func (in *Input) read(name string, pipe bool) ([]byte, error) {
	content, err := in.ReadFile(name, pipe)
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	if err == nil && len(content) > MaxFile {
		err = secure.ErrTooLarge
	}
	return content, err
}

// sources find the values of settings that are not flags: in the environment or, if they are
// not there, in the configuration file.
type sources struct {
	in   *Input
	env  map[string]string
	read bool // the file, if there is one
	name string
	file map[string]fileEntry
	from map[string]string // by setting

	empty bool // nothing is in the file
}

// fileless are the commands that do not read the configuration file, or another.
var fileless = []string{"config check", "man", "completion"}

// Resolve is kong's, for flags that are not given.
func (s *sources) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !isSetting(flag.Value) {
		return nil, nil
	}
	if !s.read {
		s.read = true
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	if value := s.env[variable(flag.Name)]; value != "" {
		s.from[flag.Name] = fromEnvironment
		return value, nil
	}
	if e := s.file[flag.Name]; e.value != "" {
		s.from[flag.Name] = fmt.Sprintf("%s:%d", s.name, e.line)
		return e.value, nil
	}
	return nil, nil
}

// Validate is kong's.
func (s *sources) Validate(*kong.Application) error { return nil }

// open reads the file.
func (s *sources) open(ctx *kong.Context) error {
	if c := ctx.Selected(); c != nil && slices.Contains(fileless, c.Path()) {
		return nil
	}
	s.name = s.env[variable(configFile)]
	for _, p := range ctx.Path {
		if p.Flag != nil && p.Flag.Name == configFile {
			s.name = ctx.Value(p).String()
		}
	}
	if s.name == "" {
		return nil
	}
	content, err := s.in.read(s.name, false)
	if err != nil {
		return &ValueError{Setting: configFile, Value: s.name, Allowed: fmt.Sprintf("a file that can be read (%v)", err)}
	}
	if s.empty = len(bytes.TrimSpace(content)) == 0; s.empty && s.in.NoEmptyFile {
		return &FileError{File: s.name, Reason: "it is empty, perhaps while it is being written; to set nothing, leave a comment in it"}
	}
	if s.file, err = parseFile(s.name, content); err != nil {
		return err
	}
	return s.checkNames(ctx)
}

// checkNames refuses what is the name of no setting of any command.
func (s *sources) checkNames(ctx *kong.Context) error {
	var known []string
	for _, node := range append([]*kong.Node{ctx.Model.Node}, ctx.Model.Children...) {
		for _, flag := range node.Flags {
			if isSetting(flag.Value) && flag.Name != configFile {
				known = append(known, flag.Name)
			}
		}
	}
	var first *FileError
	for name, e := range s.file {
		if slices.Contains(known, name) || first != nil && first.Line < e.line {
			continue
		}
		first = &FileError{s.name, e.line, fmt.Sprintf("there is no setting %.40q", name)}
		if near := nearest(name, known); near != "" {
			first.Reason += ", did you mean " + near + "?"
		}
	}
	if first != nil {
		return first
	}
	return nil
}

// useless warns of what stands in the file and is not for this command.
func (s *sources) useless(ctx *kong.Context) (warnings []string) {
	who := "the service"
	if ctx.Selected().Name == proxyCommand {
		who = "the proxy"
	}
	for name, e := range s.file {
		unknown := !slices.ContainsFunc(ctx.Flags(), func(f *kong.Flag) bool { return f.Name == name && !useless(ctx, f) })
		if unknown && e.value != "" && name != "data-dir" {
			warnings = append(warnings, fmt.Sprintf("%s:%d: %s is ignored: %s has no use for it", s.name, e.line, name, who))
		}
	}
	return warnings
}

// origins returns where values are from, by the names of their variables, but for defaults.
func (s *sources) origins(ctx *kong.Context) map[string]string {
	var from map[string]string
	for _, p := range ctx.Path {
		if p.Flag == nil || !isSetting(p.Flag.Value) {
			continue
		}
		if from == nil {
			from = map[string]string{}
		}
		origin := fromFlag
		if p.Resolved {
			origin = s.from[p.Flag.Name]
		}
		from[variable(p.Flag.Name)] = origin
	}
	// Of a token that is in a file of its own.
	for _, setting := range []string{"data-token", "admin-token"} {
		file := variable(setting + "-file")
		if origin, ok := from[file]; ok {
			from[variable(setting)] = origin
			delete(from, file)
		}
	}
	return from
}

// locate adds the line of the file to an error about a value that is from there, or that another
// one from there asks for.
func (s *sources) locate(err error) error {
	if bad, ok := errors.AsType[*ValueError](err); ok {
		if from := cmp.Or(s.from[bad.Setting], s.from[bad.With]); from != "" && from != fromEnvironment {
			bad.From = from
		}
	}
	return err
}
