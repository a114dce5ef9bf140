package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
)

//go:embed assets
var assets embed.FS

// scripts are the files of the page's one script, in order.
var scripts = []string{"base.js", "plot.js", "lines.js", "bars.js", "flame.js", "page.js"}

// content returns what the page consists of beside the data.
var content = sync.OnceValues(func() (c struct {
	page          *template.Template
	style, script string
}, err error) {
	read := func(names ...string) string {
		var b strings.Builder
		for _, name := range names {
			text, readErr := assets.ReadFile("assets/" + name)
			if readErr != nil && err == nil {
				err = readErr
			}
			b.Write(text)
		}
		return b.String()
	}
	c.style = read("page.css")
	// One function around all of it keeps its names out of the page's own.
	c.script = "(() => {\n'use strict';\n" + read(scripts...) + "})();\n"
	text := read("page.html")
	if err == nil {
		c.page, err = template.New("page.html").Parse(text)
	}
	return c, err
})

// HTML writes the report as one page.
func HTML(w io.Writer, in *Input) error {
	c, err := content()
	if err != nil {
		return err
	}
	p, d := newPage(in)
	// Marshal escapes <, > and &, so that no label can end the element.
	charts, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("the charts of the report: %w", err)
	}
	return c.page.Execute(w, struct {
		page
		Policy string
		Style  template.CSS
		Script template.JS
		Data   template.JS
	}{
		page: p,
		Policy: fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'",
			sourceHash(c.style), sourceHash(c.script)),
		Style: template.CSS(c.style), Script: template.JS(c.script), Data: template.JS(charts),
	})
}

// sourceHash is how a content security policy names an inline element.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
