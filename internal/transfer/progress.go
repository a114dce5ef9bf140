package transfer

import (
	"fmt"
	"strings"
	"time"
)

// Progress is how far a pass is.
type Progress struct {
	Verifying bool
	Position
	// PerSecond and BytesPerSecond are of the time since the report before.
	PerSecond, BytesPerSecond float64
	// Share is the estimated share of the source that is done, from 0 to 1, and Left
	// how long the rest will take; both are negative if nobody knows.
	Share float64
	Left  time.Duration
	// Retries is how often an operation has been tried again by this run, and Trouble
	// why the latest was, nil if none was since the report before.
	Retries int64
	Trouble error
}

// String is one line for people.
func (p Progress) String() string {
	var b strings.Builder
	done := "copied"
	if p.Verifying {
		done = "verified"
	}
	fmt.Fprintf(&b, "%s %d keys, %s, at %.0f keys and %s a second", done, p.Keys, size(float64(p.Bytes)), p.PerSecond, size(p.BytesPerSecond))
	if p.Share >= 0 {
		fmt.Fprintf(&b, ", about %.0f%%", 100*p.Share)
	}
	if p.Left >= 0 {
		fmt.Fprintf(&b, ", %v left", p.Left.Round(time.Second))
	}
	if p.Different > 0 {
		fmt.Fprintf(&b, ", %d different", p.Different)
	}
	if p.Trouble != nil {
		fmt.Fprintf(&b, "; trying again (%d times so far): %s", p.Retries, strings.Join(strings.Fields(p.Trouble.Error()), " "))
	}
	return b.String()
}

// size says how much a number of bytes is.
func size(bytes float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if bytes < 1000 {
			if unit == "B" {
				return fmt.Sprintf("%.0f B", bytes)
			}
			return fmt.Sprintf("%.1f %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.1f TB", bytes)
}

// meter makes the reports of a pass.
type meter struct {
	run   *run
	began time.Time
	share float64 // where the pass has begun, negative if unknown

	last    Position
	at      time.Time // of last
	retries int64
}

func (r *run) newMeter(from Position) *meter {
	now := time.Now()
	return &meter{run: r, began: now, share: r.shareOf(&from), last: from, at: now, retries: r.retries.Load()}
}

// shareOf returns the share of the source that is done, negative if unknown.
func (r *run) shareOf(p *Position) float64 {
	if p.Keys == 0 {
		return 0
	}
	if share, known := r.Source.Share(p.After); known {
		return share
	}
	return -1
}

func (m *meter) progress(at Position) Progress {
	now := time.Now()
	p := Progress{Verifying: m.run.state.Verifying, Position: at, Share: m.run.shareOf(&at), Left: -1, Retries: m.run.retries.Load()}
	if seconds := now.Sub(m.at).Seconds(); seconds > 0 {
		p.PerSecond = float64(at.Keys-m.last.Keys) / seconds
		p.BytesPerSecond = float64(at.Bytes-m.last.Bytes) / seconds
	}
	if m.share >= 0 && p.Share > m.share {
		p.Left = time.Duration(float64(now.Sub(m.began)) * (1 - p.Share) / (p.Share - m.share))
	}
	if p.Retries > m.retries {
		p.Trouble = *m.run.trouble.Load()
	}
	m.last, m.at, m.retries = at, now, p.Retries
	return p
}
