package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spillway-go/spillway/loadtest/report"
	"github.com/spillway-go/spillway/loadtest/result"
)

type reportCommand struct {
	Paths    []string `arg:"" name:"path" help:"Results: files that run or saturate have written, folders that compare has."`
	Output   string   `short:"o" default:"report.html" placeholder:"FILE" help:"The HTML file to write, or - for stdout; default ${default}."`
	Markdown string   `placeholder:"FILE" help:"Write a summary in Markdown as well, or - for stdout."`
}

// Run writes the report.
func (c *reportCommand) Run(s *session) error {
	if err := errors.Join(checkOutput("-o", c.Output), checkOutput("--markdown", c.Markdown)); err != nil {
		return err
	}
	outputs := []string{c.Output, c.Markdown}
	for i, output := range outputs {
		for _, other := range append(outputs[i+1:], c.Paths...) {
			if same(output, other) {
				return usageError{fmt.Errorf("%s would be written over", other)}
			}
		}
	}
	input, err := report.Load(c.Paths...)
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("%s: %w", cause.Path, cause.Err)
	}
	if err != nil {
		return usageError{err}
	}
	return s.render(input, c.Output, c.Markdown)
}

// same tells whether two paths name one file, be it there or not.
func same(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	first, err := os.Stat(a)
	second, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(first, second)
}

// stdout is the name of the standard output.
const stdout = "-"

// render writes a report as HTML, and as Markdown if it is named.
func (s *session) render(input *report.Input, html, markdown string) error {
	write := func(path string, render func(io.Writer, *report.Input) error) error {
		if path == "" {
			return nil
		}
		if path == stdout {
			return render(s.out, input)
		}
		err := result.WriteFile(path, func(w io.Writer) error { return render(w, input) })
		if err == nil && html != stdout && markdown != stdout {
			_, _ = fmt.Fprintln(s.out, "wrote", path)
		}
		return err
	}
	if err := write(html, report.HTML); err != nil {
		return err
	}
	return write(markdown, report.Markdown)
}
