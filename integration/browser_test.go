//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// page is a page in a tab of a Chromium of its own. It must not ask for
// anything beyond its origin, nor complain in the console.
type page struct {
	t      testing.TB
	ctx    context.Context
	origin string

	mu       sync.Mutex
	requests []string // that left the origin
	errors   []string // of its script and of the browser's console
	refusals []string // what the console may say: see expect
}

// reboundName is a name that browsers of the tests take for this machine.
const reboundName = "rebound.example"

// openPage opens a page, as wide as asked for.
func openPage(t testing.TB, address string, width int64, media ...*emulation.MediaFeature) *page {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatal("chromium is missing: make deps")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience) // for all that is done with it
	t.Cleanup(cancel)
	// The profile is in a folder of chromedp's: a process of the browser may write
	// to it for a moment after the browser has ended, for which t.TempDir does not
	// wait when it removes its own.
	allocator, cancel := chromedp.NewExecAllocator(ctx,
		chromedp.ExecPath("chromium"), chromedp.WSURLReadTimeout(patience), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("host-resolver-rules", "MAP "+reboundName+" 127.0.0.1"))
	t.Cleanup(cancel)
	tab, _ := chromedp.NewContext(allocator)
	// It waits for the browser, which might be taken for a leak otherwise.
	t.Cleanup(func() { _ = chromedp.Cancel(tab) })
	u, err := url.Parse(address)
	require.NoError(t, err)
	p := &page{t: t, ctx: tab, origin: u.Scheme + "://" + u.Host}
	require.NoError(t, chromedp.Listen(tab, p.hear))
	p.do(
		command(network.Enable, network.EnableParams{}),
		command(log.Enable, cdp.Empty{}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: media}),
		chromedp.EmulateViewport(width, 900),
		chromedp.Navigate(address),
	)
	t.Cleanup(func() {
		p.mu.Lock()
		refusals, errors, requests := p.refusals, slices.Clone(p.errors), slices.Clone(p.requests)
		p.mu.Unlock()
		errors = slices.DeleteFunc(errors, func(e string) bool {
			return slices.ContainsFunc(refusals, func(refusal string) bool { return strings.Contains(e, refusal) })
		})
		require.Empty(t, errors, "errors in the browser's console")
		require.Empty(t, requests, "requests that left the origin")
	})
	return p
}

// command is one of the browser's own that answers nothing.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, c, params)
		return err
	})
}

// hear keeps what must not happen.
func (p *page) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, p.origin) && !strings.HasPrefix(u, "data:") {
			p.requests = append(p.requests, u)
		}
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, fmt.Sprint(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		p.errors = append(p.errors, fmt.Sprint(e.Type))
	case *log.EventEntryAdded:
		p.errors = append(p.errors, e.Entry.Text)
	}
}

// expect lets the browser complain in these words, of answers, or of their
// absence, that the test brings about.
func (p *page) expect(refusals ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = refusals
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, steps...))
}

// eval returns what an expression of JavaScript yields.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	require.NoError(p.t, err, expression)
	return v
}

// js runs statements of JavaScript.
func (p *page) js(statements string) {
	p.t.Helper()
	eval[bool](p, `(() => { `+statements+`; return true; })()`)
}

// picture keeps a screenshot.
func (p *page) picture(name string, shot chromedp.Action[[]byte]) {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, shot)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), png, 0o644))
}

// settle waits until what has changed is drawn.
func (p *page) settle() {
	p.t.Helper()
	_, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err)
}
