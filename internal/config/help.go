package config

import (
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/spillway-go/spillway/strategies"
)

// groups are the headings of the help, each with patterns of its flags.
var groups = []struct {
	title string
	flags []string
}{
	{"Queue", []string{"strategy", "fair-weights", "mode", "workers", "pools", "queue-capacity", "slo"}},
	{"Addresses", []string{"listen", "admin-listen", "accept-loops"}},
	{"Store", []string{"store", "data-dir", "sync", "cache-bytes"}},
	{"Who may use it", []string{"*-token", "*-token-file", "tls-*", "allowed-hosts", "cors-origins", "trust-*"}},
	{"Limits", []string{"max-*", "admin-max-connections", "*-timeout"}},
	{"Stopping", []string{"drain-delay", "drain-timeout"}},
	{"Cassandra", []string{"cassandra-*"}},
	{"Log", []string{"log-*", "access-log"}},
	{"Configuration", []string{"config"}},
	{"For the lab", []string{"store-*"}},
}

// groupsOf are the headings that matter to a command; to one that is not here, all do.
var groupsOf = map[string][]string{
	"healthcheck": {"Addresses", "Who may use it"},
	"backup":      {"Addresses", "Who may use it"},
	"restore":     {"Store"},
	"check":       {"Store"},
	"copy":        {"Queue", "Cassandra", "Log"},

	"config": {}, "config check": {}, "completion": {}, "man": {},
}

// proxySettings are those settings of Config, and files of tokens, that the proxy reads.
var proxySettings = []string{
	"config", "strategy", "fair-weights", "mode", "workers", "queue-capacity", "slo",
	"listen", "admin-listen", "admin-token", "admin-token-file", "tls-cert", "tls-key",
	"accept-loops", "max-body-bytes", "max-connections", "admin-max-connections", "read-timeout", "write-timeout", "idle-timeout",
	"drain-delay", "drain-timeout", "access-log", "log-level", "log-format",
}

// reads reports whether a command has a use for a setting of Config.
func reads(command, setting string) bool {
	return command != proxyCommand || slices.Contains(proxySettings, setting)
}

// otherFlags is the heading of flags without a group.
const otherFlags = "Others"

// group returns the heading of a flag: that of the longest pattern that fits.
func group(flag string) string {
	title, longest := otherFlags, ""
	for _, g := range groups {
		for _, pattern := range g.flags {
			if fits, _ := path.Match(pattern, flag); fits && len(pattern) > len(longest) {
				title, longest = g.title, pattern
			}
		}
	}
	return title
}

// grouped returns the settings that a command reads, or any if it is "", by their headings.
func grouped(app *kong.Application, command string) map[string][]*kong.Flag {
	by := map[string][]*kong.Flag{}
	for _, f := range app.Flags {
		if isSetting(f.Value) && reads(command, f.Name) {
			by[group(f.Name)] = append(by[group(f.Name)], f)
		}
	}
	return by
}

// helpWidth is how many columns the help takes, as a terminal has.
const helpWidth = 80

// printHelp writes the help of the program, or of the command that was chosen:
// what is its own comes first.
func printHelp(_ kong.HelpOptions, ctx *kong.Context) error {
	w, command := ctx.Stdout, ctx.Selected()
	if command == nil {
		say(w, "Usage: spillway [COMMAND] [FLAGS]\n\n")
		say(w, "%s\n", wrap(ctx.Model.Help, 0))
		say(w, "\nCommands\n")
		for _, c := range ctx.Model.Leaves(true) {
			entry(w, c.Path()+arguments(c), c.Help)
		}
		say(w, "\nStrategies\n")
		for _, name := range strategies.Names() {
			if spec, err := strategies.Lookup(name); err == nil {
				entry(w, name, spec.Summary)
			}
		}
	} else {
		say(w, "Usage: spillway %s%s [FLAGS]\n\n%s\n", command.Path(), arguments(command), wrap(command.Help, 0))
		if len(command.Positional) > 0 {
			say(w, "\nArguments\n")
			for _, p := range command.Positional {
				entry(w, strings.ToUpper(p.Name), p.Help)
			}
		}
		if len(command.Flags) > 0 {
			say(w, "\nFlags of %s\n", command.Name)
			for _, f := range command.Flags {
				entry(w, "--"+f.Name+placeholder(f), helpText(f.Value))
			}
		}
	}
	reader := ""
	if command != nil {
		reader = command.Name
	}
	byGroup := grouped(ctx.Model, reader)
	for _, g := range append(groups, struct {
		title string
		flags []string
	}{title: otherFlags}) {
		if command != nil {
			if some, known := groupsOf[command.Path()]; known && !slices.Contains(some, g.title) {
				continue
			}
		}
		if len(byGroup[g.title]) > 0 {
			say(w, "\n%s\n", g.title)
		}
		for _, f := range byGroup[g.title] {
			if command != nil && command.Name == proxyCommand && f.Name == "workers" {
				f.Default = "auto"
			}
			entry(w, "--"+f.Name+placeholder(f), helpText(f.Value))
		}
	}
	say(w, "\n")
	entry(w, "-h, --help", "Print this help, or that of the command.")
	for _, f := range ctx.Model.Flags {
		if f.Name == "version" {
			entry(w, "--version", f.Help)
		}
	}
	return nil
}

func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// nameColumns is how wide names are beside which their explanation begins.
const nameColumns = 20

// entry writes a name and its explanation, beside it or below.
func entry(w io.Writer, name, help string) {
	text := wrap(help, nameColumns)
	if utf8.RuneCountInString(name) > nameColumns-4 {
		say(w, "  %s\n%s%s\n", name, strings.Repeat(" ", nameColumns), text)
		return
	}
	say(w, "  %-*s%s\n", nameColumns-2, name, text)
}

// wrap breaks a text into lines that fit beside so many columns, with which all
// but the first begin. It keeps empty lines.
func wrap(text string, indent int) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString("\n\n")
		}
		column := indent
		for j, word := range strings.Fields(paragraph) {
			n := utf8.RuneCountInString(word)
			switch {
			case j == 0:
			case column+1+n > helpWidth:
				b.WriteString("\n" + strings.Repeat(" ", indent))
				column = indent
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += n
		}
	}
	return b.String()
}

// arguments returns what follows a command, each with a space before it.
func arguments(command *kong.Node) (text string) {
	for _, p := range command.Positional {
		if name := strings.ToUpper(p.Name); p.Required {
			text += " " + name
		} else {
			text += " [" + name + "]"
		}
	}
	for _, f := range command.Flags {
		if f.Required {
			text += " --" + f.Name + placeholder(f)
		}
	}
	return text
}

// placeholder returns what stands for the value of a flag, with its "=".
func placeholder(f *kong.Flag) string {
	switch {
	case f.PlaceHolder != "":
		return "=" + f.PlaceHolder
	case f.IsBool():
		return ""
	case f.Enum == "false,true":
		return "=BOOL"
	case f.Tag.Type == "size":
		return "=BYTES"
	case f.Tag.Type == "address":
		return "=HOST:PORT"
	case f.Target.Type() == reflect.TypeFor[time.Duration]():
		return "=DURATION"
	case f.Target.CanInt():
		return "=N"
	case strings.HasSuffix(f.Name, "-file"), strings.HasPrefix(f.Name, "tls-"), f.Name == "state", f.Name == configFile:
		return "=FILE"
	case f.Name == "data-dir":
		return "=DIR"
	default:
		return "=" + strings.ToUpper(f.Name[strings.LastIndexByte(f.Name, '-')+1:])
	}
}

// mistake says in one line what is wrong with the arguments, and where help is.
func mistake(err error, in []string) string {
	line := strings.Join(strings.Fields(err.Error()), " ")
	help := "spillway --help"
	wrong, ok := err.(*kong.ParseError) //nolint:errorlint // the parser returns it itself
	if !ok {
		return fmt.Sprintf("%s (see %s)", line, help)
	}
	// The default command has been chosen where none was named.
	if c := wrong.Context.Selected(); c != nil && slices.Contains(in, c.Name) {
		help = "spillway " + c.Path() + " --help"
		if missing, found := strings.CutPrefix(line, `expected "<`); found {
			name, _, _ := strings.Cut(missing, ">")
			line = fmt.Sprintf("%s wants %s: spillway %s%s", c.Name, strings.ToUpper(name), c.Path(), arguments(c))
		}
	} else if word, found := strings.CutPrefix(line, "unexpected argument "); found {
		var commands []string
		for _, c := range wrong.Context.Model.Children {
			commands = append(commands, c.Name)
		}
		line = fmt.Sprintf("there is no command %.40q, want one of %s", word, strings.Join(commands, ", "))
		if near := nearest(word, commands); near != "" {
			line = fmt.Sprintf("there is no command %.40q, did you mean %s?", word, near)
		}
	}
	return fmt.Sprintf("%s (see %s)", line, help)
}

// nearest returns the name that a word is at most two slips away from, or "".
func nearest(word string, names []string) (name string) {
	least := 3
	for _, n := range names {
		if d := slips(word, n); d < least && d < len(n) {
			least, name = d, n
		}
	}
	return name
}

// slips returns how many letters have to be put in, left out or changed to get
// from one word to another (Levenshtein's distance).
func slips(from, to string) int {
	if len(from) > 40 {
		return len(from)
	}
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(from) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(to) {
			change := diagonal
			if from[i] != to[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(to)]
}
