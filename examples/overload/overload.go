// Package overload serves one handler behind different limiters: none, failsafe-go, or
// package admission. docs/library-overload.md shows how they fare under the same overload,
// and the command that measures it.
package overload

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
)

const (
	// places is how many requests the resource serves at once, and work how long each takes:
	// 1,000 a second, so little that the resource is overloaded and not the machine.
	places = 8
	work   = 8 * time.Millisecond
)

// resource is a database, say: what comes while all places are taken waits in it, first
// come first served.
func resource() http.Handler {
	free := make(chan struct{}, places)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		time.Sleep(work)
		<-free
		_, _ = io.WriteString(w, "done\n")
	})
}

// Variants are what stands before the handler. Those whose name ends in a number have a
// fixed limit of requests at once, the others have to learn it.
var Variants = map[string]func(http.Handler) http.Handler{
	"bare": func(h http.Handler) http.Handler { return h },

	// The factors are those that its documentation names; everything else is its default.
	"failsafe-go": func(h http.Handler) http.Handler {
		return failsafehttp.NewHandler(h, adaptivelimiter.NewBuilder[*http.Response]().WithQueueing(2, 3).Build())
	},
	"admission":    withAdmission(0),
	"admission-8":  withAdmission(places),
	"admission-16": withAdmission(2 * places), // by somebody who does not know
}

func withAdmission(concurrency int) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		ctl, err := admission.New(admission.Options{Concurrency: concurrency})
		if err != nil {
			panic(err)
		}
		return admissionhttp.Handler(ctl, h)
	}
}

// Main serves what the arguments ask for: a variant, and the port.
func Main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(args []string) error {
	names := slices.Sorted(maps.Keys(Variants))
	if len(args) != 2 || Variants[args[0]] == nil {
		return fmt.Errorf("usage: overload VARIANT PORT, VARIANT being one of %s", strings.Join(names, ", "))
	}
	srv := &http.Server{
		Addr: "127.0.0.1:" + args[1], Handler: Variants[args[0]](resource()), ReadHeaderTimeout: 10 * time.Second,
	}
	return srv.ListenAndServe()
}
