package profiles

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse_NoProfile(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "404 page not found\n", "\x1f\x8b", "{}"} {
		_, err := Parse([]byte(content))
		require.ErrorContains(t, err, "no pprof profile", "%q", content)
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"runtime.mallocgc":       "runtime.mallocgc",
		"net/http.(*conn).serve": "net/http.(*conn).serve",
		"github.com/spillway-go/spillway/strategies/dispatch.(*workers).work":              "spillway/strategies/dispatch.(*workers).work",
		"github.com/valyala/fasthttp.(*RequestHeader).Read":                                "fasthttp.(*RequestHeader).Read",
		"github.com/cockroachdb/pebble/v2.(*DB).Get":                                       "pebble.(*DB).Get",
		"github.com/cockroachdb/pebble/v2/vfs.(*linuxFile).SyncData":                       "pebble/vfs.(*linuxFile).SyncData",
		"github.com/prometheus/client_golang/prometheus.(*counter).Inc":                    "client_golang/prometheus.(*counter).Inc",
		"golang.org/x/sys/unix.read":                                                       "x/sys/unix.read",
		"internal/sync.(*HashTrieMap[go.shape.interface {},go.shape.interface {}]).Load":   "internal/sync.(*HashTrieMap).Load",
		"slices.SortFunc[go.shape.[]uint8,go.shape.uint8]":                                 "slices.SortFunc",
		"github.com/RaduBerinde/btreemap.(*node[go.shape.[]github.com/a/b/v2.C]).ascend":   "btreemap.(*node).ascend",
		"github.com/cockroachdb/pebble/v2/internal/genericcache.(*shard[...]).findOrCreat": "pebble/internal/genericcache.(*shard).findOrCreat",
		"github.com/a/value.f":    "value.f",
		"github.com/a/b/values.f": "b/values.f",
		"github.com/":             "",
		"":                        "",
	} {
		require.Equal(t, want, shorten(name))
	}
}

func TestFlame(t *testing.T) {
	t.Parallel()
	// Of 10,000, a stack of 9 is not worth drawing, and what is parked is not
	// in the whole. A function may be there twice, below different callers.
	p := stacks(Block, `
		6000 sync.(*WaitGroup).Wait < github.com/cockroachdb/pebble/v2.(*Batch).SyncWait < root.b
		3000 sync.(*Mutex).Lock < spillway/strategies.(*fifo).Push < root.b
		500 spillway/strategies.(*fifo).Push < root.b
		491 sync.(*Mutex).Lock < root.a
		9 sync.(*Mutex).Lock < root.c
		123456 runtime.chanrecv1 < spillway/strategies/dispatch.(*workers).next < root.b
		0 runtime.chansend1 < root.b`)
	const want = `{
 "name": "block",
 "part": "other",
 "value": 10000,
 "children": [
  {
   "name": "root.a",
   "part": "other",
   "value": 491,
   "children": [
    {
     "name": "sync.(*Mutex).Lock",
     "part": "other",
     "value": 491
    }
   ]
  },
  {
   "name": "root.b",
   "part": "other",
   "value": 9500,
   "children": [
    {
     "name": "pebble.(*Batch).SyncWait",
     "part": "WAL and compaction",
     "value": 6000,
     "children": [
      {
       "name": "sync.(*WaitGroup).Wait",
       "part": "WAL and compaction",
       "value": 6000
      }
     ]
    },
    {
     "name": "spillway/strategies.(*fifo).Push",
     "part": "queueing and hand-over",
     "value": 3500,
     "children": [
      {
       "name": "sync.(*Mutex).Lock",
       "part": "queueing and hand-over",
       "value": 3000
      }
     ]
    }
   ]
  }
 ]
}`
	got, err := json.MarshalIndent(Flame(p, Block, true), "", " ")
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// TestFlame_WithoutAttribution: to the rules a server on net/http is an admin plane,
// which is left out of what serving costs.
func TestFlame_WithoutAttribution(t *testing.T) {
	t.Parallel()
	p := stacks(CPU, "7 github.com/cockroachdb/pebble/v2.(*DB).Get < net/http.(*conn).serve\n1 runtime.gcBgMarkWorker")
	require.Equal(t, int64(1), Flame(p, CPU, true).Value)
	root := Flame(p, CPU, false)
	require.Equal(t, int64(8), root.Value)
	own := make(map[Part]int64)
	sumOwn(t, root, own)
	require.Equal(t, int64(8), own[Other])
	require.Zero(t, Flame(stacks(Block, "7 runtime.chanrecv1 < main.main"), Block, false).Value, "who knows what waits for work")
}

// TestFlame_Recorded checks graphs of the real service against their
// attribution.
func TestFlame_Recorded(t *testing.T) {
	t.Parallel()
	for run, ps := range recorded(t) {
		for k, p := range ps {
			root := Flame(p, k, true)
			require.Equal(t, Attribute(p, k).Cost(), root.Value, "%s %s", run, k)
			own := make(map[Part]int64)
			sumOwn(t, root, own)
			// What is not drawn stays with callers, which may be another part.
			for part, v := range Attribute(p, k).Parts {
				if part != Admin && part != Parked {
					require.InDelta(t, v, own[part], 0.1*float64(root.Value), "%s %s %s", run, k, part)
				}
			}
		}
	}
}

// sumOwn adds what each frame has beyond its children to its part.
func sumOwn(t *testing.T, f *Frame, own map[Part]int64) {
	t.Helper()
	left := f.Value
	for _, child := range f.Children {
		left -= child.Value
		sumOwn(t, child, own)
	}
	require.GreaterOrEqual(t, left, int64(0), f.Name)
	own[f.Part] += left
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"fifo-put.block", "fifo-get.allocs"} {
		content, err := os.ReadFile("testdata/" + name + ".pb.gz")
		require.NoError(f, err)
		f.Add(content)
	}
	var plain bytes.Buffer
	require.NoError(f, stacks(CPU, "7 a < b").WriteUncompressed(&plain))
	f.Add(plain.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := Parse(content)
		if err != nil {
			return
		}
		for _, k := range Kinds {
			a := Attribute(p, k)
			var sum int64
			for _, v := range a.Parts {
				sum += v
			}
			require.Equal(t, a.Total, sum)
			require.Equal(t, Flame(p, k, true), Flame(p, k, true))
		}
	})
}
