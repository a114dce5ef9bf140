// Command limits is overload with go-concurrency-limits among the variants. It is a module
// of its own, as that brings gRPC and two clients for metrics.
package main

import (
	"github.com/platinummonkey/go-concurrency-limits/http"

	"github.com/spillway-go/spillway/examples/overload"
)

func main() {
	overload.Variants["go-concurrency-limits"] = http.NewServerMiddleware(http.WithName("overload"))
	overload.Main()
}
