package admin

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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

	Split bool // reads and writes have queues of their own

	Arrivals, Ran            float64 // tasks
	Good, Late, Failed, Shed float64 // answers
	Unmet                    float64 // answers: a condition of the request's own did not hold
	Reasons                  map[string]float64
	Roomless                 float64 // of Shed, for want of memory for bodies
	Cut                      float64 // of Failed, those whose client had left
	Left                     float64 // all whose client had left before
	Patience                 float64 // median of how long those had waited
	Wrong                    float64 // the share of those refused as late that would have been in time

	Observe   bool    // nothing is shed that the strategy would shed
	WouldShed float64 // that it would have shed

	Proxy bool // the work is done by an upstream

	// Settling says that what the figures are of began only now: with Switched a strategy or
	// an objective, otherwise the process.
	Settling, Switched bool
	// Fallen says that far less arrives now than when the figures were made, and nothing waits.
	Fallen bool

	SLO     float64 // the objective in force, 0 for none
	Usual   float64 // the usual time that work took when nothing waited, however long ago
	Wait    float64 // median of what was run
	Latency float64 // median of what was served
	CPU     float64 // the share of the CPUs in use
}

const (
	// settling is how long figures are too young to be judged.
	settling = 5 * time.Second
	// spread is how far off the usual time may be, which is learned. Work that takes no longer than so
	// many times that may be as fast as ever.
	spread = 2
	// fewWrong are too few wrong refusals to say which share is wrong.
	fewWrong = 5
)

// work is how long the work itself takes.
func (s *situation) work() float64 { return s.Latency - s.Wait }

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
	if s.Observe && s.WouldShed > 0 && answered > 0 {
		v.Advice = strings.TrimSpace(fmt.Sprintf("%s Observe mode turns nothing away; the mode enforce would turn away up to %s.", v.Advice, percent(min(1, s.WouldShed/answered))))
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
	answered := s.answered()
	switch failed := max(0, s.Failed-s.Cut); {
	case s.NotReady != "" && s.NotReady != s.ReadOnly:
		return verdict{levelBad, "The service is not ready: " + s.NotReady + ".", "Load balancers send it nothing now.", ""}
	case s.ReadOnly != "":
		return verdict{levelBad, "Writes fail, since the store cannot write: " + s.ReadOnly + ".", "Reads go on. Writes go on by themselves once the cause is gone.", ""}
	case answered < 0.5 && s.Arrivals < 0.5 && s.Depth == 0:
		return verdict{levelOff, "Nothing arrives.", "", ""}
	case s.Paused:
		return verdict{levelBad, "Nothing is begun but one request now and then: the latest all timed out.", doesNotAnswer, ""}
	case failed > few*answered:
		return verdict{levelBad, fmt.Sprintf("%s of the answers are errors.", percent(failed/answered)), "The codes below say which: a 4xx is the client's fault, a 5xx the service's.", ""}
	case s.Roomless > few*answered:
		return verdict{levelBad, fmt.Sprintf("%s are turned away: the memory for their bodies is used up.", percent(s.Roomless/answered)), "Raise SPILLWAY_MAX_BODY_BYTES, or let fewer clients send large values at once.", ""}
	case s.Depth > 0 && s.Stuck > s.Busy/2 && (answered == s.Shed || s.overloaded(answered)):
		return verdict{levelBad, fmt.Sprintf("%d of the %d requests that are worked on do not end.", s.Stuck, s.Busy), doesNotAnswer, ""}
	}
	v := s.ofQueue(answered)
	switch {
	case v.Level == levelGood:
		return v
	case s.Fallen:
		return verdict{levelOff, "The load has just ended, or fallen: it is too early to judge.", "", ""}
	case !s.Settling:
		return v
	case s.Switched:
		return verdict{levelOff, "The strategy or the objective has just been changed: it is too early to judge.", "", ""}
	default:
		return verdict{levelOff, "The service has just started: it is too early to judge.", "", ""}
	}
}

// ofQueue judges how long requests wait, and what is turned away.
func (s *situation) ofQueue(answered float64) verdict {
	served := s.Good + s.Late
	late, refused := share(s.Late, served), s.Reasons[strategies.ReasonLate.String()]
	if v, impatient := s.impatient(answered); impatient {
		return v
	}
	if refused > few*answered && s.Wrong > 0.5 {
		return verdict{levelLate, fmt.Sprintf("%s turns %s away as late, and about %s of these would have been in time.", s.Strategy, percent(refused/answered), percent(s.Wrong)),
			"It takes the store for slower than it is. Raise the objective (SPILLWAY_SLO), or set the mode to observe for a while.", ""}
	}
	if v, overloaded := s.overload(served, answered); overloaded {
		return v
	}
	switch {
	case s.Shed > few*answered && s.own() > s.Shed/2 && s.Workers > 0 && s.Busy >= s.Workers && s.SLO > 0 && s.Patience > s.SLO:
		return s.advise(verdict{levelBad, fmt.Sprintf("More wait than %s can answer within the objective of %s: %s leave before their turn, after %s (median).", plural(s.Workers, "worker"), span(s.SLO), percent(s.Shed/answered), span(s.Patience)),
			s.unlessLearned(s.moreWorkers(), ""), ""})
	case s.Shed > few*answered && s.own() > s.Shed/2:
		return verdict{levelLate, fmt.Sprintf("%s are given up before their turn: their deadlines pass, or their clients hang up.", percent(s.Shed/answered)),
			"The workers are not the limit. The clients' deadlines may be too short.", ""}
	case s.Shed > few*answered && refused > s.Shed/2:
		return verdict{levelLate, fmt.Sprintf("Bursts come: %s are refused, as they would be late, though the workers can do the average rate.", percent(s.Shed/answered)),
			"A longer objective (SPILLWAY_SLO) takes longer bursts.", ""}
	case s.Shed > few*answered:
		return s.advise(verdict{levelLate, fmt.Sprintf("Bursts fill the queue: %s are turned away, though the workers can do the average rate.", percent(s.Shed/answered)),
			"A larger SPILLWAY_QUEUE_CAPACITY takes longer bursts", ""})
	case late > few && s.Wait < s.Latency/2 && s.Workers > 0 && s.Busy == s.Workers && s.Strategy != recommended:
		return s.advise(verdict{levelBad, fmt.Sprintf("%s of the answers are late: the store has more to do at once than it can, and takes %s (median). The objective is %s.", percent(late), span(s.work()), span(s.SLO)), "", ""})
	case late > few && s.unheld():
		return verdict{levelLate, fmt.Sprintf("%s of the answers are late: the work itself takes %s (median), %d at once now. The objective is %s.", percent(late), span(s.work()), s.Busy, span(s.SLO)),
			"", ""}
	case late > few && s.work() > s.SLO:
		return verdict{levelLate, fmt.Sprintf("%s of the answers are late: the work itself takes %s (median), longer than the objective of %s.", percent(late), span(s.work()), span(s.SLO)), s.tooShort(), ""}
	case late > few && s.Wait < s.Latency/2:
		return verdict{levelLate, fmt.Sprintf("%s of the answers are late, and the queue is not the cause: the work itself takes %s (median). The objective is %s.", percent(late), span(s.work()), span(s.SLO)),
			"See the store below. No other strategy makes the work faster.", ""}
	case late > few:
		return s.advise(verdict{levelLate, fmt.Sprintf("%s of the answers are late: requests wait %s (median). The objective is %s.", percent(late), span(s.Wait), span(s.SLO)),
			s.unlessLearned(s.moreWorkers(), ""), ""})
	case s.Left > few*answered:
		return verdict{levelLate, fmt.Sprintf("%s of the clients leave before they have their answer, after %s (median).", percent(s.Left/answered), span(s.Patience)),
			"See the slowest requests, if they do not mean to.", ""}
	case s.Depth > 0 && s.Busy == s.Workers && s.Workers > 0:
		return verdict{levelGood, fmt.Sprintf("All %d workers are busy, and everybody is served in time: requests wait %s (median).", s.Workers, span(s.Wait)), "", ""}
	default:
		return verdict{levelGood, "Everybody is served in time.", "", ""}
	}
}

// impatient judges clients that leave before the objective has passed.
func (s *situation) impatient(answered float64) (verdict, bool) {
	waited := s.Reasons[strategies.ReasonAbandoned.String()] > 0 || s.Wait > few*s.Patience || s.work() >= s.Patience
	if s.Left <= few*answered || s.Patience == 0 || s.SLO > 0 && s.Patience >= s.SLO || !waited {
		return verdict{}, false
	}
	v := verdict{levelBad, fmt.Sprintf("%s of the clients leave before they have their answer, after %s (median).", percent(s.Left/answered), span(s.Patience)), "", ""}
	if s.SLO > 0 {
		v.Text = fmt.Sprintf("%s of the clients leave after %s (median), before the objective of %s.", percent(s.Left/answered), span(s.Patience), span(s.SLO))
	}
	// What runs may wait in an upstream too: the work is as long as it takes alone, if that is known and
	// it does not take less now.
	alone, of := s.work(), "(median)"
	if s.Usual > 0 && (s.Latency == 0 || s.Usual < alone) {
		alone, of = s.Usual, "when nothing waits (usually)"
	}
	if alone >= s.Patience {
		v.Advice = fmt.Sprintf("The work itself takes longer than they wait: %s %s. Make the store faster.", span(alone), of)
		return v, true
	}
	v.Advice = "What is done for them is in vain. Set the objective below their patience: SPILLWAY_SLO of about " + span(0.8*s.Patience)
	if s.Strategy != recommended {
		v.Advice += ", and switch to " + recommended
		v.Switch = recommended
	}
	v.Advice += "."
	return v, true
}

// tooShort is advice where the work alone takes longer than the objective.
func (s *situation) tooShort() string {
	return fmt.Sprintf("No strategy helps: then one request for each worker waits. Raise the objective above that (SPILLWAY_SLO of %s), or make the store faster.", span(2*s.work()))
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
	case s.SLO == 0 && s.Growth > 0:
		return verdict{levelBad, fmt.Sprintf("%s, and with no objective nobody is late: %d wait, %.0f more every second.", text, s.Depth, s.Growth),
			"An objective (SPILLWAY_SLO) has those refused that would be later.", ""}, true
	case late >= 0.9 && s.work() > s.SLO:
		return verdict{levelBad, fmt.Sprintf("%s, and the work itself takes %s, longer than the objective of %s.", text, span(s.work()), span(s.SLO)), s.tooShort(), ""}, true
	case late >= 0.9:
		return s.advise(verdict{levelBad, fmt.Sprintf("%s; %s makes everybody late: they wait %s (median). The objective is %s.", text, s.Strategy, span(s.Wait), span(s.SLO)), s.more(), ""}), true
	case late > 0.05:
		return s.advise(verdict{levelBad, fmt.Sprintf("%s; of what %s serves, %s is late.", text, s.Strategy, percent(late)), s.more(), ""}), true
	}
	holds := "It holds."
	if s.Reasons[strategies.ReasonLate.String()] > s.Shed/2 {
		holds = "It is right to: those would have been late."
	}
	to := "To serve all takes more machines: how many may run at once is learned."
	if !s.Learned {
		to = "To serve all takes more workers, if the store can do more at once, or more machines."
		if more := s.more(); more != "" {
			to = "To serve all, " + more + "."
		} else if s.CPU > 0.85 {
			to = "To serve all takes more CPUs, or more machines."
		}
	}
	return verdict{levelLate, fmt.Sprintf("%s. %s turns %s away and serves the others in time.", text, s.Strategy, percent(s.Shed/answered)), holds + " " + to, ""}, true
}

// more is advice to have more workers, if it shows that the store can do more at once than
// there are: it takes no longer than with few requests, and there is CPU left.
func (s *situation) more() string {
	if s.Learned || s.Usual == 0 || s.work() > 1.5*s.Usual || s.CPU > 0.85 {
		return ""
	}
	return "raise SPILLWAY_WORKERS, as the store takes no longer now than when it is idle"
}

// moreWorkers is advice on their number where requests wait.
func (s *situation) moreWorkers() string {
	switch more := s.more(); {
	case more != "":
		return more
	case s.CPU > 0.85:
		return "The CPUs are busy: it takes more of them, or another machine"
	case s.Usual > 0 && s.work() > spread*s.Usual:
		return "More workers do not help: the store takes " + span(s.work()) + ", and " + span(s.Usual) + " when it is idle"
	default:
		return "More workers help if the store can do more at once"
	}
}

// fallen reports whether far less arrived in the last second than lately, and nothing waits. Of
// fewer than 20 requests a second chance may leave a second empty.
func fallen(last, lately *period, depth int) bool {
	arrivals := share(lately.arrivals, lately.seconds)
	return depth == 0 && arrivals >= 20 && share(last.arrivals, last.seconds) < arrivals/4
}

// overloaded reports whether more arrives than the workers, all of which are busy, begin. A number
// that is learned may have just grown while requests wait.
func (s *situation) overloaded(answered float64) bool {
	busy := s.Busy >= s.Workers || s.Learned && s.Depth > 0
	return busy && s.Arrivals >= s.Ran*1.02 && (s.Shed-s.own() > few*answered || s.Growth >= 0.02*s.Arrivals)
}

// inOrder are the strategies that serve the oldest first, so that everybody waits for as
// long as a full queue takes.
var inOrder = []string{"codel", "drop-oldest", "fifo", "mpmc", "sharded"}

// shorter is advice to let fewer wait: as many as are done within the objective.
func (s *situation) shorter() string {
	n := (s.SLO - s.work()) * s.Ran
	if s.Late <= few*s.Good || s.Split || s.Capacity == strategies.Unbounded || n < 1 || n > 0.9*float64(s.Capacity) || s.Wait < s.Latency/2 || !slices.Contains(inOrder, s.Strategy) {
		return ""
	}
	if unit := math.Pow(10, math.Floor(math.Log10(n))-1); unit > 1 {
		n = math.Floor(n/unit) * unit
	}
	return fmt.Sprintf("let fewer wait: SPILLWAY_QUEUE_CAPACITY of about %.0f, which is what is done within the objective", math.Floor(n))
}

// advise offers the recommended strategy, or says what else there is to do.
func (s *situation) advise(v verdict) verdict {
	choices := []string{v.Advice}
	switch {
	case s.Strategy != recommended:
		v.Switch = recommended
		choices = append(choices, "switch to "+recommended, s.shorter())
	case v.Advice == "" && !s.Observe:
		choices = append(choices, "if this stays, raise the objective (SPILLWAY_SLO), or make the store faster")
	}
	choices = slices.DeleteFunc(choices, func(c string) bool { return c == "" })
	if v.Advice = strings.Join(choices, "; or "); v.Advice != "" {
		v.Advice = strings.ToUpper(v.Advice[:1]) + v.Advice[1:] + "."
	}
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
