// Package scenario reads scenario files: a question put to the service, and the
// combinations of settings and loads that answer it.
//
// A file is YAML. Every setting of the service and of the load has one value, or
// a list of values, which makes it an axis; the combinations are the product of
// all axes. Where a product is too much, `cases` lists parts of it: each case
// overrides settings of the file, and then the axes multiply. `short` overrides
// whatever is to be smaller when there is little time.
//
//	title: How long should the queue be?
//	question: Does a longer queue serve more requests?
//	service: {strategy: [fifo, drop-oldest], capacity: [64, 1024], sync: never}
//	load: {connections: 64, mix: get=100, rate: [0.9x, 1.1x]}
//	duration: 10s
//	warmup: 2s
//	repetitions: 9
//	short: {duration: 2s, warmup: 500ms, repetitions: 4}
//
// Whatever is wrong with a file is one error that names the file, the line, the
// field and what is allowed:
//
//	queue-length.yaml:4: load.connections: "-1" is not a whole number from 1 to 20000
package scenario
