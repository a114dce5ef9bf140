//go:build integration

package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// What docs/first-five-minutes.md shows: the demo, and its console on screens of many
// kinds, in an overload, after the switch that helps, loaded again, and when the
// service has gone. The pictures are kept with the test's artifacts.
// SPILLWAY_PICTURES=../docs makes those of the docs anew.
func TestFirstFiveMinutes(t *testing.T) {
	t.Parallel()
	docs := os.Getenv("SPILLWAY_PICTURES")
	seconds := 3 // of history in the pictures
	if docs != "" {
		seconds = 30
	}
	d := startDemo(t)
	p := openPage(t, d.console, 1280)
	// on shows the page on another screen. It has drawn the state when it returns.
	on := func(width, height int64, features ...string) {
		media := []*emulation.MediaFeature{}
		for i := 0; i < len(features); i += 2 {
			media = append(media, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
		}
		p.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: media}), chromedp.EmulateViewport(width, height))
		now := eval[string](p, text("process"))
		p.until(fmt.Sprintf(`%s !== %q || document.body.classList.contains('stale')`, text("process"), now))
		p.settle()
		require.LessOrEqual(t, eval[int64](p, `document.documentElement.scrollWidth`), width)
		for _, nonsense := range []string{"NaN", "undefined", "[object"} {
			require.NotContains(t, eval[string](p, `document.body.innerText`), nonsense)
		}
	}
	keep := func(name string) {
		p.picture(name, chromedp.CaptureScreenshot())
		if docs == "" {
			return
		}
		shot, err := os.ReadFile(filepath.Join(t.ArtifactDir(), name+".png"))
		require.NoError(t, err)
		small := fewColours(t, shot)
		require.Less(t, len(small), 150<<10, name)
		require.NoError(t, os.WriteFile(filepath.Join(docs, name+".png"), small, 0o644))
	}
	// lasts waits for so many seconds of history under a strategy.
	lasts := func(strategy string) {
		require.Eventually(t, func() bool {
			resp, err := d.http.Get(d.console + "history")
			if err != nil {
				return false
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			return err == nil && strings.Count(string(body), fmt.Sprintf(`%q,`, strategy)) >= seconds
		}, patience, 200*time.Millisecond)
	}

	p.until(text("active") + ` === 'fifo' && ` + text("health") + ` === 'shedding'`)
	lasts("fifo")
	p.until(`!document.getElementById('verdict-switch').hidden && !document.getElementById('callers').hidden`)
	on(1280, 900, "prefers-color-scheme", "dark")
	keep("console-overload")
	on(1280, 1300, "prefers-color-scheme", "light", "prefers-contrast", "more")
	keep("console-contrast")
	on(360, 900, "prefers-color-scheme", "dark", "prefers-reduced-motion", "reduce")
	keep("console-phone")

	// The verdict says what helps, and its button does it.
	on(1280, 900, "prefers-color-scheme", "light")
	p.until(text("verdict-advice") + `.includes('auto')`)
	for !eval[bool](p, `document.getElementById('confirm').checkVisibility()`) { // a click misses what moves meanwhile
		p.do(chromedp.Click(chromedp.CSS("#verdict-switch")))
		p.settle()
	}
	p.do(chromedp.Click(chromedp.CSS("#confirm-yes")), chromedp.WaitNotVisible(chromedp.CSS("#confirm")))
	p.until(text("active") + ` === 'auto'`)
	lasts("auto")
	on(1280, 1520, "prefers-color-scheme", "light")
	keep("console")

	// Loaded again, it knows what happened before.
	p.do(chromedp.Reload())
	p.until(text("active") + ` === 'auto' && [...document.querySelectorAll('.chart')].every(e => e.querySelector('.switch'))`)
	on(1280, 900, "prefers-color-scheme", "light")
	keep("console-reloaded")

	p.expect("net::ERR_", "status of 503") // gone, or just going
	d.stop()
	p.until(text("health") + ` === 'no connection' && document.body.classList.contains('stale')`)
	on(1280, 900, "prefers-color-scheme", "light")
	keep("console-disconnected")
}

// fewColours returns a PNG picture in 256 of its colours, which takes a third of the
// bytes: of colours that are alike the commonest stands for all.
func fewColours(t *testing.T, shot []byte) []byte {
	t.Helper()
	whole, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	count := map[color.Color]int{}
	alike := map[[3]uint32]color.Color{}
	area := whole.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[whole.At(x, y)]++
		}
	}
	for c, n := range count {
		r, g, b, _ := c.RGBA()
		kind := [3]uint32{r >> 12, g >> 12, b >> 12}
		if n > count[alike[kind]] {
			alike[kind] = c
		}
	}
	colours := slices.SortedFunc(maps.Values(alike), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	reduced := image.NewPaletted(area, colours[:min(len(colours), 256)])
	draw.Draw(reduced, area, whole, area.Min, draw.Src)
	var small bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduced))
	return small.Bytes()
}

// demo is a running deploy/demo.sh.
type demo struct {
	t       *testing.T
	cmd     *exec.Cmd
	said    *output
	exited  chan struct{}
	console string
	http    *http.Client
}

// startDemo starts what make demo does, with the programs that the tests have built,
// and on free ports.
func startDemo(t *testing.T) *demo {
	t.Helper()
	for _, b := range []build{plain, labBinary} {
		_, err := b()
		require.NoError(t, err)
	}
	d := &demo{t: t, cmd: exec.Command("../deploy/demo.sh", binaries), said: new(output), exited: make(chan struct{}),
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}}
	d.cmd.Env = append(os.Environ(), "SPILLWAY_LISTEN=127.0.0.1:0", "SPILLWAY_ADMIN_LISTEN=127.0.0.1:0", "DEMO_SECONDS=3600", "TMPDIR="+t.TempDir())
	d.cmd.Stdout, d.cmd.Stderr = d.said, d.said
	require.NoError(t, startProcess(d.cmd, syscall.SIGTERM, d.exited))
	t.Cleanup(d.stop)
	address := regexp.MustCompile(`Open +(http://\S+)\n`) // the whole line
	require.Eventually(t, func() bool {
		select {
		case <-d.exited:
			return true
		default:
			return address.MatchString(d.said.String())
		}
	}, patience, 50*time.Millisecond)
	found := address.FindStringSubmatch(d.said.String())
	require.NotNil(t, found, d.said)
	d.console = found[1]
	return d
}

// stop ends the demo as a closed terminal does. It takes its processes with it.
func (d *demo) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
	case <-time.After(patience):
		d.t.Errorf("the demo does not end: %s", d.said)
		_ = d.cmd.Process.Kill()
	}
}
