module github.com/spillway-go/spillway/examples/overload/limits

go 1.26.0

require (
	github.com/platinummonkey/go-concurrency-limits v1.0.0
	github.com/spillway-go/spillway/examples/overload v0.0.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/spillway-go/spillway v0.0.0 // indirect
)

replace (
	github.com/spillway-go/spillway => ../../..
	github.com/spillway-go/spillway/examples/overload => ..
)
