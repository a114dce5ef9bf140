package sim

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// random are the strategies that draw random numbers of their own.
var random = []string{"sharded"}

// script returns a configuration with a recorded load that overwhelms four
// workers now and then, of clients that wait, that tell their deadline, and that
// go without a word.
func script(strategy string, seed uint64) (Config, []Request) {
	const ms = time.Millisecond
	c := Config{
		Strategy: strategy, Workers: 4, Capacity: 24, Duration: time.Hour, Seed: seed, Service: Exponential(4 * ms), Objective: objective,
		Classes: []Class{
			{Name: "waits", Priority: 2},
			{Name: "tells", Priority: 5, Timeout: 20 * ms, Deadline: true},
			{Name: "tells of little time", Priority: 1, Timeout: 7 * ms, Deadline: true},
			{Name: "goes", Priority: 7, Timeout: 15 * ms},
		},
	}
	drawn := newRandom(seed)
	next := bursts(3000, 50*ms, 50*ms).times(drawn)
	var requests []Request
	for range 1000 {
		class := drawn.IntN(len(c.Classes))
		requests = append(requests, Request{
			At: next(), Service: 1 + time.Duration(drawn.ExpFloat64()*float64(4*ms)), Class: class, Client: c.Classes[class].Name,
		})
	}
	c.Requests = recorded(requests)
	return c, requests
}

// inRealDispatcher does what Run does with a script, with the service's own
// dispatcher, of which the workers sleep. It returns the records, and how many
// tasks were shed for each reason.
func inRealDispatcher(t *testing.T, c Config, requests []Request) (records []Record, shed map[string]int64) {
	shed = map[string]int64{}
	synctest.Test(t, func(t *testing.T) {
		objective := new(strategies.Objective)
		require.NoError(t, objective.Set(c.Objective))
		d, err := dispatch.Open(dispatch.Options{
			Strategy: c.Strategy, Capacity: c.Capacity, Workers: c.Workers, MaxBatch: 1, Objective: objective,
			Run: func(tasks []*dispatch.Task, done func(*dispatch.Task)) {
				time.Sleep(requests[tasks[0].Payload.(int)].Service)
				done(tasks[0])
			},
		})
		require.NoError(t, err)
		defer d.Close()
		type end struct {
			Record
			reason strategies.Reason // the service's, whether or not the client heard of it
		}
		ends := make(chan end, len(requests))
		begun := d.Now()
		for i, r := range requests {
			go func() {
				time.Sleep(r.At)
				class := c.Classes[r.Class]
				task := &dispatch.Task{
					Task:    strategies.Task{Arrival: d.Now(), Priority: strategies.Urgency(int(class.Priority)), Client: r.Client},
					Payload: i,
				}
				if class.Deadline {
					task.Deadline = task.Arrival + int64(class.Timeout)
				}
				done := make(chan struct{})
				task.Done = func(task *dispatch.Task) {
					record := Record{Arrival: r.At, Sent: r.At, Measured: true, Class: r.Class, Client: r.Client, Attempts: 1}
					record.Latency = time.Duration(d.Now()-begun) - r.At
					if task.Shed != strategies.ReasonNone {
						record.Outcome, record.Reason = Refused, task.Shed
					}
					if class.Timeout > 0 && (record.Latency > class.Timeout || task.Shed == strategies.ReasonAbandoned) {
						record.Latency, record.Outcome, record.Reason = class.Timeout, TimedOut, strategies.ReasonNone
					}
					ends <- end{record, task.Shed}
					close(done)
				}
				d.Submit(task)
				if class.Timeout == 0 {
					return
				}
				select {
				case <-done:
				case <-time.After(r.At + class.Timeout - time.Duration(d.Now()-begun)):
					if class.Deadline {
						d.Cancel(task, strategies.ReasonExpired)
					} else {
						d.Cancel(task, strategies.ReasonAbandoned)
					}
				}
			}()
		}
		for range requests {
			e := <-ends
			records = append(records, e.Record)
			if e.reason != strategies.ReasonNone {
				shed[e.reason.String()]++
			}
		}
	})
	return records, shed
}

// The model of the dispatcher and the dispatcher run and shed the same requests
// at the same times.
func TestRun_DoesWhatTheDispatcherDoes(t *testing.T) {
	t.Parallel()
	inOrder := func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Arrival+a.Latency, b.Arrival+b.Latency), cmp.Compare(a.Arrival, b.Arrival))
	}
	for _, strategy := range strategies.Names() {
		if slices.Contains(random, strategy) {
			continue
		}
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3) {
				c, requests := script(strategy, seed)
				c.untold = true // the dispatcher times one use of a task in 16, and each of these is used once
				want, shed := inRealDispatcher(t, c, requests)
				var got []Record
				c.Observe = func(r Record) { got = append(got, r) }
				r, err := measure(c)
				require.NoError(t, err)
				slices.SortFunc(want, inOrder)
				slices.SortFunc(got, inOrder)
				for i := range min(len(want), len(got)) {
					require.Equal(t, want[i], got[i], "seed %d, the %dth end", seed, i)
				}
				require.Len(t, got, len(want))
				require.Equal(t, shed, r.Shed)
			}
		})
	}
}
