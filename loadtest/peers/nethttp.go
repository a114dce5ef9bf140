package peers

import (
	"io"
	"net/http"
	"strconv"
)

// maxValue is the longest value that nethttp takes, as the service does.
const maxValue = 1 << 20

// netHTTP is plain on net/http.
func (kv *keyValue) netHTTP() http.Handler {
	mux := http.NewServeMux()
	handle := func(method string, do func(w http.ResponseWriter, r *http.Request, id string) error) {
		mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
			id := r.URL.Query().Get("id")
			if id == "" {
				http.Error(w, "no id", http.StatusBadRequest)
				return
			}
			if err := do(w, r, id); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	handle(http.MethodGet, func(w http.ResponseWriter, _ *http.Request, id string) error {
		there := false
		err := kv.get([]byte(id), func(value []byte) {
			there = true
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(len(value)))
			_, _ = w.Write(value) // into its buffer; an error is the client's
		})
		if err == nil && !there {
			w.WriteHeader(http.StatusNotFound)
		}
		return err
	})
	handle(http.MethodPut, func(w http.ResponseWriter, r *http.Request, id string) error {
		value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
		if err != nil {
			return err
		}
		if err := kv.put([]byte(id), value); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	})
	handle(http.MethodDelete, func(w http.ResponseWriter, _ *http.Request, id string) error {
		if err := kv.remove([]byte(id)); err != nil {
			return err
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "unknown path", http.StatusBadRequest)
	})
	return mux
}
