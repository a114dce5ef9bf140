//go:build integration

package integration

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The generations of modelServer.
const (
	batchSlots   = 8
	streamTokens = 20
)

// modelServer is our own model of a model server with continuous batching, no real one's: it generates up to batchSlots
// streams in steps, each a token further, which slow with the batch, and in which a stream that joins has its prompt
// read first. The others wait in it, first come first served. Heads go out at once, tokens as they are generated.
type modelServer struct{ joining chan *generation }

// generation is a stream: what is read of tokens, until it is closed.
type generation struct {
	tokens chan struct{}
	left   <-chan struct{}
	done   int
}

func openModelServer(ctx context.Context) *modelServer {
	m := &modelServer{joining: make(chan *generation, 1<<16)}
	go m.run(ctx)
	return m
}

func (m *modelServer) run(ctx context.Context) {
	const step, each, prompt = 10 * time.Millisecond, 2500 * time.Microsecond, 30 * time.Millisecond
	var batch []*generation
	for {
		took := step
		for len(batch) < batchSlots {
			if len(batch) == 0 {
				select {
				case g := <-m.joining:
					batch, took = append(batch, g), took+prompt
				case <-ctx.Done():
					return
				}
				continue
			}
			select {
			case g := <-m.joining:
				batch, took = append(batch, g), took+prompt
				continue
			default:
			}
			break
		}
		time.Sleep(took + time.Duration(len(batch))*each)
		batch = slices.DeleteFunc(batch, func(g *generation) bool {
			select {
			case <-g.left:
				close(g.tokens)
				return true
			default:
			}
			g.tokens <- struct{}{} // there is room for all
			if g.done++; g.done == streamTokens {
				close(g.tokens)
			}
			return g.done == streamTokens
		})
	}
}

func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	_ = control.Flush()
	g := &generation{tokens: make(chan struct{}, streamTokens), left: r.Context().Done()}
	m.joining <- g
	for range g.tokens {
		_, _ = io.WriteString(w, "data: token\n\n")
		_ = control.Flush()
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// generate asks for a stream, and returns when its first token came and when it ended, whole.
func generate(client *http.Client, url string) (status int, first, took time.Duration, whole bool) {
	began := time.Now()
	answer, err := client.Post(url, "application/json", strings.NewReader(`{"stream":true}`))
	if err != nil {
		return 0, 0, 0, false
	}
	defer func() { _ = answer.Body.Close() }()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") && first == 0 {
			first = time.Since(began)
		}
		whole = whole || lines.Text() == "data: [DONE]"
	}
	return answer.StatusCode, first, time.Since(began), whole
}

// A model server gets twice the streams that a closed loop as large as its batch gets, for 20 s: how many have their
// first token within 1 s, and when the first token and the end of those that were served came. Before it is the proxy,
// which learns how many it takes at once, or is told, or nothing.
//
// A round is -benchtime=1x; rounds are interleaved by running it several times.
func BenchmarkProxy_FirstToken(b *testing.B) {
	const slo, length = time.Second, 20 * time.Second
	for _, row := range []struct{ name, workers string }{{"learned", "auto"}, {"told", "8"}, {"none", ""}} {
		b.Run("proxy="+row.name, func(b *testing.B) {
			for range b.N {
				model := httptest.NewServer(openModelServer(b.Context()))
				defer model.Close()
				url, places := model.URL, func() float64 { return 0 }
				if row.workers != "" {
					proxy := launchCommand(b, plain, nil, "proxy", "--upstream", model.URL, "--slo", slo.String(), "--workers", row.workers)
					proxy.awaitListening()
					url, places = proxy.dataURL(""), func() float64 { return proxy.metrics().sum("spillway_workers") }
				}
				client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
				defer client.CloseIdleConnections()

				var most atomic.Int64
				var clients sync.WaitGroup
				const closed = 5 * time.Second
				began := time.Now()
				for range batchSlots {
					clients.Go(func() {
						for time.Since(began) < closed {
							if _, _, _, whole := generate(client, model.URL); whole {
								most.Add(1)
							}
						}
					})
				}
				clients.Wait()
				rate := 2 * float64(most.Load()) / closed.Seconds()

				var mu sync.Mutex
				var firsts, ends []time.Duration
				good, refused, asked := 0, 0, 0
				began = time.Now()
				for due := time.Duration(0); due < length; due += time.Duration(rand.ExpFloat64() / rate * float64(time.Second)) {
					time.Sleep(due - time.Since(began))
					asked++
					clients.Go(func() {
						status, first, took, whole := generate(client, url)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case status == http.StatusServiceUnavailable:
							refused++
						case status == http.StatusOK && whole:
							firsts, ends = append(firsts, first), append(ends, took)
							if first <= slo {
								good++
							}
						}
					})
				}
				clients.Wait()
				require.NotEmpty(b, firsts)
				b.ReportMetric(places(), "places") // in the end
				slices.Sort(firsts)
				slices.Sort(ends)
				p99 := func(of []time.Duration) float64 { return of[len(of)*99/100].Seconds() }
				b.ReportMetric(rate/2, "capacity/s")
				b.ReportMetric(float64(good)/length.Seconds(), "good/s")
				b.ReportMetric(firsts[len(firsts)/2].Seconds(), "first-p50-s")
				b.ReportMetric(p99(firsts), "first-p99-s")
				b.ReportMetric(p99(ends), "whole-p99-s")
				b.ReportMetric(float64(refused)/float64(asked), "refused")
			}
		})
	}
}
