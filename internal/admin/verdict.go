package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/strategies"
)

// recommended is the strategy that the console advises when another one does not
// manage: it needs no setting.
const recommended = "auto"

// situation is what a verdict is given on. Rates are a second, over the last
// seconds; times are in seconds, 0 where nothing was measured.
type situation struct {
	Strategy string
	NotReady string // why, empty if it is
	ReadOnly string // why the store cannot write, empty if it can

	Workers  int  // 0 if the strategy uses none
	Learned  bool // that number is learned
	Busy     int
	Stuck    int  // of Busy: they do not end
	Paused   bool // none is begun but one now and then, as the latest timed out
	Depth    int
	Growth   float64 // of Depth
	Capacity int     // or strategies.Unbounded

	Arrivals, Ran            float64 // tasks
	Good, Late, Failed, Shed float64 // answers
	Unmet                    float64 // answers: a condition of the request's own did not hold
	Reasons                  map[string]float64
	Roomless                 float64 // of Shed, for want of memory for bodies

	Observe   bool    // nothing is shed that the strategy would shed
	WouldShed float64 // that it would have shed

	Proxy bool // the work is done by an upstream

	SLO     float64
	Wait    float64 // median of what was run
	Latency float64 // median of what was served
}

// The levels of a verdict.
const (
	levelOff  = "off"  // nothing to judge
	levelGood = "good" // everybody is served in time
	levelLate = "late" // something is not as it should be, and it is held
	levelBad  = "bad"  // many are not served as they should be
)

// verdict says in words how the service is doing, and what to do.
type verdict struct {
	Level  string `json:"level"`
	Text   string `json:"text"`
	Advice string `json:"advice"`
	Switch string `json:"switch"` // the strategy to offer, empty for none
}

// answered is how many answers there are a second.
func (s *situation) answered() float64 { return s.Good + s.Late + s.Unmet + s.Failed + s.Shed }

// doesNotAnswer is what to say if work does not end.
const doesNotAnswer = "The store does not answer. See it below, and the log."

// few is a share that is no reason to say anything.
const few = 0.01

// judge gives the verdict on a situation.
func judge(s *situation) verdict {
	v := s.judge()
	answered := s.answered()
	if s.Unmet > few*answered && (v.Level == levelGood || v.Level == levelOff) {
		v.Advice = fmt.Sprintf("%s of the answers are 412: the condition of the request (If-Match, If-None-Match) did not hold.", percent(s.Unmet/answered))
	}
	switch {
	case s.unheld() && v.Level != levelOff:
		v.Advice = strings.TrimSpace(v.Advice + " Observe mode holds nobody back while the number is learned, so it cannot tell what SPILLWAY_MODE=enforce would turn away. With a number as SPILLWAY_WORKERS it can.")
	case s.Observe && s.WouldShed > 0 && answered > 0:
		v.Advice = strings.TrimSpace(fmt.Sprintf("%s Observe mode turns nothing away; SPILLWAY_MODE=enforce would turn away %s.", v.Advice, percent(min(1, s.WouldShed/answered))))
	}
	if s.Proxy {
		v.Text, v.Advice = forProxy.Replace(v.Text), forProxy.Replace(v.Advice)
	}
	return v
}

// forProxy speaks of the upstream, where there is no store.
var forProxy = strings.NewReplacer(
	doesNotAnswer, "The upstream does not answer, or clients send or read slowly. See the log.",
	"See the store below. ", "", "See it below, and the log.", "See the log.", "the store", "the upstream", "The store", "The upstream",
)

// unheld reports whether all that arrives is worked on at once, for want of a number.
func (s *situation) unheld() bool { return s.Observe && s.Learned && s.Workers > 0 }

func (s *situation) judge() verdict {
	served := s.Good + s.Late
	answered := s.answered()
	switch {
	case s.NotReady != "" && s.NotReady != s.ReadOnly:
		return verdict{levelBad, "The service is not ready: " + s.NotReady + ".", "Load balancers send it nothing now.", ""}
	case s.ReadOnly != "":
		return verdict{levelBad, "Writes fail, since the store cannot write: " + s.ReadOnly + ".", "Reads go on. Writes go on by themselves once the cause is gone.", ""}
	case answered < 0.5 && s.Arrivals < 0.5 && s.Depth == 0:
		return verdict{levelOff, "Nothing arrives.", "", ""}
	case s.Paused:
		return verdict{levelBad, "Nothing is begun but one request now and then: the latest all timed out.", doesNotAnswer, ""}
	case s.Failed > few*answered:
		return verdict{levelBad, fmt.Sprintf("%s of the answers are errors.", percent(s.Failed/answered)), "The codes below say which: a 4xx is the client's fault, a 5xx the service's.", ""}
	case s.Roomless > few*answered:
		return verdict{levelBad, fmt.Sprintf("%s are turned away: the memory for their bodies is used up.", percent(s.Roomless/answered)), "Raise SPILLWAY_MAX_BODY_BYTES, or let fewer clients send large values at once.", ""}
	case s.Depth > 0 && s.Stuck > s.Busy/2 && (answered == s.Shed || s.overloaded(answered)):
		return verdict{levelBad, fmt.Sprintf("%d of the %d requests that are worked on do not end.", s.Stuck, s.Busy), doesNotAnswer, ""}
	}
	if v, overloaded := s.overload(served, answered); overloaded {
		return v
	}
	late := share(s.Late, served)
	switch {
	case s.Shed > few*answered && s.own() > s.Shed/2:
		return verdict{levelLate, fmt.Sprintf("%s are given up before their turn: their deadlines pass, or their clients hang up.", percent(s.Shed/answered)),
			"The workers are not the limit. The clients' deadlines may be too short.", ""}
	case s.Shed > few*answered:
		return s.advise(verdict{levelLate, fmt.Sprintf("Bursts fill the queue: %s are turned away, though the workers can do the average rate.", percent(s.Shed/answered)),
			"A larger SPILLWAY_QUEUE_CAPACITY takes longer bursts", ""})
	case late > few && s.Wait < s.Latency/2 && s.Workers > 0 && s.Busy == s.Workers && s.Strategy != recommended:
		return s.advise(verdict{levelBad, fmt.Sprintf("%s of the answers are late: the store has more to do at once than it can, and takes %s (median). The objective is %s.", percent(late), span(s.Latency-s.Wait), span(s.SLO)), "", ""})
	case late > few && s.unheld():
		return verdict{levelLate, fmt.Sprintf("%s of the answers are late: the work itself takes %s (median), %d at once now. The objective is %s.", percent(late), span(s.Latency-s.Wait), s.Busy, span(s.SLO)),
			"", ""}
	case late > few && s.Wait < s.Latency/2:
		return verdict{levelLate, fmt.Sprintf("%s of the answers are late, and the queue is not the cause: the work itself takes %s (median). The objective is %s.", percent(late), span(s.Latency-s.Wait), span(s.SLO)),
			"See the store below. No other strategy makes the work faster.", ""}
	case late > few:
		return s.advise(verdict{levelLate, fmt.Sprintf("%s of the answers are late: requests wait %s (median). The objective is %s.", percent(late), span(s.Wait), span(s.SLO)),
			s.unlessLearned("More workers help if the store can do more at once", ""), ""})
	case s.Depth > 0 && s.Busy == s.Workers && s.Workers > 0:
		return verdict{levelGood, fmt.Sprintf("All %d workers are busy, and everybody is served in time: requests wait %s (median).", s.Workers, span(s.Wait)), "", ""}
	default:
		return verdict{levelGood, "Everybody is served in time.", "", ""}
	}
}

// overload judges a situation in which more arrives than is done.
func (s *situation) overload(served, answered float64) (verdict, bool) {
	late := share(s.Late, served)
	if s.Workers == 0 {
		// Nothing waits here: what is too much waits in the store.
		if late < 0.1 {
			return verdict{}, false
		}
		return s.advise(verdict{levelBad, fmt.Sprintf("%s has no queue, so all that arrives is in the store at once. %s of the answers are late.", s.Strategy, percent(late)), "", ""}), true
	}
	if !s.overloaded(answered) {
		return verdict{}, false
	}
	if s.Ran == 0 {
		return verdict{levelBad, fmt.Sprintf("Nothing gets done: %s busy, and none has finished anything of late.", theWorkersAre(s.Workers)), doesNotAnswer, ""}, true
	}
	text := fmt.Sprintf("%s more arrives than %s can do", percent(s.Arrivals/s.Ran-1), plural(s.Workers, "worker"))
	if times := s.Arrivals / s.Ran; times >= 2 {
		text = fmt.Sprintf("%.1f times as much arrives as %s can do", times, plural(s.Workers, "worker"))
	}
	switch {
	case s.Capacity == strategies.Unbounded && s.Growth > 0:
		return s.advise(verdict{levelBad, fmt.Sprintf("%s. %s lets them pile up: %d wait, %.0f more every second.", text, s.Strategy, s.Depth, s.Growth), "", ""}), true
	case late >= 0.9 && s.Latency-s.Wait > s.SLO:
		return verdict{levelBad, fmt.Sprintf("%s, and the work itself takes %s, longer than the objective of %s.", text, span(s.Latency-s.Wait), span(s.SLO)),
			"No strategy helps here: make the store faster, or the objective longer.", ""}, true
	case late >= 0.9:
		return s.advise(verdict{levelBad, fmt.Sprintf("%s; %s makes everybody late: they wait %s (median). The objective is %s.", text, s.Strategy, span(s.Wait), span(s.SLO)), "", ""}), true
	case late > 0.05:
		return s.advise(verdict{levelBad, fmt.Sprintf("%s; of what %s serves, %s is late.", text, s.Strategy, percent(late)), "", ""}), true
	default:
		return verdict{levelLate, fmt.Sprintf("%s. %s turns %s away and serves the others in time.", text, s.Strategy, percent(s.Shed/answered)),
			"It holds. To serve all takes " + s.unlessLearned("more workers, if the store can do more at once, or more machines.", "more machines: how many may run at once is learned."), ""}, true
	}
}

// overloaded reports whether more arrives than the workers, all of which are busy, begin.
func (s *situation) overloaded(answered float64) bool {
	return s.Arrivals >= s.Ran*1.02 && s.Busy >= s.Workers && (s.Shed-s.own() > few*answered || s.Growth >= 0.02*s.Arrivals)
}

// advise offers the recommended strategy, or says what else there is to do.
func (s *situation) advise(v verdict) verdict {
	if s.Strategy != recommended {
		v.Switch = recommended
		if v.Advice != "" {
			v.Advice += "; or switch to " + recommended + "."
		} else {
			v.Advice = "Switch to " + recommended + "."
		}
		return v
	}
	if v.Advice == "" {
		v.Advice = "It learns for a few seconds. If this stays, the store is too slow for the objective"
	}
	v.Advice += "."
	return v
}

// unlessLearned is advice on the number of workers, and what to say where it is learned.
func (s *situation) unlessLearned(advice, otherwise string) string {
	if s.Learned {
		return otherwise
	}
	return advice
}

// own is what was turned away for the client's own sake, whatever the queue.
func (s *situation) own() float64 {
	return s.Reasons[strategies.ReasonExpired.String()] + s.Reasons[strategies.ReasonAbandoned.String()]
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// percent writes a share, never more exactly than it is worth.
func percent(share float64) string {
	switch p := 100 * share; {
	case p > 99.5 && p < 100:
		return "more than 99%"
	case p >= 1:
		return fmt.Sprintf("%.0f%%", p)
	default:
		return "less than 1%"
	}
}

// span writes a time in seconds, with two digits or more.
func span(seconds float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if n := seconds / unit.size; n >= 0.995 {
			digits := max(0, 1-int(math.Log10(n)+0.003))
			return strconv.FormatFloat(n, 'f', digits, 64) + " " + unit.name
		}
	}
	return "no time"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func theWorkersAre(n int) string {
	if n == 1 {
		return "the worker is"
	}
	return fmt.Sprintf("all %d workers are", n)
}
