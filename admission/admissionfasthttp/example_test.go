package admissionfasthttp_test

import (
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionfasthttp"
)

// Every request waits its turn, or gets 503 with Retry-After.
func ExampleHandler() {
	ctl, err := admission.New(admission.Options{Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := &fasthttp.Server{Handler: admissionfasthttp.Handler(ctl, func(ctx *fasthttp.RequestCtx) {
		ctx.SetBodyString("hello")
	})}

	var ctx fasthttp.RequestCtx
	srv.Handler(&ctx)
	fmt.Println(ctx.Response.StatusCode(), string(ctx.Response.Body()))
	// Output: 200 hello
}

// Who asks, how important it is and what it costs comes from a function of the request.
func ExampleOptions() {
	ctl, _ := admission.New(admission.Options{Concurrency: 16, Strategy: "fair"})
	h := admissionfasthttp.Options{
		Request: func(ctx *fasthttp.RequestCtx) admission.Request {
			return admission.Request{Client: string(ctx.Request.Header.Peek("X-Api-Key")), Cost: 2}
		},
		Wait: time.Second,
	}.Handler(ctl, func(*fasthttp.RequestCtx) { fmt.Println("places in use:", ctl.Stats().InUse) })
	h(new(fasthttp.RequestCtx))
	// Output: places in use: 2
}

// Health checks are let through unmeasured, unless Exempt says otherwise.
func ExampleHealthCheck() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	h := admissionfasthttp.Options{
		Exempt: func(ctx *fasthttp.RequestCtx) bool {
			return admissionfasthttp.HealthCheck(ctx) || string(ctx.Path()) == "/metrics"
		},
	}.Handler(ctl, func(ctx *fasthttp.RequestCtx) { fmt.Println(string(ctx.Path()), "places in use:", ctl.Stats().InUse) })
	for _, path := range []string{"/", "/healthz", "/metrics"} {
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI(path)
		h(&ctx)
	}
	// Output:
	// / places in use: 1
	// /healthz places in use: 0
	// /metrics places in use: 0
}
