// Command loadtest is the load lab: it sends load to the service and measures,
// compares and shows how it is served. See loadtest --help.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/alecthomas/kong"

	"github.com/spillway-go/spillway/internal/version"
	"github.com/spillway-go/spillway/loadtest/scenarios"
	_ "github.com/spillway-go/spillway/strategies/custom"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // also when an assertion fails, or a result is partial
	exitUsage  = 2
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a reader that leaves is an error of writing
	log.SetOutput(io.Discard)      // net/http tells of connections there, which results count
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends what is being done, which still reports; the second
	// ends the process. Some programs send two at once, and mean one.
	context.AfterFunc(ctx, func() {
		time.Sleep(500 * time.Millisecond)
		stop()
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// grammar is the command line.
type grammar struct {
	Progress *bool            `negatable:"" help:"Show progress on stderr; by default if that is a terminal."`
	Version  kong.VersionFlag `help:"Print version, commit and Go version."`

	Run      runCommand      `cmd:"" help:"Send load to a service and measure its answers."`
	Fill     fillCommand     `cmd:"" help:"Fill a store with the keys that run reads."`
	Saturate saturateCommand `cmd:"" help:"Find the highest rate that a service sustains, in a few minutes."`
	Compare  compareCommand  `cmd:"" help:"Run a service under many settings, and tell differences from noise."`
	Simulate simulateCommand `cmd:"" help:"Run the strategies under many settings in virtual time, without a service."`
	Report   reportCommand   `cmd:"" help:"Show results as one HTML file that opens offline."`
}

// session is what every command is given.
type session struct {
	out  io.Writer // results
	err  io.Writer // progress and errors
	live bool      // whether progress is shown
	// command is how it was called, fit for other eyes.
	command string
}

// usageError is about the arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run does what the arguments say and returns the exit code. The end of ctx ends
// it early.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var (
		g = grammar{
			Compare:  compareCommand{comparison: comparison{grid: newGrid("compare")}},
			Simulate: simulateCommand{comparison: comparison{grid: newGrid("simulate")}},
		}
		text    bytes.Buffer
		printed bool
	)
	parser, err := kong.New(&g,
		kong.Name("loadtest"),
		kong.Description("The load lab: learn which queueing strategy serves your load best."),
		kong.Vars{"url": defaultURL, "version": "loadtest " + version.Get().String(), "scenarios": strings.Join(scenarios.Names(), ", ")},
		kong.ExplicitGroups([]kong.Group{{Key: "grid", Title: "All combinations of (with a scenario: instead of its own values)"}}),
		kong.WithHyphenPrefixedParameters(true), // so that -1 is a bad value and not an unknown flag
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 120}),
		kong.Writers(&text, &text),
		kong.Exit(func(int) { printed = true }),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		complain(stderr, err)
		return exitFailed
	}
	command, err := parser.Parse(args)
	if printed {
		_, _ = stdout.Write(text.Bytes())
		return exitOK
	}
	if err != nil {
		complain(stderr, fmt.Errorf("%w (see %s --help)", err, asked(err)))
		return exitUsage
	}
	s := &session{out: stdout, err: stderr, live: isTerminal(stderr), command: commandLine(args)}
	if g.Progress != nil {
		s.live = *g.Progress
	}
	if err := command.Run(s); err != nil {
		complain(stderr, err)
		if _, usage := errors.AsType[usageError](err); usage {
			return exitUsage
		}
		return exitFailed
	}
	return exitOK
}

// asked returns the command that an error of the parser is about.
func asked(err error) string {
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil {
		if node := e.Context.Selected(); node != nil {
			return "loadtest " + node.Name
		}
	}
	return "loadtest"
}

// complain writes the error as one line.
func complain(stderr io.Writer, err error) {
	_, _ = fmt.Fprintln(stderr, "loadtest:", oneLine(err.Error()))
}

// oneLine returns a text, of which parts may come from outside, fit for a line
// on a terminal.
func oneLine(text string) string {
	const longest = 2000
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// secretHeader is the name of a header whose value is not for other eyes.
var secretHeader = regexp.MustCompile(`(?i)(?:\bauthorization|\bcookie|[-\w]*-(?:token|key|secret)):`)

// commandLine returns how the program was called, for a shell, without secrets.
func commandLine(args []string) string {
	const secret = "(secret)"
	words := []string{"loadtest"}
	for i, arg := range args {
		if name, _, ok := strings.Cut(arg, "="); ok && name == "--admin-token" {
			arg = name + "=" + secret
		} else if i > 0 && args[i-1] == "--admin-token" {
			arg = secret
		}
		if at := secretHeader.FindStringIndex(arg); at != nil {
			arg = arg[:at[1]] + " " + secret
		}
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// quoted returns a word as a shell reads it.
func quoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
