package peers

import (
	"io"
	"net/http"
	"strconv"

	"github.com/valyala/fasthttp"
)

// maxValue is the longest value that net/http's takes, as the service does.
const maxValue = 1 << 20

// plain is a handler straight on the store.
func (kv *keyValue) plain(ctx *fasthttp.RequestCtx) {
	id := ctx.QueryArgs().Peek("id")
	if string(ctx.Path()) != path || len(id) == 0 {
		ctx.Error("unknown path, or no id", fasthttp.StatusBadRequest)
		return
	}
	status, err := kv.do(string(ctx.Method()), id, ctx.PostBody(), func(value []byte) {
		ctx.SetContentType("application/octet-stream")
		ctx.SetBody(value)
	})
	if err != nil {
		ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetStatusCode(status)
}

// netHTTP is plain on net/http.
func (kv *keyValue) netHTTP() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("id")
		if id == "" {
			http.Error(w, "no id", http.StatusBadRequest)
			return
		}
		var body []byte
		var err error
		if r.Method == http.MethodPut {
			body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
		}
		status := http.StatusOK
		if err == nil {
			status, err = kv.do(r.Method, []byte(id), body, func(value []byte) {
				w.Header().Set("Content-Type", "application/octet-stream")
				w.Header().Set("Content-Length", strconv.Itoa(len(value)))
				_, _ = w.Write(value) // into its buffer; an error is the client's
			})
		}
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case status != http.StatusOK: // which has been written with the value
			w.WriteHeader(status)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "unknown path", http.StatusBadRequest)
	})
	return mux
}
