package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"time"
)

// route is what a path answers.
type route struct {
	path    string // as http.ServeMux wants it
	methods map[string]http.HandlerFunc
	open    bool // no token is needed
	costly  bool // a GET takes more of the service than its answer
}

// routes returns the handler of all paths. Consoles get their frames from f.
func (o *Options) routes(past *history, f *feed) http.Handler {
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h}
	}
	hello := o.greeting()
	table := []route{
		{path: "/{$}", methods: get(func(w http.ResponseWriter, _ *http.Request) { writeConsole(w, http.StatusOK) })},
		{path: "/console/events", methods: get(func(w http.ResponseWriter, r *http.Request) {
			f.serve(w, r, append(slices.Clip(hello), past.frame()...))
		}), costly: true},
		{path: "/metrics", methods: get(o.Metrics.ServeHTTP)},
		{path: "/debug/pprof/", methods: get(pprof.Index), costly: true},
		{path: "/debug/pprof/cmdline", methods: get(program), costly: true},
		{path: "/debug/pprof/profile", methods: get(pprof.Profile), costly: true},
		{path: "/debug/pprof/symbol", methods: map[string]http.HandlerFunc{http.MethodGet: pprof.Symbol, http.MethodPost: pprof.Symbol}, costly: true},
		{path: "/debug/pprof/trace", methods: get(pprof.Trace), costly: true},
		{path: "/healthz", methods: get(o.healthz), open: true},
		{path: "/livez", methods: get(o.healthz), open: true},
		{path: "/readyz", methods: get(o.readyz), open: true},
		{path: "/version", methods: get(o.version)},
		{path: "/strategy", methods: map[string]http.HandlerFunc{
			http.MethodGet: o.getStrategy, http.MethodPut: o.putStrategy,
		}},
		{path: "/history", methods: get(past.serve)},
		{path: "/config", methods: get(o.getConfig)},
	}
	if o.Backup != nil {
		table = append(table, route{path: "/backup", methods: map[string]http.HandlerFunc{http.MethodPost: o.postBackup}})
	}
	// A page from elsewhere in the operator's browser must not switch
	// strategies or write backups.
	same := http.NewCrossOriginProtection()
	elsewhere := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusForbidden, "requests from pages of other origins are not allowed")
	})
	same.SetDenyHandler(elsewhere)
	mux := http.NewServeMux()
	for _, r := range table {
		handler := o.guard(r)
		if !r.costly {
			mux.Handle(r.path, handler)
			continue
		}
		// Nor may an image with such an address have profiles taken, or the heap collected:
		// whatever its method, the request is judged as one that changes something.
		mux.HandleFunc(r.path, func(w http.ResponseWriter, req *http.Request) {
			judged := *req
			judged.Method = http.MethodPost
			if same.Check(&judged) != nil {
				elsewhere(w, req)
				return
			}
			handler.ServeHTTP(w, req)
		})
	}
	mux.Handle("/", o.guard(route{methods: nil}))
	handler, tokenless := same.Handler(mux), o.Token.Allows(nil)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if tokenless && misnamed(req) {
			problem(w, http.StatusForbidden, fmt.Sprintf("without SPILLWAY_ADMIN_TOKEN browsers are answered under an IP address or localhost only, not under %.100q", req.Host))
			return
		}
		if req.ContentLength != 0 {
			// Also where nobody wants the body: net/http reads on until its end.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		handler.ServeHTTP(w, req)
	})
}

// program is what net/http/pprof answers for the command line, without the
// arguments, as tokens may be among them.
func program(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, os.Args[0])
}

// guard answers what needs no handler: a missing token, a path or a method that
// is not known. A route without methods is an unknown path.
func (o *Options) guard(r route) http.Handler {
	if _, ok := r.methods[http.MethodGet]; ok {
		r.methods[http.MethodHead] = r.methods[http.MethodGet]
	}
	allow := strings.Join(slices.Sorted(maps.Keys(r.methods)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if !r.open && !o.Token.Allows([]byte(req.Header.Get("Authorization"))) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			if wantsPage(req) {
				writeConsole(w, http.StatusUnauthorized) // which asks for the token
				return
			}
			problem(w, http.StatusUnauthorized, "a valid bearer token is needed")
			return
		}
		if len(r.methods) == 0 {
			problem(w, http.StatusNotFound, fmt.Sprintf("there is nothing at %.100q; the console at / shows what there is", req.URL.Path))
			return
		}
		handler, ok := r.methods[req.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			problem(w, http.StatusMethodNotAllowed, fmt.Sprintf("the method %.20q is not allowed here, choose one of %s", req.Method, allow))
			return
		}
		handler(w, req)
	})
}

// problem answers with an error (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSON(w, status, struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}

// writeJSON answers with v. The type is application/json unless it is set.
func writeJSON(w http.ResponseWriter, status int, v any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // a client that has gone needs no answer
}
