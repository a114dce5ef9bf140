// Package dispatch brings tasks to a set of workers, fixed or of a learned size, through a queue
// discipline of package strategies that can be exchanged while it runs. It does
// not know what a task does.
//
// # Designs not taken
//
// Workers that receive from one Go channel: the channel is the queue then, and
// always first-in first-out. Workers that spin on a lock-free queue: fast, but
// an idle service burns its CPUs. A condition variable beside the queue: every
// push takes its lock, even while all workers are busy and nobody waits. So
// workers park one by one, each on a channel of its own, and a stack of the
// parked ones, the most recently parked first because its caches are the
// warmest, tells a submitter whom to wake. While all are busy, that costs a
// submitter one load of a counter.
//
// # Submit and park
//
// Submit:
//
//  1. If a worker is parked and nothing waits, take it off the stack and hand
//     it the task.
//  2. Otherwise push the task into the discipline, which publishes it.
//  3. If a worker has parked meanwhile, take it off the stack and tell it to
//     look.
//
// A worker that has finished its turn:
//
//  1. If something waits, pop. If there is a task, wake another worker if more
//     tasks wait while one is parked, and run it.
//  2. Otherwise put itself on the stack.
//  3. Pop again. If there is a task, leave the stack and run it.
//  4. Otherwise sleep until somebody who took it off the stack sends a task, or
//     word to look.
//
// No wake-up is lost. The submitter publishes (2), then looks at the stack (3);
// the worker enters the stack (2), then looks for what is published (3). The
// stack's counter is atomic, and a discipline publishes by an atomic operation,
// of which Go's are sequentially consistent, or under a mutex, which orders the
// two in the same way. So at least one of the two sees the other. That holds for a queue that answers Contended as well:
// the worker saw a place that was reserved and not yet filled, so whoever reserved it
// looks at the stack later than the worker entered it, whatever became of its push.
// A worker that looks counts as one at a write, so a submitter may find that nobody may
// begin another, and wake nobody. It leaves a note then; the worker finds that when it
// counts no more, and looks again.
// And a worker that was told to look and finds several tasks passes the word on (1),
// so that no worker is parked while a task waits that could run.
//
// # In the place of a worker
//
// To wake a worker and to be woken by it is most of what a queue costs, and a
// task that need not wait gains nothing by it. So a submitter that has nothing
// else to do may ask to run its task itself, in the place of the idle worker that
// it has taken off the stack (1), which sleeps on. A worker that has not looked
// again yet (3) may have another task in its hands in a moment, so it is handed
// this one instead. No more tasks run at once than there are workers, and no worker
// is missed: who has run a task in the place of one does for it what it does between
// turns, and if something waits by then, wakes it to look. What waits in a queue is
// always run by workers.
//
// # Several writes at once
//
// A worker whose task is a write goes on taking writes, since they will become
// one commit. A read that it meets on the way must not wait behind that commit
// while another worker could start it. The discipline cannot take it back, so
// it goes into a line ahead of the queue, where the next free worker finds it first.
// What is there counts as taken: it does not take up the discipline's capacity, and
// newer or more important tasks do not get in front of it any more.
//
// A worker that is handed a write lets others run before it looks for more, so
// that connections whose requests have arrived at the same time come to submit
// theirs. It counts as gathering meanwhile, and whoever submits a write then
// pushes it and wakes nobody: the worker stops gathering before it looks, and
// the submitter looks whether one gathers after it has published, so that one of
// the two sees the other, as above. The worker does not sleep for it, so a write
// that is alone is not held up.
//
// If no other write has come by then, there is nobody to share a commit with: the
// next writes that find an idle worker are run in its place, as above, if their
// submitters ask for it, and after a few of them a worker gathers again to see
// whether that still holds.
//
// # Continuations
//
// A task that cannot be finished in one turn, as a long range, is submitted again as
// a continuation. Continuations wait in a line of their own. While both wait, turns
// alternate between the queue and that line, whose first goes to its end. So a range
// that is read fast takes half of the turns at most, from whoever waits in the queue,
// and each continuation waits for at most twice as many turns as there are
// continuations.
//
// # Writes that cannot be begun
//
// Of the workers of a pool that takes reads as well, one is kept from turns of writes
// where those are taken together. So whatever holds up a write that has begun, as a disk
// that hangs, reads go on: those that come while none waits, and those that the others
// have put ahead of the queue. The one looks for reads behind writes in the queue only
// once a turn of writes has run for longer than any should; until then the others go on
// in the queue's order in a moment.
//
// Options.Blocked tells that no write should be begun for now. No worker waits for
// the end of that: it takes reads. As long as none waits, blocked writes stay in the
// discipline, whose order so holds for them; a worker that must get past them to a
// read holds them in a line, in the order in which they were taken, and they go first
// once they can. Held writes count against the capacity: a write finds no room beside
// them, and a read takes the room of the oldest. So does a read that finds the
// discipline full: the next write is held, which gives way then, and reads that go
// before it go into the line ahead of the queue.
//
// To know whether a read waits, reads are counted, before they are published and after
// they were taken, so that never fewer are counted than wait. Blocked becomes false
// before Unblock looks whether anything could run, and a submitter asks for it after it
// has published: so again one of the two sees the other.
//
// # Places
//
// With Options.Grant there are no workers: who submits a task runs it, once it has been
// granted a place, and gives the place back. The protocol is the same, with a counter of
// free places for the stack of parked workers. A submitter takes a place if one is free
// and nothing waits; otherwise it pushes, which publishes the task, and then looks at the
// counter. Who gives a place back raises the counter, and then looks for what waits. So
// at least one of the two sees the other, as above. If something waits already, it takes
// the task whose turn it is and hands it the place, which is not free in between; if there
// turns out to be none, it raises the counter and looks, as before.
//
// A task may cost several places. While it has some of them and waits for more, it is
// the first of the line ahead of the queue, and what it has gathered is not free. So that
// somebody who keeps a place for ever does not have it keep the others from theirs, it
// gives back what it has gathered after a while, and others may pass it for as long; then
// it gathers for twice as long as before. Whoever gives places back before that time is
// over, which grows to a minute, so has it begin in the end.
//
// # More or fewer workers
//
// Resize changes how many workers there may be. Where there may be more, one is started
// when something waits that could run and nobody is parked. Where there may be fewer, those
// leave that find so before they look for a task: at the end of their turn or, if they are
// parked, at once, as they are told to look. So nobody is stopped in the midst of a task.
//
// No wake-up is lost by that. A submitter that finds nobody parked looks at the numbers after
// it has published, and Resize looks for what is published after it has changed them. A
// worker that leaves may have been told to look, so it looks for what waits once it is
// counted no more, and passes the word on.
//
// With Options.Learn a law of package concurrency says how many. It is told of each turn of
// a worker, or of the time from a place granted to Answered or Release, and its number is
// in force as soon as it says it. What a strategy without a queue lets run beyond the
// number is not told.
//
// A law that is told of nothing changes nothing, so whatever never ends would stop all else.
// So a timer runs while something waits. If all places are in use, and nothing that counts has
// ended for many service times, what runs is stuck: it does not count until it ends, and as many as the
// law says run beside it, up to the bound of the number. Each time that this is found anew, with
// no end in between, it takes half as long again, up to some seconds, and a fifth more begin
// than the last time: what has come to a halt should get little, and what waits may be behind
// others that hang.
//
// A law may demand a pause. Where a least number is asked for, that many may begin in it.
// Otherwise there are no workers or places in a pause. The same timer ends it, and runs then even
// if nothing waits: once nothing has ended for as long as the pause, one may begin.
//
// What a client does says nothing of what does the work. So a task counts as dropped only if it
// had as long until its deadline, when it began, as good tasks take.
//
// # Observing
//
// With Options.Observe a discipline is asked to give up nothing but for want of room, and
// to note in the task what it would have given up. What one gives up all the same is run
// when it is popped, or waits ahead of the queue if there is room.
//
// # Switching
//
// A switch makes the new discipline the one that is pushed to and popped from, waits
// until no submitter is on its way into the former one, empties that, and offers what
// it held to the new one in order of arrival, as if it came then. A task that the new
// one would have its submitter run cannot be, since its submitter sleeps: the one whose
// turn is next goes into the line ahead of the queue, which makes room, or itself if there
// is no other. In between a task is in the hands of the switch, where Cancel finds
// it too.
package dispatch
