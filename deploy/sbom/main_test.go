package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	d := describe("spillway", "v0.1.0", &debug.BuildInfo{
		GoVersion: "go1.26.0",
		Main:      debug.Module{Path: "example.com/spillway"},
		Deps: []*debug.Module{
			{Path: "example.com/z", Version: "v1.0.0+incompatible", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
			{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/new", Version: "v2.0.0", Sum: "nonsense"}},
		},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "-buildmode", Value: "exe"}},
	})
	text, err := json.Marshal(d)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": {
			"component": {
				"type": "application", "bom-ref": "spillway", "name": "spillway", "version": "v0.1.0",
				"purl": "pkg:golang/example.com/spillway@v0.1.0", "licenses": [{"license": {"id": "Apache-2.0"}}]
			},
			"properties": [{"name": "go:GOOS", "value": "linux"}]
		},
		"components": [
			{"type": "library", "bom-ref": "pkg:golang/example.com/new@v2.0.0", "name": "example.com/new", "version": "v2.0.0",
				"purl": "pkg:golang/example.com/new@v2.0.0"},
			{"type": "library", "bom-ref": "pkg:golang/example.com/z@v1.0.0%2Bincompatible", "name": "example.com/z",
				"version": "v1.0.0+incompatible", "purl": "pkg:golang/example.com/z@v1.0.0%2Bincompatible",
				"hashes": [{"alg": "SHA-256", "content": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}]},
			{"type": "library", "bom-ref": "pkg:golang/std@go1.26.0", "name": "std", "version": "go1.26.0", "purl": "pkg:golang/std@go1.26.0"}
		],
		"dependencies": [{"ref": "spillway", "dependsOn": [
			"pkg:golang/example.com/new@v2.0.0", "pkg:golang/example.com/z@v1.0.0%2Bincompatible", "pkg:golang/std@go1.26.0"
		]}]
	}`, string(text))
}

// A program says itself what is in it: this test's, for instance.
func TestRun(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run([]string{"--name", "tests", "--version", "v0.1.0", self}, &out))
	var d document
	require.NoError(t, json.Unmarshal(out.Bytes(), &d))
	require.Equal(t, "tests", d.Metadata.Component.Name)
	require.Equal(t, "v0.1.0", d.Metadata.Component.Version)
	require.Len(t, d.Metadata.Component.Hashes, 1)
	require.Equal(t, runtime.Version(), d.Components[0].Version)
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
	require.ErrorContains(t, run(nil, nil), "one program is wanted")
	require.ErrorContains(t, run([]string{text}, nil), text)
	require.ErrorContains(t, run([]string{text + "-that-is-not-there"}, nil), "no such file")
}
