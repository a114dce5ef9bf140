module github.com/spillway-go/spillway/examples/overload

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/spillway-go/spillway v0.0.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)

replace github.com/spillway-go/spillway => ../..
