package workload

import "time"

// Options says what load to send. The zero value of a field means its default;
// [Options.Check] reports what cannot be sent.
type Options struct {
	// URL is the service's data plane, http://host:port or https://host:port. If the
	// name has several addresses, the load goes to one that answers.
	URL string
	// Targets, if there are any, are sent instead of the operations of Mix. Keys,
	// Distribution, ValueSize and ScanLimit then have no meaning. All are of one server. If all
	// have an absolute URL, URL is not needed.
	Targets []Target
	// Good says which status codes are good. By default that is 2xx and 3xx for targets;
	// for the operations of the service 2xx, 304, and 404 to a get.
	Good Codes
	// Headers are sent with every request, each "Name: value".
	Headers []string
	// Engine is what carries the load: by default the fastest that can.
	Engine Engine
	// HTTP is the version that is spoken: by default what the server offers.
	HTTP HTTP
	// CAFile is a PEM file of certificate authorities to trust, beside those of the system.
	// Insecure accepts any certificate. Both also apply to the admin plane.
	CAFile   string
	Insecure bool

	// Rate is how many requests start each second, whatever the service does.
	// 0 is a closed loop: every connection sends its next request when the last is
	// answered. That finds the capacity, and hides stalls.
	Rate float64
	// Think is how long, in a closed loop, a connection rests between an answer and its
	// next request.
	Think time.Duration
	// Arrivals is how requests are spread over time: Poisson by default.
	Arrivals Arrivals
	// Profile is how Rate changes over time: not at all by default.
	Profile Profile
	// Warmup passes under the same load, unmeasured, before Duration begins.
	Warmup, Duration time.Duration
	// Count, if not 0, ends a closed loop after so many requests instead of
	// Duration.
	Count uint64
	// Connections is how many are open at once, 1 to MaxConnections. Each carries one request
	// at a time.
	Connections int
	// Loops is how many loops share the connections, with the epoll engine a thread each. By
	// default one for every two CPUs, at least 1: the service needs the others.
	Loops int

	// Mix weighs the operations. By default half puts, half gets.
	Mix Mix
	// Keys is how many there are, 100,000 by default.
	Keys uint64
	// Distribution chooses among them: uniform by default.
	Distribution Distribution
	// ValueSize is how long values are: 100 bytes by default.
	ValueSize Sizes
	// ScanLimit is how many entries a scan asks for, 100 by default.
	ScanLimit int
	// Priority weighs Spillway-Priority; the header is not sent by default.
	Priority Priorities
	// Clients weighs Spillway-Client; the header is not sent by default.
	Clients Clients
	// Seed makes two runs send the same requests at the same times.
	Seed uint64

	// SLO is the latency within which an answer is good: 100 ms by default.
	SLO time.Duration
	// Timeout is how long a client waits, 10 s by default: from the scheduled time, or from
	// when a retry is sent. Then it closes the connection and opens another.
	Timeout time.Duration
	// Retries is what clients do with a refusal or a time-out: nothing by default.
	Retries Retries
	// TimeoutHeader tells the service what is left of the timeout, in
	// Spillway-Timeout-Ms.
	TimeoutHeader bool

	// Admin is the service's admin plane, http://host:port or https://host:port. With it a result
	// holds the server's CPU per request, and the profiles of the measured window.
	Admin string
	// NoProfiles leaves the service unprofiled.
	NoProfiles bool
	// AdminToken is the bearer token of the admin plane, if it asks for one.
	AdminToken string

	// ServerCPU, if set, tells the CPU time that the server has used so far, where there is no
	// admin plane to ask.
	ServerCPU func() (time.Duration, error)

	// Progress, if set, is called about twice a second from a goroutine of Run.
	Progress func(Progress)
}

// Progress is the state of a run since its start.
type Progress struct {
	// Done is the share of the run that is over, warm-up included, 0 to 1.
	Done float64
	// Requests have ended so far, Errors of them without an answer. Rate is of those that ended
	// since the last call, requests a second.
	Requests, Errors int64
	Rate             float64
}
