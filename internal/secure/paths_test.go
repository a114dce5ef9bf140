package secure

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHideUser(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                                   "",
		"http://a:3000":                      "http://a:3000",
		"http://a/b,c":                       "http://a/b,c",
		"http://me:word@a:3000":              "http://xxxxx@a:3000",
		"http://me@a":                        "http://xxxxx@a",
		"me:word@a:3000":                     "xxxxx@a:3000",
		"https://m@e:w/o,r\nd@a":             "https://xxxxx@a",
		"http://a,http://me:word@b,http://c": "http://xxxxx@b,http://c",
	} {
		require.Equal(t, want, HideUser(s), s)
	}
}

func TestHidePaths(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                                "",
		"draining":                        "draining",
		"read/write mixed up, and/or not": "read/write mixed up, and/or not",
		"open /var/lib/spillway/data/000012.sst: no such file or directory":          "open 000012.sst: no such file or directory",
		"/srv/data: input/output error":                                              "data: input/output error",
		`cannot create "/var/lib/x/LOCK" (/var/lib/x is full)`:                       `cannot create "LOCK" (x is full)`,
		"rename /a/b/c /a/b/d: permission denied":                                    "rename c d: permission denied",
		"the store cannot write: mkdir /mnt/disk-1/data/: read-only file system; /x": "the store cannot write: mkdir data: read-only file system; x",
		"write data/000003.log: no space left on device":                             "write data/000003.log: no space left on device",
		"dir=/var/lib/spillway":                                                      "dir=spillway",
		"ask http://127.0.0.1:6060/readyz":                                           "ask http://127.0.0.1:6060/readyz",
	} {
		require.Equal(t, want, HidePaths(s), s)
	}
}
