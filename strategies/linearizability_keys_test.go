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

// turnsState is the state of turnsModel.
type turnsState struct {
	waiting contents
	turns   string // the clients of what waits, the next first
}

// push adds a task, in which case the client gets a turn if it has none.
func (s turnsState) push(value byte) turnsState {
	s.waiting += string([]byte{value})
	if strings.IndexByte(s.turns, clientOf(value)) < 0 {
		s.turns += string(rune(clientOf(value)))
	}
	return s
}

// take takes the task at that place. Its client loses its turn if that was all.
func (s turnsState) take(i int) turnsState {
	client := clientOf(s.waiting[i])
	s.waiting = without(s.waiting, i)
	if s.oldest(client) < 0 {
		s.turns = strings.ReplaceAll(s.turns, string(rune(client)), "")
	}
	return s
}

// oldest returns the place of the oldest task of a client, or -1.
func (s turnsState) oldest(client byte) int {
	return strings.IndexFunc(s.waiting, func(value rune) bool { return clientOf(byte(value)) == client })
}

// longest returns the client that has to make room for a task.
func (s turnsState) longest(pushed byte) byte {
	most, longest := 0, byte(0)
	for i := range s.waiting {
		client := clientOf(s.waiting[i])
		n := 0
		for j := range s.waiting {
			if clientOf(s.waiting[j]) == client {
				n++
			}
		}
		if n > most || n == most && client == clientOf(pushed) {
			most, longest = n, client
		}
	}
	return longest
}

// turnsModel is the model of fair.
func turnsModel(capacity int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return turnsState{} },
		Step: func(state, _, output any) (bool, any) {
			s, o := state.(turnsState), output.(op)
			switch o.kind {
			case opPush:
				want := op{kind: opPush, value: o.value, id: o.id}
				if len(s.waiting) == capacity {
					i := s.oldest(s.longest(o.value))
					want.displaced = s.waiting[i]
					s = s.take(i)
				}
				return o == want, s.push(o.value)
			case opPop:
				if s.turns == "" || s.waiting[s.oldest(s.turns[0])] != o.value {
					return false, s
				}
				client := s.turns[0]
				s = s.take(s.oldest(client))
				if s.turns != "" && s.turns[0] == client {
					s.turns = s.turns[1:] + s.turns[:1]
				}
				return true, s
			case opEmpty:
				return s.waiting == "", s
			default: // opRemove
				i := strings.IndexByte(s.waiting, o.value)
				if i >= 0 {
					s = s.take(i)
				}
				return o.removed == (i >= 0), s
			}
		},
	}
}
