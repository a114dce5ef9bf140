package strategies

// StateOf returns the state of auto, by the name that the law gives it.
func StateOf(d Discipline) string {
	q := d.(*auto)
	q.mu.Lock()
	defer q.mu.Unlock()
	return [...]string{"calm", "crowded", "overload", "retry"}[q.mu.state]
}
