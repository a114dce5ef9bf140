package admin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// A page on the Internet can give its own name the address of this machine once
// it is loaded (DNS rebinding). To the browser the admin plane is then of the
// page's origin, so that its script may read all answers and ask for anything.
// Only the name in Host gives it away: such a page cannot have an address or
// localhost for a name, which is what people type where no token is set. With a
// token such a page gets nothing, since it does not know it.

// misnamed reports whether a browser asks for this plane under a name that a
// page could have chosen. Programs may use any name.
func misnamed(r *http.Request) bool { return fromBrowser(r.Header) && !ownName(r.Host) }

// fromBrowser reports whether a request bears a mark of a browser that no script
// can take off: the first two are not sent with every request to plain HTTP, the
// third is. Prometheus, curl and Go's client send none of them.
func fromBrowser(h http.Header) bool {
	for _, mark := range []string{"Origin", "Sec-Fetch-Site", "Accept-Language"} {
		if _, there := h[mark]; there {
			return true
		}
	}
	return false
}

// ownName reports whether host, which may have a port, is the literal of an IP
// address, or localhost or a name below it, which browsers take for this
// machine.
func ownName(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	} else if n, ok := strings.CutPrefix(name, "["); ok {
		name = strings.TrimSuffix(n, "]")
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
