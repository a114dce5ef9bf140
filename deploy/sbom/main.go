// Command sbom writes what a Go program was built from as a CycloneDX document: the
// modules in it, with their versions and checksums, as the program itself says.
//
//	sbom --name spillway --version v0.1.0 bin/spillway > spillway.cdx.json
//
// It reads what go version -m prints, so it works for programs of other platforms.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	name := flags.String("name", "", "what the program is called (default: the name of its file)")
	version := flags.String("version", "", "its version (default: that of its module)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("one program is wanted: sbom [--name NAME] [--version VERSION] PROGRAM")
	}
	program, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	d := describe(cmp.Or(*name, filepath.Base(flags.Arg(0))), cmp.Or(*version, info.Main.Version), info)
	sum := sha256.Sum256(program)
	d.Metadata.Component.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// The parts of CycloneDX 1.6 that are used here.
type (
	document struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Component  component  `json:"component"`
		Properties []property `json:"properties,omitempty"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version,omitempty"`
		PURL       string     `json:"purl,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licenses   []license  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	license struct {
		License licenseID `json:"license"`
	}
	licenseID struct {
		ID string `json:"id"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// describe returns the document of a program. The same program always has the same
// document: there is no time in it and no random number.
func describe(name, version string, info *debug.BuildInfo) document {
	program := component{
		Type: "application", Ref: name, Name: name, Version: version,
		PURL:     purl(info.Main.Path, version),
		Licenses: []license{{licenseID{"Apache-2.0"}}},
	}
	d := document{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata:   metadata{Component: program},
		Components: []component{{Type: "library", Ref: purl("std", info.GoVersion), Name: "std", Version: info.GoVersion, PURL: purl("std", info.GoVersion)}},
	}
	for _, s := range info.Settings {
		if slices.Contains([]string{"GOOS", "GOARCH", "CGO_ENABLED", "vcs.revision"}, s.Key) {
			d.Metadata.Properties = append(d.Metadata.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Components = append(d.Components, component{
			Type: "library", Ref: purl(m.Path, m.Version), Name: m.Path, Version: m.Version,
			PURL: purl(m.Path, m.Version), Hashes: hashes(m.Sum),
		})
	}
	slices.SortFunc(d.Components, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	on := make([]string, len(d.Components))
	for i, c := range d.Components {
		on[i] = c.Ref
	}
	d.Dependencies = []dependency{{Ref: name, DependsOn: on}}
	return d
}

// purl returns the package URL of a module.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// hashes returns a checksum of go.sum. It is taken over the names and the checksums of
// the module's files.
func hashes(sum string) []hash {
	encoded, ok := strings.CutPrefix(sum, "h1:")
	if !ok {
		return nil
	}
	digest, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	return []hash{{"SHA-256", hex.EncodeToString(digest)}}
}
