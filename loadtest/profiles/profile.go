package profiles

import (
	"fmt"
	"strings"

	"github.com/google/pprof/profile"
)

// Parse reads a profile as the pprof endpoints give it, compressed or not.
func Parse(b []byte) (*profile.Profile, error) {
	p, err := profile.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("%d bytes that are no pprof profile: %w", len(b), err)
	}
	return p, nil
}

// frames returns the names of the functions of a stack, leaf first. Functions
// that were inlined have their own, and those that the compiler made to pass a
// method as a value have none.
func frames(s *profile.Sample) []string {
	names := make([]string, 0, 2*len(s.Location))
	for _, l := range s.Location {
		for _, line := range l.Line { // the innermost of inlined ones first
			if line.Function == nil {
				continue
			}
			if name := shorten(line.Function.Name); !strings.HasSuffix(name, "-fm") {
				names = append(names, name)
			}
		}
	}
	return names
}

// shorten returns a function's name without what only Go's tools need: where
// its package is hosted, the major version of its module, and the types of
// instances.
func shorten(name string) string {
	name, instance, generic := strings.Cut(name, "[")
	if generic {
		// Of name[types].method, the method is kept.
		name += instance[strings.LastIndexByte(instance, ']')+1:]
	}
	// A host has a dot in the first element of the path, which a package of
	// the standard library has only behind its name.
	host, rest, ok := strings.Cut(name, "/")
	if !ok || !strings.Contains(host, ".") {
		return name
	}
	if host == "github.com" {
		_, rest, _ = strings.Cut(rest, "/") // the owner
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return rest
	}
	// The element behind the module's name: v2.(*DB).Get, v2/record.(*LogWriter).Write.
	module, path := rest[:slash], rest[slash+1:]
	end := strings.IndexAny(path, "./")
	if end > 1 && path[0] == 'v' && strings.Trim(path[1:end], "0123456789") == "" {
		return module + path[end:]
	}
	return rest
}
