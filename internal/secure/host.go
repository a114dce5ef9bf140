package secure

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// A page on the Internet can give its own name the address of this machine once
// it is loaded (DNS rebinding). To the browser the service is then of the page's
// origin, so that its script may read all answers and ask for anything. Only the
// name in Host gives it away: such a page cannot have an address or localhost for
// a name, which is what people type where no token is set. With a token such a
// page gets nothing, since it does not know it.

// BrowserMarks are header fields of which a browser sends one at least, and that no
// script can take off: the first two are not sent with every request to plain
// HTTP, the third is. Prometheus, curl and Go's client send none of them.
var BrowserMarks = [...]string{"Origin", "Sec-Fetch-Site", "Accept-Language"}

// OwnName reports whether host, which may have a port, is the literal of an IP
// address, or localhost or a name below it, which browsers take for this
// machine, or one of names, which are in lower case.
func OwnName(host string, names ...string) bool {
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
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(names, name)
}
