package rules

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// MostUpstreams is how many upstreams there may be.
const MostUpstreams = 256

// Upstreams reads a list of URLs with commas between them: at least one, none twice, all without a path.
func Upstreams(list string) (urls []*url.URL, err error) {
	seen := map[string]bool{}
	for text := range strings.SplitSeq(list, ",") {
		u, err := upstream(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		key := u.Scheme + "://" + net.JoinHostPort(u.Hostname(), Port(u))
		switch {
		case seen[key]:
			return nil, fmt.Errorf("each only once, not %s twice", u)
		case len(urls) == MostUpstreams:
			return nil, fmt.Errorf("at most %d", MostUpstreams)
		}
		seen[key] = true
		urls = append(urls, u)
	}
	return urls, nil
}

func upstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "" {
		if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() == "" || err == nil && port > 0 {
			return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
		}
	}
	return nil, errors.New("http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:3000, without a path; several with commas between")
}

// Port returns the port of a URL, that of its scheme if it has none.
func Port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}
