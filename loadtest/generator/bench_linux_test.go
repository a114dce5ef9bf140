package generator

import (
	"testing"
	"time"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// What a request costs besides its system calls: making it, encoding it,
// following its answer, and counting it.
func BenchmarkRequest(b *testing.B) {
	o := workload.Options{URL: "http://127.0.0.1:8080", Rate: 50_000, Distribution: workload.Zipf}.WithDefaults()
	stream, encoder, count := workload.NewStream(&o), newEncoder(&o, planTo("127.0.0.1:8080")), result.NewTally(o)
	answer := []byte("HTTP/1.1 200 OK\r\nServer: spillway\r\nDate: Sat, 21 Nov 2026 07:00:00 GMT\r\nContent-Type: application/octet-stream\r\nContent-Length: 5\r\n\r\nhello")
	var request workload.Request
	var r response
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		stream.Next(&request)
		out = encoder.append(out[:0], &request, o.Timeout)
		count.Offered(request.At, count.Part(&request))
		r.reset()
		if _, _, err := r.feed(answer); err != nil {
			b.Fatal(err)
		}
		count.Answered(request.At, request.At, request.At+time.Millisecond, count.Part(&request), r.status, r.shed)
	}
}
