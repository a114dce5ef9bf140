package admin

import (
	"net/http"

	"github.com/spillway-go/spillway/internal/secure"
)

// misnamed reports whether a browser asks for this plane under a name that a
// page could have chosen. Programs may use any name.
func misnamed(r *http.Request) bool { return fromBrowser(r.Header) && !secure.OwnName(r.Host) }

func fromBrowser(h http.Header) bool {
	for _, mark := range secure.BrowserMarks {
		if _, there := h[mark]; there {
			return true
		}
	}
	return false
}
