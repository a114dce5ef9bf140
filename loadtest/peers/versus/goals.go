package versus

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"spillway/loadtest"
)

// The goals: how much processor time a request may take, as a multiple of a
// peer's.
const mostOfPlain = 1.03

var mostOfBare = map[loadtest.Op]float64{loadtest.Put: 1.15, loadtest.Get: 1.25}

// WriteGoals writes, for each contestant that is neither plain nor bare nor
// another of the peers, whether it reaches the goals under each closed loop. There
// must be at least one round.
func (r *Result) WriteGoals(w io.Writer, peers []string) error {
	plain, bare := slices.Index(r.Contestants, "plain"), slices.Index(r.Contestants, "bare")
	if plain < 0 || bare < 0 {
		return fmt.Errorf("plain and bare must be among the contestants, which are %s", strings.Join(r.Contestants, ", "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| load | | CPU a request | × plain, at most %.2f | | × bare, at most %.2f (PUT), %.2f (GET) | |\n|---|---|---|---|---|---|---|\n",
		mostOfPlain, mostOfBare[loadtest.Put], mostOfBare[loadtest.Get])
	for at, load := range r.Loads {
		if load.Rate > 0 {
			continue
		}
		title := load.String()
		for c, name := range r.Contestants {
			fmt.Fprintf(&b, "| %s | %s | %s |", title, name, cpu.text(r.median(at, c, cpu)))
			title = ""
			for _, goal := range []struct {
				to   int
				most float64
			}{{plain, mostOfPlain}, {bare, mostOfBare[load.Op]}} {
				ratio, ok := r.ratio(at, c, goal.to, cpu)
				switch {
				case !ok || c == goal.to:
					b.WriteString(" – | |")
				case slices.Contains(peers, name):
					fmt.Fprintf(&b, " %s | |", spread(ratio))
				case ratio.Median <= goal.most:
					fmt.Fprintf(&b, " %s | reached |", spread(ratio))
				default:
					fmt.Fprintf(&b, " %s | missed |", spread(ratio))
				}
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
