// Package concurrency learns how many requests a resource of which nobody knows
// anything should be given at once.
//
//	law, err := concurrency.New(concurrency.Options{Min: 1, Max: 1000})
//	…
//	if _, changed := law.Completed(concurrency.Sample{
//		Now: now, Began: began, Running: places.Taken(), Waiting: queue.Len() > 0,
//	}); changed {
//		places.mu.Lock() // so that the last to resize has the latest limit
//		places.resizeLocked(law.Limit())
//		places.mu.Unlock()
//	}
//
// It is passive, as a queue discipline is: it starts no goroutine, blocks nobody and
// reads no clock. The time is an argument. It needs the standard library alone.
//
// # The law
//
// By Little's law the rate is how many run divided by how long each takes. So it is enough to know how
// service times grow with how many run: more are worth it as long as they grow by less.
//
//	state     it moves on                                   it promises
//	start     to learning, once answers, or a generation,   the limit grows to three times as many in a
//	          surely take half as long again as before,     generation, while work waits, until it has lasted
//	          half of what ran have timed out, the most     half as long again as usual; and not in the one
//	          is reached, or little has waited              after such a generation
//	learning  to cut, when surely most are dropped          two limits about the best number are compared, each
//	                                                        in every other slot; while little waits it stays
//	cut       to learning, when most are good again; to     0.4 of the limit, and of that, down to the least
//	          what it was before, if the least did not help
//
// A slot is a time in which the limit is constant: 2.5 to 14 service times and at least 0.26 ms, a power of 4 in
// nanoseconds, and it begins at a multiple of that on the wall clock. A request counts for the slot in which it
// began, and for no more than a slot lasts; those that run on, by their age (the restricted mean of right-censored
// times). Where the limit has fallen, the slot opens once no more run than it allows. How many ran is counted from then
// on, as little begins before.
//
// Hypotheses say how service times grow: with so many servers, with crosstalk, or with both, or with some work
// that only one can do at a time; each with every best number. The slow start gives the prior, give or take a
// factor of e: the rate that it came to times how long requests took at first, weighed against 0.4 of its limit.
// The likelihood of each is how well it foretells the difference between a slot and the one before. The best
// number is that which loses least in the mean of the posterior.
//
// Several learners before one resource share it. One's own throughput is no proof that more is good, as others
// may lose it. But all change their limits at the same times of the clock, so each measures how long requests
// take with more and with fewer of all. The fewer it has, the larger the part by which a learner changes its
// limit; so service times seem to grow less to it, and it comes to have more. TCP's additive rise does the same.
// And a ceiling falls while requests take too much of the objective: see ceiling.
//
// # The guard
//
// The guard is outside of the law: see guard.
package concurrency
