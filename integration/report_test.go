//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/report"
	loadresult "github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/sim/virtual"
)

// sampleReport writes a report of every kind of result, simulated, and returns its path.
var sampleReport = sync.OnceValues(func() (string, error) {
	at := func(name string) string { return filepath.Join(binaries, "report", name) }
	simulate := func(name string, settings scenario.Settings) (*lab.Comparison, error) {
		what, err := scenario.New(name, "A sample", "What does a report look like?", settings)
		if err != nil {
			return nil, err
		}
		what.Duration, what.Warmup, what.Repetitions = 500*time.Millisecond, 100*time.Millisecond, 4
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return lab.Compare(context.Background(), *what, lab.CompareOptions{Binary: self, Dir: at(name), Simulator: &virtual.Service{Built: "a test"}})
	}
	service := scenario.Settings{"workers": {"8"}, "capacity": {"1024"}, "store_delay": {"exp:200us"}, "connections": {"4000"}}
	with := func(more scenario.Settings) scenario.Settings {
		all := maps.Clone(service)
		maps.Copy(all, more)
		return all
	}
	rates, err := simulate("rates", with(scenario.Settings{
		"strategy": {"lifo", "fifo", "drop-oldest", "unbounded", "sync"}, "rate": {"0.5x", "0.8x", "1.1x", "1.5x", "2x"}, "mix": {"put=50,get=50"},
	}))
	if err != nil {
		return "", err
	}
	if _, err = simulate("mixes", with(scenario.Settings{
		"strategy": {"sync", "unbounded", "fifo", "lifo"}, "mix": {"put=100", "get=100"}, "connections": {"64"},
	})); err != nil {
		return "", err
	}
	found := &lab.Saturation{Command: "loadtest saturate", Share: 0.99, SLOMillis: 100, BreakingPointRPS: 32_000, Low: 32_000, High: 44_000, Limit: lab.LimitServer}
	for _, g := range rates.Groups {
		if g.Combination.Strategy != "fifo" {
			continue
		}
		for _, file := range g.Runs {
			r, err := loadresult.Load(filepath.Join(at("rates"), file))
			if err != nil {
				return "", err
			}
			share := r.GoodputRPS / r.OfferedRPS
			found.Steps = append(found.Steps, lab.Step{
				Rate: r.TargetRPS, OfferedRPS: r.OfferedRPS, CompletedRPS: r.CompletedRPS, GoodputRPS: r.GoodputRPS,
				GoodShare: share, Sustained: share >= 0.99, Latency: r.Latency,
			})
			r.ServerCPUMicros = new(37.3)
			r.CPUByPart = profiles.Costs{profiles.Network: 5e8, profiles.Queue: 1e8, profiles.Work: 3e8}
			if err := r.Save(at("run.json")); err != nil {
				return "", err
			}
		}
	}
	if err := loadresult.SaveJSON(at("saturation.json"), found); err != nil {
		return "", err
	}
	in, err := report.Load(at("rates"), at("mixes"), at("saturation.json"), at("run.json"))
	if err != nil {
		return "", err
	}
	var page bytes.Buffer
	if err := report.HTML(&page, in); err != nil {
		return "", err
	}
	return at("report.html"), os.WriteFile(at("report.html"), page.Bytes(), 0o644)
})

// openReport opens the sample report, as wide as asked for.
func openReport(t *testing.T, width int64, media ...*emulation.MediaFeature) *page {
	t.Helper()
	path, err := sampleReport()
	require.NoError(t, err)
	p := openPage(t, (&url.URL{Scheme: "file", Path: path}).String(), width, media...)
	p.do(chromedp.WaitReady(chromedp.CSS("figure[data-chart] svg")))
	return p
}

// drawing describes what a chart that is shown has drawn.
type drawing struct {
	Title string `json:"title"`
	Marks int    `json:"marks"`
	Text  string `json:"text"`  // of the drawing
	Wrong string `json:"wrong"` // a coordinate that is no number
}

// drawings describes all charts that are shown.
const drawings = `[...document.querySelectorAll('figure')].filter(f => f.offsetParent).map(f => {
	const drawn = f.querySelector('.plot svg');
	const wrong = drawn ? [...drawn.querySelectorAll('*')].flatMap(e => [...e.attributes]).find(a => /NaN|Infinity|undefined|null/.test(a.value)) : undefined;
	return {
		title: (f.querySelector('strong') ?? f.closest('section').querySelector('h3')).textContent,
		marks: drawn ? drawn.querySelectorAll('path, rect, circle, polygon').length : 0,
		text: drawn?.textContent ?? '',
		wrong: wrong ? wrong.name + '=' + wrong.value : '',
	};
})`

func (p *page) requireDrawn(charts int) {
	p.t.Helper()
	found := eval[[]drawing](p, drawings)
	require.GreaterOrEqual(p.t, len(found), charts)
	for _, d := range found {
		require.Positive(p.t, d.Marks, d.Title)
		require.Empty(p.t, d.Wrong, d.Title)
		require.NotContains(p.t, d.Text, "NaN", d.Title)
	}
}

func TestReport_Draws(t *testing.T) {
	t.Parallel()
	p := openReport(t, 1280)
	// Where all was served there is no second chart of that.
	p.requireDrawn(12)

	// The other workloads are drawn when they are chosen.
	tabs := eval[int](p, `document.querySelectorAll('[role=tab]').length`)
	require.Equal(t, 7, tabs)
	for i := range tabs {
		p.js(fmt.Sprintf(`document.querySelectorAll('[role=tab]')[%d].click()`, i))
		p.settle()
		p.requireDrawn(11)
	}

	// The data tables hold what is drawn.
	p.js(`document.querySelectorAll('details.numbers').forEach(d => { d.open = true })`)
	p.settle()
	require.NotContains(t, eval[[]int](p, `[...document.querySelectorAll('details.numbers')].map(d => d.querySelectorAll('tr').length)`), 0)
}

// untilTip points at something until the tooltip is shown: the page may scroll
// meanwhile, which hides it. Each time it points a step beside the last one.
func (p *page) untilTip(point func(step float64) chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	for step := 0.0; eval[bool](p, `document.getElementById('tip').hidden`); step = 1 - step {
		p.do(point(step))
		p.settle()
	}
}

func TestReport_ShowsValues(t *testing.T) {
	t.Parallel()
	p := openReport(t, 1280)
	const plot = `document.querySelector('figure[data-chart] svg[role=img]')`
	p.js(plot + `.scrollIntoView({ block: 'center', behavior: 'instant' })`)
	p.settle()
	p.untilTip(func(step float64) chromedp.Action[chromedp.Void] {
		at := eval[[]float64](p, `(() => { const b = `+plot+`.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()`)
		return chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0]+step, at[1])
	})
	require.Regexp(t, `offered [\d.,]+ k/s.*lifo.*/s`, eval[string](p, `document.getElementById('tip').textContent`))
	p.picture("hover", chromedp.CaptureScreenshot())

	// The same by keyboard, and away with it.
	p.js(plot + `.focus()`)
	p.do(chromedp.KeyEvent(kb.End))
	require.Regexp(t, `offered (7[89]|8\d)[\d.]* k/s`, eval[string](p, `document.getElementById('tip').textContent`))
	p.do(chromedp.KeyEvent(kb.ArrowLeft))
	require.Regexp(t, `offered (59|6[01])[\d.]* k/s`, eval[string](p, `document.getElementById('tip').textContent`))
	p.do(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(chromedp.CSS("#tip")))
}

func TestReport_ShowsValuesToTheFinger(t *testing.T) {
	t.Parallel()
	p := openReport(t, 390)
	p.do(chromedp.EmulateViewport(390, 900, chromedp.EmulateMobile, chromedp.EmulateTouch))
	p.settle()
	const plot = `document.querySelector('figure[data-chart] svg[role=img]')`
	p.js(plot + `.scrollIntoView({ block: 'center', behavior: 'instant' })`)
	p.settle()
	p.untilTip(func(step float64) chromedp.Action[chromedp.Void] {
		at := eval[[]float64](p, `(() => { const b = `+plot+`.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()`)
		return chromedp.TapXY(at[0]+step, at[1])
	})
	require.Regexp(t, `offered [\d.,]+ k/s.*lifo.*/s`, eval[string](p, `document.getElementById('tip').textContent`))
}

// The documentation's pictures are charts of reports.
func TestReport_GivesChartsForOtherPages(t *testing.T) {
	t.Parallel()
	path, err := sampleReport()
	require.NoError(t, err)
	for title, want := range map[string]int{"Goodput against": 1, "Goodput over time": 7} {
		p := openPage(t, (&url.URL{Scheme: "file", Path: path, Fragment: "svg=" + title}).String(), 1280)
		p.expect("style") // which the page's own policy does not let in: it is for where the chart goes
		content := eval[string](p, `document.documentElement.outerHTML`)
		require.Regexp(t, `^<svg xmlns=.*role="img".*aria-label="`+title+`[^"]*fifo[^"]* ends at [^"]*"`, content)
		require.Contains(t, content, "prefers-color-scheme: dark")
		require.NotContains(t, content, "NaN")
		var drawn struct {
			Charts []struct {
				Lines []struct{} `xml:"path"`
			} `xml:"svg"`
			Text []string `xml:"text"`
		}
		require.NoError(t, xml.Unmarshal([]byte(content), &drawn))
		charts := slices.DeleteFunc(drawn.Text, func(text string) bool { return !strings.HasPrefix(text, title) })
		require.Len(t, charts, want)
		require.NotEmpty(t, drawn.Charts[0].Lines)
	}
}

func TestReport_FitsEveryPage(t *testing.T) {
	t.Parallel()
	dark := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: "dark"}
	light := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: "light"}
	background := func(p *page) string { return eval[string](p, `getComputedStyle(document.body).backgroundColor`) }
	for _, c := range []struct {
		name   string
		width  int64
		scheme *emulation.MediaFeature
		want   string
	}{
		{"light", 1280, light, "rgb(255, 255, 255)"},
		{"dark", 1280, dark, "rgb(20, 23, 27)"},
		{"phone", 390, light, "rgb(255, 255, 255)"},
		{"phone-dark", 390, dark, "rgb(20, 23, 27)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := openReport(t, c.width, c.scheme)
			p.settle()
			require.Equal(t, c.want, background(p))
			require.LessOrEqual(t, eval[int64](p, `document.documentElement.scrollWidth`), c.width)
			require.Empty(t, eval[string](p, `[...document.querySelectorAll('.scroll.beyond caption')].filter(c => {
				const text = document.createRange();
				text.selectNodeContents(c);
				return text.getBoundingClientRect().right > innerWidth - 48;
			}).map(c => c.textContent).join('; ')`), "captions end before their tables fade")
			p.requireDrawn(12)
			p.picture(c.name, chromedp.FullScreenshot(100))

			// On paper it is light, and nothing is wider than it.
			p.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print", Features: []*emulation.MediaFeature{c.scheme}}))
			require.Equal(t, "rgb(255, 255, 255)", background(p))
			p.do(chromedp.EmulateViewport(700, 900))
			p.settle()
			require.LessOrEqual(t, eval[int64](p, `document.documentElement.scrollWidth`), int64(700))
			p.requireDrawn(12)
			p.picture(c.name+"-print", chromedp.FullScreenshot(100))
		})
	}
}
