package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
)

//go:embed assets
var assets embed.FS

// scripts are the files of the page's one script, in order.
var scripts = []string{"base.js", "plot.js", "lines.js", "page.js"}

// HTML writes the report as one page.
func HTML(w io.Writer, in *Input) error {
	layout, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return err
	}
	style, err := assets.ReadFile("assets/page.css")
	if err != nil {
		return err
	}
	// One function around all of it keeps its names out of the page's own.
	script := []byte("(() => {\n'use strict';\n")
	for _, name := range scripts {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		script = append(script, text...)
	}
	script = append(script, "})();\n"...)
	p, d := newPage(in)
	// Marshal escapes <, > and &, so that no label can end the element.
	charts, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("the charts of the report: %w", err)
	}
	return layout.Execute(w, struct {
		page
		Policy string
		Style  template.CSS
		Script template.JS
		Data   template.JS
	}{
		page: p,
		Policy: fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'",
			sourceHash(style), sourceHash(script)),
		Style: template.CSS(style), Script: template.JS(script), Data: template.JS(charts),
	})
}

// sourceHash is how a content security policy names an inline element.
func sourceHash(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
