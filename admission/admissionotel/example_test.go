package admissionotel_test

import (
	"context"
	"fmt"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionotel"
)

// The global providers of OpenTelemetry get the metrics and the spans.
func Example() {
	ctl, instruments, err := admissionotel.New(admission.Options{Concurrency: 16}, admissionotel.Options{Name: "database"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ctl.Close()
	defer func() { _ = instruments.Close() }()

	permit, err := instruments.Acquire(context.Background(), admission.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release()
	fmt.Println("it is our turn")
	// Output: it is our turn
}
