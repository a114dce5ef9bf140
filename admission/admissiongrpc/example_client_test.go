package admissiongrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-go/spillway/admission/admissiongrpc"
)

// All calls of a connection come again when the service says, within a budget, and are
// held back when it refuses most of them.
func ExampleClient() {
	calls := &admissiongrpc.Client{
		Idempotent: func(method string) bool { return method == "/shop.Shop/Search" },
	}
	conn, err := grpc.NewClient("passthrough:///shop:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(calls.UnaryClientInterceptor()),
		grpc.WithStreamInterceptor(calls.StreamClientInterceptor()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("it is down") }),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	shop := healthpb.NewHealthClient(conn)
	for {
		_, err := shop.Check(context.Background(), &healthpb.HealthCheckRequest{})
		if errors.Is(err, admissiongrpc.ErrThrottled) {
			fmt.Println("the shop is down, and was not asked")
			return
		}
	}
	// Output: the shop is down, and was not asked
}
