package admissionprom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionprom"
)

// A controller, and what tells Prometheus of it. Several of one process are told apart by
// a label.
func ExampleNew() {
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	ctl, metrics, err := admissionprom.New(admission.Options{Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	prometheus.WrapRegistererWith(prometheus.Labels{"queue": "database"}, registry).MustRegister(metrics)

	_ = ctl.Do(context.Background(), admission.Request{}, func(context.Context) error { return nil })
	families, _ := registry.Gather()
	for _, f := range families {
		if f.GetName() == "spillway_tasks_run_total" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	// Output: spillway_tasks_run_total 1
}
