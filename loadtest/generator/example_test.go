package generator_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/report"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// shop is a service of anybody's.
func shop() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
	}))
}

// Open-loop load on any HTTP service: 200 requests a second, whatever it does.
func ExampleRun() {
	service := shop()
	defer service.Close()
	found, err := generator.Run(context.Background(), workload.Options{
		URL: service.URL,
		Targets: []workload.Target{
			{Method: "GET", URL: "/search?q=x", Weight: 9},
			{Method: "POST", URL: "/orders", Headers: []string{"Content-Type: application/json"}, Body: []byte(`{"item":7}`)},
		},
		Rate: 200, Duration: time.Second, Connections: 16, SLO: time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("all good:", found.Served() == found.Requests)
	for _, target := range found.Targets {
		// found.Latency and target.Latency count from the scheduled times.
		fmt.Println(target.Target, target.Requests > 0, target.Latency.P50 > 0)
	}
	// Output:
	// all good: true
	// GET /search?q=x true true
	// POST /orders true true
}

// How much a service can do: a closed loop, in which every connection sends its next
// request when the last is answered.
func ExampleRun_capacity() {
	service := shop()
	defer service.Close()
	found, err := generator.Run(context.Background(), workload.Options{
		Targets: []workload.Target{{Method: "GET", URL: service.URL}}, Rate: 0, Count: 1000, Connections: 8,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found.Requests, found.Status, found.CompletedRPS > 0)
	// Output: 1000 map[200:1000] true
}

// What can be printed is what the command prints.
func ExampleRun_report() {
	service := shop()
	defer service.Close()
	found, err := generator.Run(context.Background(), workload.Options{URL: service.URL, Mix: workload.Mix{Get: 1}, Count: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = report.Text(os.Stdout, &report.Input{Runs: []*report.Run{{Result: found}}})
	_ = found.Save("result.json")
}
