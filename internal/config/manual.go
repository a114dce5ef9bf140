package config

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// The shells that completions can be made for.
var shells = []string{"bash", "zsh", "fish"}

// manual returns the manual page, in the language of man(7): what --help says, and the help of
// each command.
func manual(app *kong.Application, version string) string {
	var b bytes.Buffer
	say(&b, ".TH SPILLWAY 1 \"\" %q \"Spillway\"\n.SH NAME\nspillway \\- a durable key-value service, and a proxy, with a queue that can be chosen\n", version)
	say(&b, ".SH SYNOPSIS\n.B spillway\n[\\fICOMMAND\\fR] [\\fIFLAGS\\fR]\n.SH DESCRIPTION\n")
	paragraphs(&b, app.Help)
	say(&b, ".SH COMMANDS\n")
	for _, c := range app.Leaves(true) {
		item(&b, c.Path()+arguments(c), c.Help)
		say(&b, ".RS\n")
		for _, f := range c.Flags {
			item(&b, "--"+f.Name+placeholder(f), helpText(f.Value))
		}
		say(&b, ".RE\n")
	}
	byGroup := grouped(app, "")
	say(&b, ".SH SETTINGS\n")
	for _, g := range groups {
		say(&b, ".SS %s\n", g.title)
		for _, f := range byGroup[g.title] {
			item(&b, "--"+f.Name+placeholder(f), helpText(f.Value))
		}
	}
	say(&b, ".SH FILES\n.TP\n/etc/spillway/spillway.yaml, /etc/spillway/proxy.yaml\nThe configuration of the units spillway and spillway\\-proxy.\n")
	say(&b, ".SH SIGNALS\nSIGTERM and SIGINT drain and stop the service, a second one stops it at once. SIGHUP reads the configuration file again.\n")
	say(&b, ".SH EXIT STATUS\n0 after a stop in order, 2 for a bad setting, 1 for all else.\n")
	return b.String()
}

// item writes a name and its explanation.
func item(w io.Writer, name, help string) {
	say(w, ".TP\n\\fB%s\\fR\n", roff(name))
	paragraphs(w, help)
}

func paragraphs(w io.Writer, text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			say(w, ".PP\n")
		}
		say(w, "%s\n", roff(strings.Join(strings.Fields(paragraph), " ")))
	}
}

// roff escapes what means something to man(7).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// option is a flag of the program, or of some command.
type option struct {
	name, help string
	choices    []string
	path       bool // its value is a file or a folder
	switches   bool // it has no value
}

func options(app *kong.Application) (all []option) {
	for _, node := range append([]*kong.Node{app.Node}, app.Leaves(true)...) {
		for _, f := range node.Flags {
			if slices.ContainsFunc(all, func(o option) bool { return o.name == f.Name }) {
				continue
			}
			o := option{name: f.Name, help: strings.TrimSuffix(strings.SplitN(f.Help, ". ", 2)[0], "."), switches: f.IsBool()}
			if f.Enum != "" {
				o.choices = f.EnumSlice()
			}
			place := placeholder(f)
			o.path = place == "=FILE" || place == "=DIR"
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b option) int { return strings.Compare(a.name, b.name) })
	return all
}

// completion returns what a shell reads to complete commands, flags and their values.
func completion(app *kong.Application, shell string) string {
	var b bytes.Buffer
	flags := options(app)
	var commands []string
	for _, c := range app.Children {
		commands = append(commands, c.Name)
	}
	switch shell {
	case "bash":
		bash(&b, commands, flags)
	case "zsh":
		zsh(&b, app, flags)
	default:
		fish(&b, app, flags)
	}
	return b.String()
}

func bash(w io.Writer, commands []string, flags []option) {
	say(w, `# bash completion for spillway
_spillway() {
    local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} word
    COMPREPLY=()
    # The equals sign is a word of its own.
    [ "$cur" = = ] && cur=
    [ "$flag" = = ] && flag=${COMP_WORDS[COMP_CWORD-2]}
    case $flag in
`)
	for _, f := range flags {
		if len(f.choices) > 0 {
			say(w, "    --%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return;;\n", f.name, strings.Join(f.choices, " "))
		}
	}
	var files, names []string
	for _, f := range flags {
		if f.path {
			files = append(files, "--"+f.name)
		}
		if f.switches {
			names = append(names, "--"+f.name)
		} else {
			names = append(names, "--"+f.name+"=")
		}
	}
	say(w, `    %s) COMPREPLY=($(compgen -f -- "$cur")); return;;
    config) COMPREPLY=($(compgen -W check -- "$cur")); return;;
    completion) COMPREPLY=($(compgen -W '%s' -- "$cur")); return;;
    esac
    case $cur in
    -*) COMPREPLY=($(compgen -W '%s' -- "$cur")); compopt -o nospace 2>/dev/null; return;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in
        %s) COMPREPLY=($(compgen -f -- "$cur")); return;;
        esac
    done
    COMPREPLY=($(compgen -W '%s' -- "$cur"))
}
complete -F _spillway spillway
`, strings.Join(files, "|"), strings.Join(shells, " "), strings.Join(names, " "), strings.Join(commands, "|"), strings.Join(commands, " "))
}

func zsh(w io.Writer, app *kong.Application, flags []option) {
	plain := strings.NewReplacer("'", "", "[", "(", "]", ")", ":", " ").Replace
	say(w, "#compdef spillway\n_arguments \\\n")
	for _, f := range flags {
		switch {
		case f.switches:
			say(w, "  '--%s[%s]' \\\n", f.name, plain(f.help))
		case len(f.choices) > 0:
			say(w, "  '--%s=[%s]:value:(%s)' \\\n", f.name, plain(f.help), strings.Join(f.choices, " "))
		case f.path:
			say(w, "  '--%s=[%s]:file:_files' \\\n", f.name, plain(f.help))
		default:
			say(w, "  '--%s=[%s]:value: ' \\\n", f.name, plain(f.help))
		}
	}
	say(w, "  '1:command:((")
	for _, c := range app.Children {
		say(w, "%s\\:\"%s\" ", c.Name, plain(strings.SplitN(c.Help, ". ", 2)[0]))
	}
	say(w, "))' \\\n  '*:argument:_files'\n")
}

func fish(w io.Writer, app *kong.Application, flags []option) {
	plain := strings.NewReplacer("'", "").Replace
	for _, c := range app.Children {
		say(w, "complete -c spillway -n __fish_use_subcommand -f -a %s -d '%s'\n", c.Name, plain(strings.SplitN(c.Help, ". ", 2)[0]))
	}
	say(w, "complete -c spillway -n '__fish_seen_subcommand_from config' -f -a check\n")
	say(w, "complete -c spillway -n '__fish_seen_subcommand_from completion' -f -a '%s'\n", strings.Join(shells, " "))
	for _, f := range flags {
		how := " -x"
		switch {
		case f.switches:
			how = ""
		case len(f.choices) > 0:
			how = fmt.Sprintf(" -x -a '%s'", strings.Join(f.choices, " "))
		case f.path:
			how = " -r -F"
		}
		say(w, "complete -c spillway -l %s%s -d '%s'\n", f.name, how, plain(f.help))
	}
}
