// Package workload says what load is sent, and makes its requests, one after the
// other: their times, operations, keys, sizes, priorities and clients. All of it
// follows from [Options] and their seed; nothing reads a clock or sends anything,
// so that a simulation is given the very requests that the generator sends.
package workload
