package admissiongrpc_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissiongrpc"
)

// Every call and every stream waits its turn, or fails with codes.ResourceExhausted.
func ExampleUnaryServerInterceptor() {
	ctl, err := admission.New(admission.Options{Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := grpc.NewServer(
		grpc.UnaryInterceptor(admissiongrpc.UnaryServerInterceptor(ctl)),
		grpc.StreamInterceptor(admissiongrpc.StreamServerInterceptor(ctl)),
	)
	srv.Stop()
}

// Who calls, how important it is and what it costs comes from a function of the call. A
// stream that waits for news gives its places back meanwhile, by Release.
func ExampleOptions() {
	ctl, _ := admission.New(admission.Options{Concurrency: 16, Strategy: "priority"})
	unary := admissiongrpc.Options{
		Request: func(_ context.Context, method string, _ any) admission.Request {
			if method == "/shop.Shop/Checkout" {
				return admission.Request{Priority: 1}
			}
			return admission.Request{}
		},
	}.UnaryServerInterceptor(ctl)

	_, err := unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Shop/Checkout"},
		func(ctx context.Context, _ any) (any, error) {
			fmt.Println("places in use:", ctl.Stats().InUse)
			admissiongrpc.Release(ctx)
			fmt.Println("places in use:", ctl.Stats().InUse)
			return nil, nil
		})
	fmt.Println(err)
	// Output:
	// places in use: 1
	// places in use: 0
	// <nil>
}

// Health checks are let through unmeasured, unless Exempt says otherwise.
func ExampleHealthCheck() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	unary := admissiongrpc.Options{
		Exempt: func(method string) bool { return admissiongrpc.HealthCheck(method) || method == "/shop.Shop/Version" },
	}.UnaryServerInterceptor(ctl)
	for _, method := range []string{"/shop.Shop/Checkout", "/grpc.health.v1.Health/Check", "/shop.Shop/Version"} {
		_, _ = unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			fmt.Println(method, "places in use:", ctl.Stats().InUse)
			return nil, nil
		})
	}
	// Output:
	// /shop.Shop/Checkout places in use: 1
	// /grpc.health.v1.Health/Check places in use: 0
	// /shop.Shop/Version places in use: 0
}
