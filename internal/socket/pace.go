package socket

import "time"

// Whom others wait for has to take, or send, so many bytes a second over slowFor.
const (
	paceBytes = 1 << 10
	slowFor   = 10 * time.Second
)

// Pace is how fast the other side takes, or sends, what others wait for. The zero value is one
// that begins. It belongs to one goroutine.
type Pace struct {
	waited time.Duration // and how many bytes moved, since it was judged
	moved  int
}

// TooSlow notes that n bytes moved after it had been waited for. Once each 10 s of waiting it
// judges, and reports whether that was less than 1 KiB a second.
func (p *Pace) TooSlow(waited time.Duration, n int) bool {
	p.waited += waited
	p.moved += n
	if p.waited < slowFor {
		return false
	}
	slow := p.moved < int(p.waited/time.Second)*paceBytes
	*p = Pace{}
	return slow
}
