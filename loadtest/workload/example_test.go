package workload_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/spillway-go/spillway/loadtest/workload"
)

func ExampleReadTargets() {
	targets, err := workload.ReadTargets(strings.NewReader(`
GET http://127.0.0.1:3000/search?q=x
Accept: application/json

# a weight before the method: three times as often
3 GET http://127.0.0.1:3000/
`), os.ReadFile)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range targets {
		fmt.Println(t.String(), t.Headers, t.Weight)
	}
	// Output:
	// GET http://127.0.0.1:3000/search?q=x [Accept: application/json] 0
	// GET http://127.0.0.1:3000/ [] 3
}
