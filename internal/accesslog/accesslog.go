// Package accesslog writes a line of JSON for each request that was answered. It never makes a
// request wait: see package logging. It holds no value, no token and no query string.
package accesslog

import (
	"encoding/json"
	"io"
	"time"

	"github.com/spillway-go/spillway/internal/logging"
	"github.com/spillway-go/spillway/internal/served"
)

// Log writes lines. All methods are safe for concurrent use.
type Log struct {
	w   *logging.Writer
	all bool
}

// Open returns a log of all requests, or of those whose outcome is not ok.
func Open(to io.Writer, all bool) *Log {
	return &Log{w: logging.Open(to, func(n uint64) error { return report(to, n) }), all: all}
}

// line is what is said of a request. Times are in milliseconds.
type line struct {
	Time     time.Time `json:"time"` // of the answer
	Trace    string    `json:"trace_id,omitempty"`
	Method   string    `json:"method"`
	Path     string    `json:"path,omitempty"`
	Route    string    `json:"route,omitempty"`
	Client   string    `json:"client,omitempty"`
	Priority uint8     `json:"priority"`
	Status   int       `json:"status"`
	Outcome  string    `json:"outcome"`
	Reason   string    `json:"reason,omitempty"` // why it was shed
	Strategy string    `json:"strategy"`
	Work     string    `json:"work,omitempty"` // what it was
	Received float64   `json:"received_ms"`
	Wait     float64   `json:"wait_ms"`
	Worked   float64   `json:"work_ms"`
	Took     float64   `json:"took_ms"` // the sum of these
}

// Add writes the line of a request, or drops it.
func (l *Log) Add(r *served.Request) {
	if !l.all && r.Outcome == served.OK {
		return
	}
	text, err := json.Marshal(line{
		Time: time.Now(), Trace: r.TraceID, Method: r.Method, Path: string(r.Path), Route: r.Route, Client: r.Client, Priority: r.Priority,
		Status: r.Code, Outcome: r.Outcome.String(), Reason: r.Shed, Strategy: r.Strategy, Work: r.Operation,
		Received: ms(r.Received), Wait: ms(r.Waited), Worked: ms(r.Ran), Took: ms(r.Took),
	})
	if err == nil { // which it is: there is nothing that JSON cannot say
		_, _ = l.w.Write(append(text, '\n'))
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Dropped returns how many lines were not written.
func (l *Log) Dropped() uint64 { return l.w.Dropped() }

// Close writes what is left, for so long at the most.
func (l *Log) Close(most time.Duration) { l.w.Close(most) }

// report writes that lines are missing.
func report(to io.Writer, n uint64) error {
	text, err := json.Marshal(struct {
		Time    time.Time `json:"time"`
		Dropped uint64    `json:"dropped"`
	}{time.Now(), n})
	if err == nil {
		_, err = to.Write(append(text, '\n'))
	}
	return err
}
