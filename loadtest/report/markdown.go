package report

import (
	"io"
	"strings"
	"text/template"
)

// Markdown writes what the report says, without its charts.
func Markdown(w io.Writer, in *Input) error {
	layout, err := template.New("page.md").Funcs(template.FuncMap{"escape": escape, "code": code}).ParseFS(assets, "assets/page.md")
	if err != nil {
		return err
	}
	p, _ := newPage(in)
	return layout.Execute(w, p)
}

// escape keeps text from being read as Markdown or HTML, on one line.
func escape(text string) string {
	return escaper.Replace(strings.Join(strings.Fields(text), " "))
}

var escaper = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "|", `\|`, "[", `\[`, "]", `\]`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "#", `\#`, "~", `\~`, "!", `\!`)

// code writes text as a code span that may stand in a table.
func code(text string) string {
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + text + " " + fence
	}
	return fence + text + fence
}
