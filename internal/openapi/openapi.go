// Package openapi reads docs/openapi.yaml, and reports whether an answer is one of those
// that it describes. It is for tests.
package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an OpenAPI document. Its schemas are JSON Schema's (OpenAPI 3.1), so that they are
// checked by a library of that.
type Document struct{ root object }

type object = map[string]any

// Read reads docs/openapi.yaml of this repository.
func Read() (*Document, error) {
	_, file, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "..", "docs", "openapi.yaml"))
	if err != nil {
		return nil, err
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		return nil, err
	}
	d := new(Document)
	return d, json.Unmarshal(text, &d.root)
}

// follow returns o, or what it refers to.
func (d *Document) follow(o object) object {
	ref, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	at := d.root
	for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		at, _ = at[name].(object)
	}
	return at
}

// Paths returns the paths of a plane, sorted: those with servers of their own are the
// admin plane's.
func (d *Document) Paths(admin bool) (paths []string) {
	all, _ := d.root["paths"].(object)
	for path, item := range all {
		if _, own := item.(object)["servers"]; own == admin {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// Operation is a method on a path.
type Operation struct {
	d *Document
	o object
}

// Operation returns what a method on a path is, nil if it is not described.
func (d *Document) Operation(method, path string) *Operation {
	paths, _ := d.root["paths"].(object)
	item, _ := paths[path].(object)
	if o, ok := item[strings.ToLower(method)].(object); ok {
		return &Operation{d, o}
	}
	return nil
}

// Parameters returns the names of those in query or header, and whether each must be
// given.
func (o *Operation) Parameters(in string) map[string]bool {
	names := map[string]bool{}
	list, _ := o.o["parameters"].([]any)
	for _, p := range list {
		if p := o.d.follow(p.(object)); p["in"] == in {
			required, _ := p["required"].(bool)
			names[p["name"].(string)] = required
		}
	}
	return names
}

// CheckBody returns an error that says how the JSON of a request is not as it is described.
func (o *Operation) CheckBody(body string) error {
	described, _ := o.o["requestBody"].(object)
	content, _ := described["content"].(object)
	media, _ := content["application/json"].(object)
	schema, _ := media["schema"].(object)
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return err
	}
	return o.d.validate(schema, v, "the body")
}

// Statuses returns those that are described, default aside.
func (o *Operation) Statuses() (statuses []int) {
	responses, _ := o.o["responses"].(object)
	for code := range responses {
		if n, err := strconv.Atoi(code); err == nil {
			statuses = append(statuses, n)
		}
	}
	slices.Sort(statuses)
	return statuses
}

// ownHeaders are those that every answer may have.
var ownHeaders = []string{
	"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Transfer-Encoding", "Vary",
	"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy",
}

// Check returns an error that says how an answer is not as it is described. The body of
// an answer to HEAD is empty.
func (o *Operation) Check(method string, status int, header http.Header, body string) error {
	responses, _ := o.o["responses"].(object)
	r, ok := responses[strconv.Itoa(status)].(object)
	if !ok {
		if r, ok = responses["default"].(object); !ok || status < 400 {
			return fmt.Errorf("the status %d is not described", status)
		}
	}
	r = o.d.follow(r)
	headers, _ := r["headers"].(object)
	for name := range header {
		described, ok := headers[canonical(headers, name)].(object)
		switch {
		case ok:
			schema, _ := o.d.follow(described)["schema"].(object)
			if err := o.d.validate(schema, header.Get(name), name); err != nil {
				return fmt.Errorf("of the answer %d: %w", status, err)
			}
		case !slices.Contains(ownHeaders, name):
			return fmt.Errorf("the header %s of the answer %d is not described", name, status)
		}
	}
	for name, described := range headers {
		if required, _ := o.d.follow(described.(object))["required"].(bool); required && header.Get(name) == "" {
			return fmt.Errorf("the answer %d has no header %s", status, name)
		}
	}
	return o.checkBody(method, status, r, header.Get("Content-Type"), body)
}

// canonical returns the name of a header as the document spells it.
func canonical(headers object, name string) string {
	for spelled := range headers {
		if strings.EqualFold(spelled, name) {
			return spelled
		}
	}
	return name
}

func (o *Operation) checkBody(method string, status int, response object, mediaType, body string) error {
	content, _ := response["content"].(object)
	if len(content) == 0 {
		if body != "" {
			return fmt.Errorf("the answer %d has a body, and none is described", status)
		}
		return nil
	}
	name, _, _ := strings.Cut(mediaType, ";")
	media, ok := content[name].(object)
	if !ok {
		return fmt.Errorf("the type %q of the answer %d is not described", mediaType, status)
	}
	if method == http.MethodHead {
		return nil
	}
	schema, _ := media["schema"].(object)
	texts := []string{body}
	switch name {
	case "application/x-ndjson":
		texts = slices.Collect(strings.Lines(body))
	case "application/json", "application/problem+json":
	default:
		return nil
	}
	for _, text := range texts {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return fmt.Errorf("of the answer %d: %w in %q", status, err, text)
		}
		if err := o.d.validate(schema, v, "the body"); err != nil {
			return fmt.Errorf("of the answer %d: %w in %q", status, err, text)
		}
	}
	return nil
}

// validate checks v against a schema, whose references are to components of the document.
func (d *Document) validate(schema object, v any, what string) error {
	whole := maps.Clone(schema)
	whole["components"] = d.root["components"]
	compiler := jsonschema.NewCompiler()
	err := compiler.AddResource("schema.json", whole)
	if err != nil {
		return err
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		return err
	}
	if err := compiled.Validate(v); err != nil {
		_, why, _ := strings.Cut(strings.Join(strings.Fields(err.Error()), " "), " - ") // before it is where the schema is
		return fmt.Errorf("%s %s", what, why)
	}
	return nil
}
