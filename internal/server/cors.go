package server

// cors are the header lines by which pages of other origins may read answers
// (https://fetch.spec.whatwg.org/#http-cors-protocol), by origin. Under the origin ""
// are those for everybody else. It is nil if there are no such origins.
type cors map[string]string

func newCORS(origins []string) cors {
	if len(origins) == 0 {
		return nil
	}
	// A cache must not give one page the answer to another.
	const vary = "Vary: Origin\r\n"
	c := cors{"": vary}
	for _, o := range origins {
		c[o] = "Access-Control-Allow-Origin: " + o + "\r\n" +
			"Access-Control-Expose-Headers: ETag, Retry-After, Spillway-Shed, Spillway-Ttl\r\n" + vary
	}
	return c
}

// lines returns the header lines for a request, and whether its origin is one of
// those that may call.
func (c cors) lines(origin []byte) (lines string, allowed bool) {
	if c == nil {
		return "", false
	}
	if lines, allowed = c[string(origin)]; allowed && len(origin) > 0 {
		return lines, true
	}
	return c[""], false
}

// preflight is the answer to a browser that asks whether a page may send a request,
// but for the lines of its origin. It may ask again after ten minutes.
var preflight = []byte("Access-Control-Allow-Methods: GET, HEAD, PUT, POST, DELETE\r\n" +
	"Access-Control-Allow-Headers: Authorization, Content-Type, If-Match, If-None-Match, Priority, " +
	"Spillway-Client, Spillway-Consistency, Spillway-Priority, Spillway-Timeout-Ms, Spillway-Ttl\r\n" +
	"Access-Control-Max-Age: 600\r\n")
