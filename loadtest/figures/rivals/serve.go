package main

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// service does so many requests at once, each by waiting. Others wait in it, in the order of their arrival, as before a
// pool of connections to a database.
type service struct {
	takes time.Duration
	mu    struct {
		sync.Mutex
		places, busy int
	}
	freed *sync.Cond // with mu
}

func newService(places int, takes time.Duration) *service {
	s := &service{takes: takes}
	s.mu.places = places
	s.freed = sync.NewCond(&s.mu)
	return s
}

// ServeHTTP serves; a PUT of /places?n=N changes how many at once.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil || n < 1 {
			http.Error(w, "n is not a number from 1 on", http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.mu.places = n
		s.mu.Unlock()
		s.freed.Broadcast()
		return
	}
	s.mu.Lock()
	for s.mu.busy >= s.mu.places {
		s.freed.Wait()
	}
	s.mu.busy++
	s.mu.Unlock()
	time.Sleep(s.takes)
	s.mu.Lock()
	s.mu.busy--
	s.mu.Unlock()
	s.freed.Signal()
	_, _ = w.Write([]byte("done\n"))
}

// serve serves until ctx ends.
func serve(ctx context.Context, address string, places int, takes time.Duration) error {
	server := &http.Server{Addr: address, Handler: newService(places, takes), ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	return server.ListenAndServe()
}
