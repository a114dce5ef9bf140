package secure

import (
	"path"
	"regexp"
)

// absolute is a path from the root, to the next byte that ends one in the errors
// of Go and Pebble.
var absolute = regexp.MustCompile(`(^|[^\w./~-])((?:/[^/\s:;,"'` + "`" + `()\[\]]+)+/?)`)

// user is what URLs, one or several, have of a user, up to the last. A broken one may have any byte in it.
var user = regexp.MustCompile(`(?s)^(.*?://)?.*@`)

// HideUser returns urls, which may be broken, without the name and password of a user.
func HideUser(urls string) string { return user.ReplaceAllString(urls, "${1}xxxxx@") }

// HidePaths leaves of each absolute path in s its last element: for those who may
// know what failed, but not where the service keeps its files.
func HidePaths(s string) string {
	return absolute.ReplaceAllStringFunc(s, func(found string) string {
		parts := absolute.FindStringSubmatch(found)
		return parts[1] + path.Base(parts[2])
	})
}
