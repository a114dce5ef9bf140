// Command outsider uses the library from a module of its own, in front of servers of net/http,
// fasthttp and gRPC: see outsider_test.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionfasthttp"
	"github.com/spillway-go/spillway/admission/admissiongrpc"
	"github.com/spillway-go/spillway/admission/admissionhttp"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run asks each server while there is no room, and once there is.
func run() error {
	ctl, err := admission.New(admission.Options{Concurrency: 1, Capacity: 1, Strategy: "fifo"})
	if err != nil {
		return err
	}
	listen := func(serve func(net.Listener) error) (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		go func() { _ = serve(l) }()
		return l.Addr().String(), nil
	}
	plain, err := listen((&http.Server{Handler: admissionhttp.Handler(ctl, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}).Serve)
	if err != nil {
		return err
	}
	fast, err := listen((&fasthttp.Server{Handler: admissionfasthttp.Handler(ctl, func(*fasthttp.RequestCtx) {})}).Serve)
	if err != nil {
		return err
	}
	measured := admissiongrpc.Options{Exempt: func(string) bool { return false }}
	srv := grpc.NewServer(grpc.UnaryInterceptor(measured.UnaryServerInterceptor(ctl)), grpc.StreamInterceptor(admissiongrpc.StreamServerInterceptor(ctl)))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	called, err := listen(srv.Serve)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(called, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	ask := func() error {
		for name, address := range map[string]string{"net/http": plain, "fasthttp": fast} {
			resp, err := http.Get("http://" + address)
			if err != nil {
				return err
			}
			fmt.Println(name, resp.StatusCode, resp.Header.Get("Spillway-Shed"))
			if err := resp.Body.Close(); err != nil {
				return err
			}
		}
		_, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println("gRPC", status.Code(err))
		return nil
	}

	permit, err := ctl.Acquire(context.Background(), admission.Request{})
	if err != nil {
		return err
	}
	waits, leave := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := ctl.Acquire(waits, admission.Request{})
		left <- err
	}()
	for ctl.Stats().Waiting == 0 {
		continue // until it does
	}
	if err := ask(); err != nil {
		return err
	}
	leave()
	if err := <-left; !errors.Is(err, admission.ErrShed) {
		return err
	}
	permit.Release()
	return ask()
}
