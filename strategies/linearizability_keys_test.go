package strategies_test

import (
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/spillway-go/spillway/strategies"
)

// The tasks of the histories differ in what disciplines may look at, which
// follows from their numbers.

func classOf(value byte) int    { return int(value % 3) }
func deadlineOf(value byte) int { return int(value % 4) }
func costOf(value byte) int     { return 1 + int(value%4) }
func clientOf(value byte) byte  { return 'a' + value%3 }

// label has t be what its number says.
func label(t *strategies.Task, value byte, costs bool) {
	t.Owner = value
	t.Priority = strategies.Urgency(classOf(value))
	if costs {
		t.Cost = costOf(value)
	}
	t.Deadline = 1<<40 + int64(deadlineOf(value))
	t.Client = string(rune(clientOf(value)))
}

// keyModel is the model of a discipline that serves tasks in the order of a key,
// and holds the first of them: when there is no room, the last makes it. The
// state is the tasks in that order.
func keyModel(key func(value byte) int) func(int) porcupine.Model {
	return func(capacity int) porcupine.Model {
		return porcupine.Model{
			Init: func() any { return "" },
			Step: func(state, _, output any) (bool, any) {
				s, o := state.(contents), output.(op)
				i := strings.IndexByte(s, o.value)
				switch o.kind {
				case opPush:
					want := op{kind: opPush, value: o.value, id: o.id}
					at := 0
					for at < len(s) && key(s[at]) <= key(o.value) {
						at++
					}
					s = s[:at] + string([]byte{o.value}) + s[at:]
					switch {
					case len(s) > capacity && at == capacity:
						want.outcome = strategies.TurnedAway
						s = s[:capacity]
					case len(s) > capacity:
						want.displaced = s[capacity]
						s = s[:capacity]
					}
					return o == want, s
				case opPop:
					return i == 0, strings.TrimPrefix(s, string([]byte{o.value}))
				case opEmpty:
					return s == "", s
				default: // opRemove
					if i >= 0 {
						s = without(s, i)
					}
					return o.removed == (i >= 0), s
				}
			},
		}
	}
}

// sharesState is the state of sharesModel: of each client what it was charged for, and when it was served last or
// began to wait.
type sharesState struct {
	waiting    contents
	time, turn [3]int
	now, turns int
}

// of returns those of a client that wait, in their order.
func (s sharesState) of(client int) (own contents) {
	for i := range s.waiting {
		if int(clientOf(s.waiting[i])-'a') == client {
			own += s.waiting[i : i+1]
		}
	}
	return own
}

// surplus returns which of those that wait is a client's oldest of the least important.
func (s sharesState) surplus(client int) int {
	worst := -1
	for i := range s.waiting {
		if int(clientOf(s.waiting[i])-'a') == client && (worst < 0 || classOf(s.waiting[i]) > classOf(s.waiting[worst])) {
			worst = i
		}
	}
	return worst
}

func (s sharesState) take(value byte) sharesState {
	s.waiting = without(s.waiting, strings.IndexByte(s.waiting, value))
	return s
}

// first returns the client that goes before the others, of those that something waits of.
func (s sharesState) first(before func(a, b int) bool) int {
	first := -1
	for c := range s.time {
		if s.of(c) != "" && (first < 0 || before(c, first)) {
			first = c
		}
	}
	return first
}

// sharesModel is the model of fair where nothing ends, and nobody is late: each task is charged for as one.
func sharesModel(capacity int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return sharesState{} },
		Step: func(state, _, output any) (bool, any) {
			s, o := state.(sharesState), output.(op)
			switch o.kind {
			case opPush:
				want, c := op{kind: opPush, value: o.value, id: o.id}, int(clientOf(o.value)-'a')
				if s.of(c) == "" {
					s.time[c] = max(s.time[c], s.now)
					s.turns++
					s.turn[c] = s.turns
				}
				s.waiting += string([]byte{o.value})
				if len(s.waiting) > capacity {
					worst := s.waiting[s.surplus(s.first(func(a, b int) bool {
						x, y := len(strings.Trim(s.of(a), string([]byte{o.value}))), len(strings.Trim(s.of(b), string([]byte{o.value})))
						return x > y || x == y && (a == c || b != c && s.surplus(a) < s.surplus(b))
					}))]
					want.displaced = worst
					if worst == o.value {
						want.outcome, want.displaced = strategies.TurnedAway, 0
					}
					s = s.take(worst)
				}
				return o == want, s
			case opPop:
				c := s.first(func(a, b int) bool { return s.time[a] < s.time[b] || s.time[a] == s.time[b] && s.turn[a] < s.turn[b] })
				if c < 0 || s.of(c)[0] != o.value {
					return false, s
				}
				s.now = max(s.now, s.time[c])
				s.time[c]++
				s.turns++
				s.turn[c] = s.turns
				return true, s.take(o.value)
			case opEmpty:
				return s.waiting == "", s
			default: // opRemove
				held := strings.IndexByte(s.waiting, o.value) >= 0
				if held {
					s = s.take(o.value)
				}
				return o.removed == held, s
			}
		},
	}
}
