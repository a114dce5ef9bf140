//go:build integration

package integration

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// until waits for something on the page.
func (p *page) until(condition string) {
	p.t.Helper()
	_, err := chromedp.Run(p.ctx, chromedp.Poll[bool](condition, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	require.NoError(p.t, err, condition)
}

// text is an expression for what an element of the page says.
func text(id string) string { return fmt.Sprintf(`document.getElementById(%q).textContent`, id) }

// console opens the console of a service.
func (s *service) console(width int64, media ...*emulation.MediaFeature) *page {
	s.t.Helper()
	return openPage(s.t, s.adminURL("/"), width, media...)
}

// overload has clients send up to 100 requests a second each, until the test
// ends, and returns what stops them. To be an overload, that must be more than
// the workers can do, and the clients more than the queue has room for.
func (s *service) overload(clients int) (stop func()) {
	s.t.Helper()
	var stopped atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- concurrently(clients, func(i int) error {
			c, err := dial(s.data)
			if err != nil {
				return err
			}
			defer c.close()
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for !stopped.Load() {
				<-pace.C
				if _, err := c.do(http.MethodPut, entity(fmt.Sprintf("k%03d", i)), "v"); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	stop = func() {
		if !stopped.Swap(true) {
			require.NoError(s.t, <-done)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// watched reports whether the service sends states to consoles.
func (s *service) watched() bool {
	return strings.Contains(s.request(http.MethodGet, s.adminURL("/debug/pprof/goroutine?debug=1"), "").body, "(*feed).serve")
}

// What the page shows is what happens: the requests that come, wait, are worked
// on, answered and turned away; and afterwards that it is over.
func TestConsole_Moves(t *testing.T) {
	t.Parallel()
	s := start(t, plain, "SPILLWAY_STRATEGY=fifo", "SPILLWAY_WORKERS=2", "SPILLWAY_QUEUE_CAPACITY=8", "SPILLWAY_STORE_DELAY=5ms")
	p := s.console(1280)
	p.until(text("health") + ` === 'serving' && ` + text("arrivals") + ` === '0/s'`)
	p.until(`document.getElementById('active').textContent === 'fifo'`)
	p.picture("idle", chromedp.FullScreenshot(100))

	stop := s.overload(24)
	p.until(text("health") + ` === 'shedding'`)
	p.until(`parseFloat(` + text("arrivals") + `) > 0 && parseFloat(` + text("good") + `) > 0`)
	p.until(`[...document.querySelectorAll('#sheds li.on')].some(e => /^full [\d.k]+\/s$/.test(e.textContent))`)
	p.until(`/full[\d.]+% of the answers of the last 10 s\. Each request found no room.*queue.*waited, of at most 8\./.test(` + text("why") + `)`)
	p.until(`/(more arrives than|as much arrives as) 2 workers can do/.test(` + text("verdict-text") + `)`)
	p.until(text("busy") + ` === '2' && ` + text("depth") + ` !== '0'`)
	p.until(`document.querySelectorAll('#slowest tr').length > 5 && /PUT, key 4 B, value 1 B/.test(` + text("slowest") + `)`)
	p.until(`/latency, last 10 s[\d.]+ .?s/.test(` + text("percentiles") + `)`)
	p.until(`[...document.querySelectorAll('.chart')].every(e => e.querySelector('path').getAttribute('d').length > 50)`)
	require.NotContains(t, eval[string](p, `document.getElementById('main').innerHTML`), "NaN")
	require.NotContains(t, eval[string](p, `document.getElementById('main').innerHTML`), "undefined")

	// The values of a chart can be read by keyboard.
	p.do(chromedp.Focus(chromedp.CSS("#queue")), chromedp.KeyEvent(kb.End))
	p.until(`/^\d+:\d\d:\d\d.* · fifo\nwaiting \d/.test(document.querySelector('#queue .tip:not([hidden])')?.textContent)`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`document.querySelector('#queue .tip').hidden`)

	// The picture itself moves.
	const pixels = `document.getElementById('picture').toDataURL()`
	before := eval[string](p, pixels)
	p.until(fmt.Sprintf(`%s !== %q`, pixels, before))
	p.picture("load", chromedp.FullScreenshot(100))

	stop()
	p.until(text("arrivals") + ` === '0/s' && ` + text("depth") + ` === '0' && ` + text("health") + ` === 'serving'`)
	p.until(text("announce") + `.includes('normally again')`)
	p.until(text("verdict-text") + ` === 'Nothing arrives.'`)
	p.until(`document.getElementById('why').hidden`)
}

// The figures of the cache of values stand among those of the store, where there is one.
func TestConsole_ValueCache(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, setting, shown string
	}{
		{"with", "SPILLWAY_CACHE_BYTES=1MiB", `/value cache hits(\d+%|–)value cache[1-9][\d.]* [KM]?i?Bblock cache hits/.test(` + text("store") + `)`},
		{"without", "SPILLWAY_CACHE_BYTES=4KiB", `/read amplification\d+block cache hits/.test(` + text("store") + `)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, plain, test.setting)
			s.mixedLoad()
			p := s.console(1280)
			p.until(test.shown)
			require.NotContains(t, eval[string](p, `document.getElementById('main').innerHTML`), "NaN")
			p.picture("value-cache-"+test.name, chromedp.FullScreenshot(100))
		})
	}
}

// A learned number that is only observed holds nobody back, and the page does not say that
// so many workers do.
func TestConsole_LearnedAndObserved(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"enforce": `/^of \d+ workers?, learned$/.test(` + text("workers") + `) && /^learned: \d+ at once/.test(` + text("learned") + `)`,
		"observe": text("workers") + ` === 'nobody is held back' && /^not learned \(in observe mode/.test(` + text("learned") + `)`,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := start(t, plain, "SPILLWAY_WORKERS=auto", "SPILLWAY_MODE="+mode, "SPILLWAY_STORE_DELAY=5ms")
			p := s.console(1280)
			p.until(want)
			stop := s.overload(24)
			p.until(`parseFloat(` + text("arrivals") + `) > 0 && ` + want)
			require.NotContains(t, eval[string](p, `document.getElementById('main').innerHTML`), "NaN")
			p.picture("learned-"+mode, chromedp.FullScreenshot(100))
			stop()
		})
	}
}

// The strategy is switched once that is confirmed, and not before; a refusal is
// shown; a switch by others is, too.
func TestConsole_Switches(t *testing.T) {
	t.Parallel()
	s := start(t, plain, "SPILLWAY_STRATEGY=fifo", "SPILLWAY_SLO=")
	p := s.console(1280)
	p.until(text("health") + ` === 'serving'`)
	strategy := func() string {
		return s.request(http.MethodGet, s.adminURL("/strategy"), "").body[:len(`{"strategy":"fifo"`)]
	}
	choose := func(name string) {
		p.do(chromedp.Click(chromedp.CSS("#choose")), chromedp.WaitVisible(chromedp.CSS("#confirm")))
		require.True(t, eval[bool](p, `document.getElementById('confirm-yes').disabled`), "the present one is chosen")
		p.do(chromedp.Click(chromedp.CSS("#choices input[value=" + name + "]")))
	}
	choose("lifo")
	require.Equal(t, "Switch to lifo", eval[string](p, text("confirm-yes")))
	// All are described, one is recommended, and the present one is marked.
	require.Equal(t, len(strategies.Names()), eval[int](p, `[...document.querySelectorAll('#choices label')].filter(e => e.querySelector('span').textContent.length > 20).length`))
	require.Equal(t, []string{"autorecommended", "fifonow"}, eval[[]string](p, `[...document.querySelectorAll('#choices b')].map(e => e.textContent).filter(t => /recommended|now$/.test(t))`))
	p.picture("confirm", chromedp.CaptureScreenshot())
	p.do(chromedp.Click(chromedp.CSS("#confirm-no")), chromedp.WaitNotVisible(chromedp.CSS("#confirm")))
	require.Equal(t, `{"strategy":"fifo"`, strategy())
	p.until(`document.getElementById('active').textContent === 'fifo'`)

	choose("lifo")
	p.do(chromedp.Click(chromedp.CSS("#confirm-yes")), chromedp.WaitNotVisible(chromedp.CSS("#confirm")))
	require.Equal(t, `{"strategy":"lifo"`, strategy())
	p.until(text("announce") + ` === 'The strategy is now lifo.' && document.title.startsWith('lifo')`)

	s.switchTo("mpmc")
	p.until(`document.getElementById('active').textContent === 'mpmc'`)

	// Objective and mode change alone, too.
	p.until(text("objective") + `.startsWith('objective: 100ms (none is set')`)
	p.do(chromedp.Click(chromedp.CSS("#choose")), chromedp.WaitVisible(chromedp.CSS("#confirm")))
	p.do(chromedp.SendKeys(chromedp.CSS("#slo"), "250ms"), chromedp.SetValue(chromedp.CSS("#mode"), "observe"))
	p.until(text("confirm-yes") + ` === 'Change' && !document.getElementById('confirm-yes').disabled`)
	p.picture("objective", chromedp.CaptureScreenshot())
	p.do(chromedp.Click(chromedp.CSS("#confirm-yes")), chromedp.WaitNotVisible(chromedp.CSS("#confirm")))
	p.until(text("announce") + ` === 'The objective is 250ms, the mode observe.' && ` + text("objective") + ` === 'objective: 250ms (it is set)'`)
	p.until(text("summary") + `.endsWith('observe mode: it turns nothing away')`)
	require.Contains(t, s.request(http.MethodGet, s.adminURL("/strategy"), "").body, `{"strategy":"mpmc","mode":"observe"`)

	p.expect("status of 400")
	choose("fifo")
	p.js(`document.querySelector('#choices input:checked').value = 'none-such'`)
	p.do(chromedp.Click(chromedp.CSS("#confirm-yes")))
	p.until(`/Not switched: .*none-such.*fifo/.test(` + text("confirm-error") + `)`)
}

// A tab that nobody sees costs nothing, and goes on when it is seen again. So
// does one that was paused.
func TestConsole_Pauses(t *testing.T) {
	t.Parallel()
	s := start(t, plain)
	require.False(t, s.watched())
	p := s.console(1280)
	p.until(text("health") + ` === 'serving'`)
	s.eventually("the service is watched", s.watched)

	unwatched := func() bool { return !s.watched() }
	other, err := chromedp.CallBrowser(p.ctx, target.CreateTarget, target.CreateTargetParams{URL: "about:blank"})
	require.NoError(t, err)
	p.until(`document.hidden`)
	s.eventually("a hidden console does not watch", unwatched)
	_, err = chromedp.CallBrowser(p.ctx, target.CloseTarget, target.CloseTargetParams(other))
	require.NoError(t, err)
	p.until(`!document.hidden`)
	s.eventually("a console that is seen again watches", s.watched)

	p.do(chromedp.Click(chromedp.CSS("#pause")))
	s.eventually("a paused console does not watch", unwatched)
	require.Equal(t, "paused", eval[string](p, text("health")))
	p.do(chromedp.Click(chromedp.CSS("#pause")))
	s.eventually("a console that was resumed watches", s.watched)
	p.until(text("health") + ` === 'serving'`)
}

// The page asks for the token, says if it is wrong, and keeps the right one for
// as long as the tab is there.
func TestConsole_Token(t *testing.T) {
	t.Parallel()
	s := start(t, plain, "SPILLWAY_ADMIN_TOKEN=for-admins")
	p := s.console(1280)
	p.expect("status of 401")
	enter := func(token string) {
		p.do(chromedp.WaitVisible(chromedp.CSS("#login")), chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	}
	enter("wrong")
	p.until(`/not the token/.test(` + text("login-error") + `)`)
	p.picture("login", chromedp.CaptureScreenshot())
	enter("for-admins")
	p.until(`!document.getElementById('login').open && ` + text("health") + ` === 'serving'`)
	p.do(chromedp.Reload())
	p.until(text("health") + ` === 'serving'`)
	require.False(t, eval[bool](p, `document.getElementById('login').open`))
}

// A page that gave its own name the address of this machine gets nothing, to read
// or to change, without a token. With one, people may use names.
func TestConsole_Rebinding(t *testing.T) {
	t.Parallel()
	rebound := func(s *service) *page {
		_, port, err := net.SplitHostPort(s.admin)
		require.NoError(t, err)
		p := openPage(t, "http://"+net.JoinHostPort(reboundName, port)+"/", 800)
		p.expect("status of 40")
		return p
	}
	ask := func(p *page, path, options string) int {
		status, err := chromedp.Run(p.ctx, chromedp.Evaluate[int](fmt.Sprintf(`fetch(%q, %s).then(answer => answer.status)`, path, options), chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		return status
	}
	s := start(t, plain)
	p := rebound(s)
	require.Contains(t, eval[string](p, `document.body.textContent`), "SPILLWAY_ADMIN_TOKEN")
	// To plain HTTP a GET bears none of the marks made for this, and its script
	// tries to hide the one that is left.
	require.Equal(t, http.StatusForbidden, ask(p, "/debug/pprof/heap", `{headers: {'Accept-Language': '', 'User-Agent': 'curl'}, referrerPolicy: 'no-referrer', credentials: 'omit'}`))
	require.Equal(t, http.StatusForbidden, ask(p, "/strategy", `{method: 'PUT', body: '{"strategy":"lifo"}'}`))

	named := rebound(start(t, plain, "SPILLWAY_ADMIN_TOKEN=for-admins"))
	named.do(chromedp.WaitVisible(chromedp.CSS("#login")), chromedp.SendKeys(chromedp.CSS("#token"), "for-admins\r"))
	named.until(text("health") + ` === 'serving'`)
}

// The console says when the service has gone, and comes back with it by itself.
func TestConsole_ServiceGoes(t *testing.T) {
	t.Parallel()
	// Nobody else takes a port of this address between the two services.
	s := start(t, plain, "SPILLWAY_ADMIN_LISTEN=127.0.0.77:0")
	p := s.console(1280)
	p.until(text("health") + ` === 'serving'`)
	p.expect("net::ERR_", "status of 503") // gone, or just going
	s.stop()
	p.until(text("health") + ` === 'no connection' && !document.getElementById('notice').hidden`)
	p.until(`document.body.classList.contains('stale') && document.getElementById('choose').disabled`)
	p.picture("disconnected", chromedp.FullScreenshot(100))

	start(t, plain, "SPILLWAY_ADMIN_LISTEN="+s.admin, "SPILLWAY_STRATEGY=lifo")
	p.until(text("health") + ` === 'serving' && document.getElementById('notice').hidden && !document.body.classList.contains('stale') && document.getElementById('active').textContent === 'lifo'`)
}

// What happened before the console was opened, and before it was loaded again, is
// there at once, and says when it was; the verdict offers what helps.
func TestConsole_Remembers(t *testing.T) {
	t.Parallel()
	s := start(t, plain, "SPILLWAY_STRATEGY=fifo", "SPILLWAY_WORKERS=2", "SPILLWAY_QUEUE_CAPACITY=64", "SPILLWAY_STORE_DELAY=5ms", "SPILLWAY_SLO=50ms")
	s.overload(128)
	seconds := func(n int) func() bool {
		return func() bool {
			return strings.Count(s.request(http.MethodGet, s.adminURL("/history"), "").body, `"fifo",`) >= n
		}
	}
	s.eventually("there is a history", seconds(4))
	p := s.console(1280)
	const drawn = `document.querySelector('#queue path')?.getAttribute('d').match(/[ML]/g).length`
	p.until(drawn + ` >= 8`) // there and back
	p.until(`document.getElementById('verdict-switch').textContent === 'Switch to auto…'`)
	p.do(chromedp.Reload())
	p.until(drawn + ` >= 8`)
	p.picture("reloaded", chromedp.FullScreenshot(100))
	p.until(`/ · up \d+ s · CPU [\d.]+% of \d+ · [\d.]+ MiB/.test(` + text("process") + `)`)

	p.do(chromedp.Click(chromedp.CSS("#verdict-switch")), chromedp.WaitVisible(chromedp.CSS("#confirm")))
	p.do(chromedp.Click(chromedp.CSS("#confirm-yes")), chromedp.WaitNotVisible(chromedp.CSS("#confirm")))
	p.until(text("active") + ` === 'auto'`)
	s.request(http.MethodGet, s.adminURL("/history?seconds=nonsense"), "").requireProblem(t, http.StatusBadRequest)
}

// What clients call themselves is shown as text, and split pools as two.
func TestConsole_Callers(t *testing.T) {
	t.Parallel()
	s := start(t, plain, "SPILLWAY_STRATEGY=fifo", "SPILLWAY_POOLS=split", "SPILLWAY_WORKERS=3")
	p := s.console(1280)
	p.until(text("health") + ` === 'serving'`)
	require.True(t, eval[bool](p, `document.getElementById('callers').hidden`), "nobody has said who he is")
	s.eventually("they are shown", func() bool { // for some seconds after each request
		s.request(http.MethodPut, s.dataURL("/v0/entity?id=k"), "v", "Spillway-Client: <img src=x onerror=alert(1)>", "Spillway-Priority: 6")
		return eval[bool](p, `/client <img src=x onerror=alert\(1\)>/.test(`+text("callers-rows")+`) && /priority 6/.test(`+text("callers-rows")+`)`)
	})
	require.Zero(t, eval[int](p, `document.querySelectorAll('main img').length`))
	p.until(text("workers") + ` === 'reads 0 of 2, writes 0 of 1'`)
	require.Equal(t, "reads 0 of 256, writes 0 of 256", eval[string](p, text("capacity")))
	p.picture("split", chromedp.FullScreenshot(100))
}

// The page fits, moves only where that is wanted, and can be used by keyboard.
func TestConsole_Fits(t *testing.T) {
	t.Parallel()
	s := start(t, plain, "SPILLWAY_STRATEGY=fifo", "SPILLWAY_WORKERS=2", "SPILLWAY_QUEUE_CAPACITY=8", "SPILLWAY_STORE_DELAY=5ms")
	s.overload(24)
	feature := func(name, value string) *emulation.MediaFeature {
		return &emulation.MediaFeature{Name: name, Value: value}
	}
	for _, test := range []struct {
		name  string
		width int64
		still bool
		media []*emulation.MediaFeature
	}{
		{"light", 1280, false, []*emulation.MediaFeature{feature("prefers-color-scheme", "light")}},
		{"dark", 1280, false, []*emulation.MediaFeature{feature("prefers-color-scheme", "dark")}},
		{"contrast", 1280, false, []*emulation.MediaFeature{feature("prefers-contrast", "more")}},
		{"forced-colors", 1280, false, []*emulation.MediaFeature{feature("forced-colors", "active")}},
		{"tablet", 800, false, nil},
		{"phone", 360, true, []*emulation.MediaFeature{feature("prefers-color-scheme", "dark"), feature("prefers-reduced-motion", "reduce")}},
	} {
		p := s.console(test.width, test.media...)
		p.until(text("health") + ` === 'shedding' && document.querySelectorAll('#slowest tr').length > 5`)
		require.LessOrEqual(t, eval[int64](p, `document.documentElement.scrollWidth`), test.width, test.name)
		p.picture(test.name, chromedp.FullScreenshot(100))
		if test.still {
			p.js(`window.frames = 0; const asked = requestAnimationFrame; requestAnimationFrame = (f) => { window.frames++; return asked(f) }`)
			now := eval[string](p, text("process")) // which says for how long
			p.until(fmt.Sprintf(`%s !== %q`, text("process"), now))
			require.Zero(t, eval[int](p, `window.frames`), "nothing is animated")
		}
		// Everything that can be used can be reached, and says what it is.
		require.Empty(t, eval[[]string](p, `[...document.querySelectorAll('button, select, input, a, [role=img], section, table')]
			.filter(e => e.matches('table, section') ? !e.closest('section[aria-labelledby]') : !(e.textContent.trim() || e.labels?.length || e.ariaLabel))
			.map(e => e.outerHTML)`), test.name)
	}
}

// One viewer costs less than half a percent of a CPU more than none, and none
// nothing.
func TestConsole_CPU(t *testing.T) {
	t.Parallel()
	const seconds = 8
	s := start(t, plain)
	for i := range 4 { // what happens once happens before
		_, err := s.dial().do("PUT", entity(fmt.Sprint("k", i)), "v")
		require.NoError(t, err)
	}
	measure := func() float64 {
		before, begin := s.cpuTime(), time.Now()
		<-time.After(seconds * time.Second)
		return float64(s.cpuTime()-before) / float64(time.Since(begin))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.adminURL("/console/events"), nil)
	require.NoError(t, err)
	// The best of six counts, since what the kernel accounts has some noise.
	var shares []float64
	for range 6 {
		none := measure()
		resp, err := new(http.Client).Do(req)
		require.NoError(t, err)
		frames := make(chan int)
		go func() {
			n := 0
			for events := bufio.NewScanner(resp.Body); events.Scan(); {
				if events.Text() == "event: state" {
					n++
				}
			}
			frames <- n
		}()
		one := measure()
		_ = resp.Body.Close()
		n := <-frames
		require.Positive(t, n)
		t.Logf("share of a CPU: %.4f with one viewer, who got %d states, %.4f with none", one, n, none)
		shares = append(shares, one-none)
		if one-none < 0.005 {
			break
		}
	}
	require.Less(t, shares[len(shares)-1], 0.005)
}
