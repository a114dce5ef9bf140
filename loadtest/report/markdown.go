package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Markdown writes what the report says, without its charts.
func Markdown(w io.Writer, in *Input) error {
	p, _ := newPage(in)
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "# %s\n", escape(p.Title))
	if len(p.Sections) > 1 {
		fmt.Fprintln(out)
		for _, s := range p.Sections {
			fmt.Fprintf(out, "- **%s**: %s\n", escape(s.Title), escape(s.Headline))
		}
	}
	for _, s := range p.Sections {
		s.markdown(out, len(p.Sections) > 1)
	}
	return out.Flush()
}

func (s *section) markdown(w io.Writer, several bool) {
	if several {
		fmt.Fprintf(w, "\n## %s\n", escape(s.Title))
	}
	if s.Partial != "" {
		fmt.Fprintf(w, "\n> **Partial:** %s\n", escape(s.Partial))
	}
	for _, note := range s.Notes {
		fmt.Fprintf(w, "\n> **Missing:** %s\n", escape(note))
	}
	if s.Question != "" {
		fmt.Fprintf(w, "\n**Question.** %s\n", escape(s.Question))
	}
	if s.Expectation != "" {
		fmt.Fprintf(w, "\n**Earlier studies.** %s\n", escape(s.Expectation))
	}
	fmt.Fprintf(w, "\n**Finding.** %s\n", escape(s.Headline))
	for _, caution := range s.Cautions {
		fmt.Fprintf(w, "\n> **Caution:** %s\n", escape(caution))
	}
	if len(s.Verdicts) > 0 {
		fmt.Fprintln(w)
		for _, v := range s.Verdicts {
			fmt.Fprintln(w, "- "+v.markdown())
		}
	}
	for _, t := range s.Tables {
		t.markdown(w)
	}
	if s.Rule != "" {
		fmt.Fprintf(w, "\n%s Rows in bold are the best, or not proven to be worse.\n", escape(s.Rule))
	}
	fmt.Fprint(w, "\n| measured | |\n|---|---|\n")
	for _, f := range s.Facts {
		value := escape(f.Value)
		if f.Name == "command" {
			value = code(f.Value)
		}
		fmt.Fprintf(w, "| %s | %s |\n", escape(f.Name), value)
	}
}

func (v *verdict) markdown() string {
	var b strings.Builder
	if v.Workload != "" {
		fmt.Fprintf(&b, "%s: ", escape(v.Workload))
	}
	said := v.Is
	if v.Setting != "" {
		said = strings.TrimSpace("**"+escape(v.Setting)+"** "+v.Is) + ": " + escape(v.Figures)
	}
	b.WriteString(said + ".")
	for _, sentence := range v.Rest {
		b.WriteString(" " + escape(sentence))
	}
	return b.String()
}

func (t *table) markdown(w io.Writer) {
	if t.Caption != "" {
		fmt.Fprintf(w, "\n**%s**\n", escape(t.Caption))
	}
	fmt.Fprint(w, "\n|")
	for _, h := range t.Head {
		fmt.Fprintf(w, " %s |", escape(h))
	}
	fmt.Fprint(w, "\n|---|"+strings.Repeat("---:|", len(t.Head)-1)+"\n")
	for _, r := range t.Rows {
		fmt.Fprint(w, "|")
		for i, c := range r.Cells {
			text := escape(c.Text)
			if r.Best && i == 0 {
				text = "**" + text + "**"
			}
			if c.Spread != "" {
				text += " (" + escape(c.Spread) + ")"
			}
			fmt.Fprintf(w, " %s |", text)
		}
		fmt.Fprintln(w)
	}
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
