package strategies

import "fmt"

// AtRest returns what fair still charges its clients for, or an error if its parts do not agree on that.
func AtRest(d Discipline) error {
	q := d.(*fair)
	q.mu.Lock()
	defer q.mu.Unlock()
	running, charged, runs := 0, 0., 0
	for _, a := range q.mu.accounts {
		if a != nil {
			running += a.running
		}
	}
	for _, r := range q.mu.runs {
		if charged += r.charged; r.account != nil {
			runs++
		}
	}
	if used := len(q.mu.runs) - len(q.mu.unused); q.mu.running != 0 || running != 0 || charged != 0 || runs != 0 || used != 0 || len(q.mu.due.items) != 0 {
		return fmt.Errorf("%d run, %d by account, %d by number, %d used, %d are due, %g ns are charged",
			q.mu.running, running, runs, used, len(q.mu.due.items), charged)
	}
	return nil
}

// StateOf returns the state of auto, by its name in the comment of auto.
func StateOf(d Discipline) string {
	q := d.(*auto)
	q.mu.Lock()
	defer q.mu.Unlock()
	return [...]string{"normal", "congested", "overload", "probing"}[q.mu.state]
}
