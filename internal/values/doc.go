// Package values is a cache of values in front of a store: memory for whole values,
// each with its validator and the moment at which it is gone, so that a read that hits
// costs a lock, a look-up and a copy.
//
// # What it keeps
//
// The eviction policy is S3-FIFO (Yang et al., SOSP 2023). A value that is read for the first time
// goes into a small queue, a tenth of the memory. If it was read again twice by the time
// it comes to the head, it moves to the main queue; otherwise it leaves, and only its
// hash is remembered, as a ghost. A value whose ghost is still known goes to the main
// queue at once. What comes to the head of the main queue goes round again if it was
// read meanwhile. So what a scan reads once passes through the small queue and takes
// nothing from the main one. Until the main queue is full nothing is thrown away.
//
// The memory is outside of the Go heap where the system can map some. It is divided
// into shards, and each has its two queues as rings of records, an index of 8 bytes a
// slot, and a lock. A record never moves but from the head of a ring to the end of one.
//
// # Why what it answers is right
//
// The promise: what Get finds is what the store held for the key at a moment between
// the call and its return. So the history of a store with the cache is linearizable if
// that of the store alone is, and whoever judges what the store has answered (whether
// it is durable yet, whether it is in doubt) need not know where it came from.
//
// Each key belongs to a stripe of its shard, with a version and the number of changes
// under way; the shard's lock guards them and the records. The rules:
//
//	W1  A write adds its keys to a Change before the store may show it to anybody. That
//	    raises the version of the stripe and its count of changes, and empties the
//	    record of the key.
//	W2  When the store shows it to everybody, or is known to do nothing more with it,
//	    the Change ends, and the count goes down. If no other change of the stripe was
//	    under way at any moment since W1, the version being still what W1 has made it
//	    and the count having been 0 before, the record may be filled with what was
//	    written.
//	R1  A read takes a Ticket, the version of the stripe, before it asks the store. While
//	    a change of the stripe is under way there is none to be had.
//	R2  It may fill the record with what the store has said if the version is still
//	    that of its ticket.
//	C   When the store begins to answer from something else, Clear empties all records
//	    and raises all versions.
//
// A record that is filled holds what the store holds. Say that it was filled by a read
// (R2). At the ticket no change was under way, so every write before it was visible to
// everybody, or never will be (W2). The version has not moved since, so no write has
// begun (W1), and what the store has said at a moment in between still holds when the
// record is filled, under the lock. Say that it was filled by a write (W2). It was the
// only one of the stripe since before it began, so what it has written is what the store
// holds. In both cases the next write empties the record before the store shows
// anything of it, under the same lock. A Get that finds the record filled, under the
// lock, therefore finds what the store holds at that moment.
//
// A write that fails, or whose outcome is unknown, is a write as any other: its record
// is empty from before the store has seen it, and what fills it later is what the store
// says then. The store, having failed, may be opened again without what it had shown:
// that is C. Tickets of earlier reads have versions that no longer hold.
//
// A write of many keys is visible at one moment, and is in W1 for all of them before,
// and in W2 after. A Get of one of its keys sees the state before it, from a record,
// only before W1, hence before that moment; or asks the store.
//
// Time. A record knows when its value is gone. The clock is asked after the record was
// found, and never runs backwards. So if the value is not gone then, it was there when
// it was found; otherwise the store is asked, as if there were no record. Deletes of
// what is gone are writes.
//
// Keys share stripes by chance, which costs nothing but fills that are left out.
package values
