// Package admissiongrpc puts queues in front of gRPC's handlers.
//
//	srv := grpc.NewServer(
//		grpc.UnaryInterceptor(admissiongrpc.UnaryServerInterceptor(ctl)),
//		grpc.StreamInterceptor(admissiongrpc.StreamServerInterceptor(ctl)),
//	)
//
// It is a module of its own, so that only users of gRPC depend on gRPC.
package admissiongrpc
