package cassandra

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// driverLog takes what the driver has to say to the log of the service: each
// warning once a minute, the rest for those who look for it. Until it is on, it
// says nothing, since a start that fails says one line, which is its error.
type driverLog struct {
	log *slog.Logger
	on  atomic.Bool

	mu struct {
		sync.Mutex
		said map[string]time.Time // when, by the words of a warning; the driver has a few dozen
	}
}

var _ gocql.StructuredLogger = (*driverLog)(nil)

const quiet = time.Minute

// Error is a warning: what it means for the service is told by the operations
// that fail.
func (l *driverLog) Error(msg string, fields ...gocql.LogField) { l.warn(time.Now(), msg, fields) }

// Warning implements gocql.StructuredLogger.
func (l *driverLog) Warning(msg string, fields ...gocql.LogField) { l.warn(time.Now(), msg, fields) }

// Info implements gocql.StructuredLogger.
func (l *driverLog) Info(msg string, fields ...gocql.LogField) {
	if l.on.Load() {
		l.log.Debug("cassandra: "+msg, attributes(fields)...)
	}
}

// Debug implements gocql.StructuredLogger. It is told of every time-out.
func (*driverLog) Debug(string, ...gocql.LogField) {}

func (l *driverLog) warn(now time.Time, msg string, fields []gocql.LogField) {
	if l.on.Load() && l.fresh(now, msg) {
		l.log.Warn("cassandra: "+msg, attributes(fields)...)
	}
}

// fresh reports whether msg has not been said lately, and notes that it is.
func (l *driverLog) fresh(now time.Time, msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.mu.said[msg]; ok && now.Sub(last) < quiet {
		return false
	}
	if l.mu.said == nil {
		l.mu.said = map[string]time.Time{}
	}
	l.mu.said[msg] = now
	return true
}

func attributes(fields []gocql.LogField) []any {
	var all []any
	for _, f := range fields {
		all = append(all, slog.String(f.Name, f.Value.String()))
	}
	return all
}
