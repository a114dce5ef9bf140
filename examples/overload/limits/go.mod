module github.com/spillway-go/spillway/examples/overload/limits

go 1.26.0

require (
	github.com/platinummonkey/go-concurrency-limits v1.0.1
	github.com/spillway-go/spillway/examples/overload v0.0.0
)

replace (
	github.com/spillway-go/spillway => ../../..
	github.com/spillway-go/spillway/examples/overload => ..
)
