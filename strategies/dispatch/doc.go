// Package dispatch puts a queue discipline of package strategies, which can be exchanged while it runs, before workers or
// places, whose number can be given or learned. It does not know what a task does.
//
// A backlog is what waits: the active discipline, FIFO lines of tasks that were popped and not yet begun, and the limit of
// tasks that may run at once. A backlog has no goroutines. It is served by workers, goroutines that run tasks for a
// Dispatcher, or by places, which callers of Acquire hold while they run their tasks themselves. Workers and places know
// nothing of each other. Places are of one resource or of several, each with a limit of its own.
//
// # Designs not taken
//
// Workers that receive from one Go channel: that is always first-in first-out. Workers that spin on a lock-free queue: an
// idle service burns its CPUs. A condition variable beside the queue: every push takes its lock, even while all workers are
// busy. So each worker parks on a channel of its own, and a stack of the parked ones, the most recently parked first because
// its caches are the warmest, shows a submitter whom to wake. While all are busy, that costs one load of a counter.
//
// # Hand-overs
//
// Each hand-over has two sides. Each side first publishes what the other looks for, and then looks for what the other
// publishes. Both steps are atomic operations, which are sequentially consistent in Go, or are under one lock. So at
// least one side sees the other, and nothing waits that nobody will look at. In the first row a submitter pushes, and
// then loads idle.n; a worker that parks enters the stack, and then pops. So the submitter wakes it, or it finds the task.
//
//	hand-over              one side: publishes; then looks at            other side: publishes; then looks at
//	submit, park           submitter: Push; idle.n                       worker: idle.push; Pop
//	submit, start          submitter: Push; count < width                limit: width; ready
//	submit, leave          submitter: Push; count < width                worker: count-1; ready
//	submit, free           submitter: Push; free                         who gives back: free+n; waiting
//	writing                submitter: Push, unwoken; gate                worker that scans: writing-1; unwoken
//	linger                 submitter: Push; lingering                    worker: lingering-1; Pop
//	unblock                submitter: Push; Blocked                      Unblock: Blocked is false; ready
//	reads                  pusher: reads+1; (Push)                       popper: (Pop); reads-1
//	switch                 submitter: Push; active                       switch: active; Pop
//	drain                  submitter: Push; refusing                     drain: refusing; Pop
//	drain                  who puts aside: under mu, refusing; push      drain: refusing; under mu, empties the lines
//	cancel                 who moves a task: under mu, from a to b       Cancel: under mu, looks into a and b
//	stuck                  task: notes found; in use                     limit: found+1; counts what is in use; found+1
//
// Names are those of fields and methods; +1 and -1 are atomic, mu is backlog.mu, and ready is whether a worker could run
// something. If Pop answers Contended, some Push has not returned. Its submitter loads idle.n after that, hence after the
// worker that popped has entered the stack, and wakes it. A worker that is woken and finds several tasks wakes another.
// A worker on the stack that finds a task itself, while it is handed one, puts the latter ahead of the queue.
//
// # Workers
//
// Inline execution. Most of what a queue costs is to wake a worker and be woken by it. So a submitter with Task.InPlace that
// finds an idle worker, and nothing that waits, runs its task itself while the worker sleeps on, off the stack. It does for
// the worker what that does between turns.
//
// Batches. A worker whose task is a write takes more writes, since they become one commit. A read that it meets goes ahead
// of the queue, where the next free worker takes it first. A worker that is handed a write lingers, the delay of group
// commit: it lets other goroutines run once, so that their writes join it, and nobody is woken for those. If none came, the
// next writes run inline, until a worker lingers again to see whether that still holds.
//
// Blocked writes. Where writes are batched, and reads come to the same pool, one worker is kept from turns of writes, so that
// reads go on while writes hang. While all others write, workers take reads ahead of the queue; once a write has run for
// longer than any should, or while Options.Blocked says so, they take reads out of the discipline as well. Writes that they
// meet there are held, in order, and go first later. Held writes count against the capacity: a write is refused as full, and
// a read displaces the oldest.
//
// # Switching
//
// A switch makes the new discipline active, empties the former one, and offers what that held to the new one in order of
// arrival. A submitter that finds another active after its Push does the same. If the new one answers CallerRuns, the
// submitter of that task sleeps and cannot run it. Then the discipline's next task is popped into the line ahead of the
// queue, and the task is pushed again. If the answer is the same, it goes into that line itself.
//
// # Invariants
//
// Builds with the race detector, and with the tag invariants, assert them: see invariants.go. Fields of limit and
// gathering have a table of states there.
//
//	field          written by                        read by                  holds
//	backlog.active activate, under engine.mu         all                      never nil once open
//	  .held        who holds mu                      pop, admits              a line, of writes alone
//	  .ahead       who holds mu                      pop                      a line; no task is in two, or in one and the discipline
//	  .moving      who holds mu                      Gauge                    a line; empty but while a queue is emptied
//	task.held      queue.push, givenUp               Cancel                   not nil as long as the discipline holds the task
//	  .phase       Submit, Acquire; Done, Release    the same                 theirs, ours, theirs: each step once
//	workers.count  hire, under hiring; leave         submitters, limit        idle.n <= count; count <= width, but after width fell
//	  .idle        push, take, remove, under its mu  submitters               n is its length; who takes a worker wakes it
//	  .writing     beginWriting, endWriting          gate                     >= 0; turns of writes <= maxWriting when they begin
//	  .reads       counted                           gate, admits             >= the reads that wait
//	  .lingering   who hands over a write; awaken    submitters               >= 0
//	Resource.free  claim; giveBack; under mu: allow  Acquire, all             free + gathered + in use = width; < 0 after width fell
//	limit.width    change, under mu                  all                      >= 1 if given and not bounded; <= the law's maximum, or unheld
//	engine.inFlight Submit, Acquire; left            light, Drain             >= 0; 0: nothing waits or runs
package dispatch
