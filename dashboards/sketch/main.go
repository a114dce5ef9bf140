// Command sketch draws the Grafana boards as pages, from the data of a running
// Prometheus: for documentation, and to look at a board without a Grafana. It
// lays panels out as Grafana does and asks what Grafana asks; the drawing is its
// own, and simpler.
//
//	go run ./dashboards/sketch -prometheus http://127.0.0.1:9090 -out boards
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/dashboards"
)

func main() {
	address := flag.String("prometheus", "http://127.0.0.1:9090", "where Prometheus answers")
	out := flag.String("out", "boards", "folder for the pages")
	span := flag.Duration("span", 3*time.Minute, "how much of the past is drawn")
	flag.Parse()
	if err := run(*address, *out, *span); err != nil {
		fmt.Fprintln(os.Stderr, "sketch:", err)
		os.Exit(1)
	}
}

func run(address, out string, span time.Duration) error {
	boards, err := dashboards.Load()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	s := source{address: address, end: time.Now(), span: span}
	for i := range boards {
		page, err := s.board(&boards[i])
		if err != nil {
			return fmt.Errorf("%s: %w", boards[i].File, err)
		}
		file := filepath.Join(out, strings.TrimSuffix(boards[i].File, ".json")+".html")
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			return err
		}
		fmt.Println(file)
	}
	return nil
}

// source is a Prometheus, asked for a span of time.
type source struct {
	address string
	end     time.Time
	span    time.Duration
}

// series is a result: its labels and its values over time.
type series struct {
	Metric map[string]string
	Values [][2]any
	name   string
}

func (s *source) ask(path string, query url.Values, data any) error {
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Get(s.address + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", query.Get("query"), answer.Error)
	}
	return nil
}

// variables fills in those of a board, all values of each.
func (s *source) variables(d *dashboards.Dashboard) (*strings.Replacer, error) {
	fill := []string{"$__rate_interval", "20s", "$__range", s.span.String()}
	for _, v := range d.Templating.List {
		selector, label, ok := v.LabelValues()
		if !ok {
			continue
		}
		var values []string
		if err := s.ask("label/"+label+"/values", url.Values{"match[]": {strings.NewReplacer(fill...).Replace(selector)}}, &values); err != nil {
			return nil, err
		}
		fill = append(fill, "$"+v.Name, v.InterpolateAll(values))
	}
	return strings.NewReplacer(fill...), nil
}

const style = `body{margin:0;padding:12px;background:#f4f5f8;color:#1f2733;font:13px system-ui,sans-serif}
h1{font-size:18px;margin:0 0 10px}.board{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:30px;gap:6px}
.panel{background:#fff;border:1px solid #dfe3ea;border-radius:3px;padding:6px 10px;overflow:hidden;display:flex;flex-direction:column;min-width:0}
.row{border:0;background:none;font-weight:600;padding:4px 0}.panel h2{font-size:12.5px;margin:0 0 2px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.big{font-size:26px;font-weight:600;margin:auto;color:#1d6b45}svg{flex:1;min-height:0;width:100%}
.legend{font-size:10.5px;color:#56636f;max-height:28px;overflow:hidden}.legend i{display:inline-block;width:9px;height:3px;margin:0 3px 2px 8px}
table{font-size:11px;border-collapse:collapse}td{padding:1px 8px 1px 0;border-top:1px solid #eef}`

var colors = []string{"#2a74b5", "#1b7f4b", "#c2371b", "#995a00", "#7a3fb0", "#0f8a8a", "#b03a76", "#5b6770"}

func (s *source) board(d *dashboards.Dashboard) (string, error) {
	fill, err := s.variables(d)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<!DOCTYPE html><meta charset=utf-8><title>%s</title><style>%s</style><h1>%s</h1><div class=board>", html.EscapeString(d.Title), style, html.EscapeString(d.Title))
	for i := range d.Panels {
		p := &d.Panels[i]
		g := p.GridPos
		class := "panel"
		if p.Type == "row" {
			class = "panel row"
		}
		fmt.Fprintf(&b, `<div class="%s" style="grid-area:%d/%d/span %d/span %d"><h2>%s</h2>`, class, g.Y+1, g.X+1, g.H, g.W, html.EscapeString(strings.ReplaceAll(p.Title, "$strategy", "All")))
		if p.Type != "row" {
			body, err := s.panel(p, fill)
			if err != nil {
				return "", err
			}
			b.WriteString(body)
		}
		b.WriteString("</div>")
	}
	b.WriteString("</div>")
	return b.String(), nil
}

var placeholder = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

func (s *source) panel(p *dashboards.Panel, fill *strings.Replacer) (string, error) {
	var all []series
	for _, t := range p.Targets {
		var data struct{ Result []series }
		err := s.ask("query_range", url.Values{
			"query": {fill.Replace(t.Expr)}, "step": {"2"},
			"start": {strconv.FormatInt(s.end.Add(-s.span).Unix(), 10)}, "end": {strconv.FormatInt(s.end.Unix(), 10)},
		}, &data)
		if err != nil {
			return "", err
		}
		for _, r := range data.Result {
			r.name = placeholder.ReplaceAllStringFunc(t.LegendFormat, func(m string) string { return r.Metric[placeholder.FindStringSubmatch(m)[1]] })
			if r.name == "" || r.name == "__auto" {
				r.name = strings.Join(slices.Sorted(maps.Values(r.Metric)), " ")
			}
			all = append(all, r)
		}
	}
	unit := p.FieldConfig.Defaults.Unit
	switch p.Type {
	case "stat":
		text := "–"
		if len(all) > 0 {
			text = format(all[0].last(), unit)
			if len(placeholder.FindString(p.Targets[0].LegendFormat)) > 0 && all[0].last() == 1 {
				text = all[0].name // it is what the labels say
			}
		}
		return `<div class=big>` + html.EscapeString(text) + `</div>`, nil
	case "table":
		cells := make(map[string]string) // a row for each series of labels, a cell for each query
		for i := range all {
			name := html.EscapeString(strings.Join(slices.Sorted(maps.Values(all[i].Metric)), " "))
			cells[name] += "<td>" + html.EscapeString(format(all[i].last(), unit))
		}
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(cells)) {
			b.WriteString("<tr><td>" + name + cells[name])
		}
		return "<table>" + b.String() + "</table>", nil
	case "heatmap":
		return s.heatmap(p, all), nil
	default:
		return s.lines(p, all), nil
	}
}

func (r *series) at(i int) (at, value float64) {
	at, _ = r.Values[i][0].(float64)
	text, _ := r.Values[i][1].(string)
	value, _ = strconv.ParseFloat(text, 64)
	return at, value
}

func (r *series) last() float64 {
	_, v := r.at(len(r.Values) - 1)
	return v
}

// What is beside a picture, for its labels, and below it.
const left, bottom = 62.0, 14.0

// size returns that of a panel's picture on a page of 1280 pixels.
func size(p *dashboards.Panel) (width, height float64) {
	return float64(p.GridPos.W)*52.3 - 28, float64(p.GridPos.H)*36 - 68
}

func (s *source) x(at, width float64) float64 {
	return left + (at-float64(s.end.Add(-s.span).Unix()))/s.span.Seconds()*(width-left-4)
}

func (s *source) lines(p *dashboards.Panel, all []series) string {
	width, height := size(p)
	unit := p.FieldConfig.Defaults.Unit
	most := 0.0
	for _, r := range all {
		for i := range r.Values {
			if _, v := r.at(i); !math.IsInf(v, 0) && !math.IsNaN(v) {
				most = max(most, v)
			}
		}
	}
	if most == 0 {
		most = 1
	}
	var b, legend strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %v %v">`, width, height)
	y := func(v float64) float64 { return height - bottom - v/most*(height-bottom-12) }
	for i := range 3 {
		v := most * float64(i) / 2
		fmt.Fprintf(&b, `<line x1="%v" x2="%v" y1="%.1f" y2="%.1f" stroke="#e4e8ee"/><text x="%v" y="%.1f" font-size="11" text-anchor="end" fill="#56636f">%s</text>`, left, width, y(v), y(v), left-5, y(v)+4, html.EscapeString(format(v, unit)))
	}
	for n, r := range all {
		color := colors[n%len(colors)]
		path, pen := "", "M"
		for i := range r.Values {
			at, v := r.at(i)
			if math.IsNaN(v) || math.IsInf(v, 0) {
				pen = "M"
				continue
			}
			path += fmt.Sprintf("%s%.1f %.1f", pen, s.x(at, width), y(v))
			pen = "L"
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.6"/>`, path, color)
		fmt.Fprintf(&legend, `<i style="background:%s"></i>%s`, color, html.EscapeString(r.name))
	}
	return b.String() + "</svg><div class=legend>" + legend.String() + "</div>"
}

// heatmap draws how many values there were in each bucket, darker for more.
func (s *source) heatmap(p *dashboards.Panel, all []series) string {
	width, height := size(p)
	bound := func(r *series) float64 {
		v, err := strconv.ParseFloat(r.Metric["le"], 64)
		if err != nil {
			return math.Inf(1)
		}
		return v
	}
	slices.SortFunc(all, func(a, b series) int { return cmp.Compare(bound(&a), bound(&b)) })
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %v %v">`, width, height)
	tall := (height - bottom) / float64(max(1, len(all)))
	step := 2 / s.span.Seconds() * (width - left)
	for n := range all {
		r := &all[n]
		top := height - bottom - float64(n+1)*tall
		if n%4 == 0 {
			fmt.Fprintf(&b, `<text x="%v" y="%.1f" font-size="11" text-anchor="end" fill="#56636f">%s</text>`, left-5, top+tall, html.EscapeString(format(bound(r), "s")))
		}
		for i := range r.Values {
			at, v := r.at(i)
			if n > 0 && i < len(all[n-1].Values) {
				_, below := all[n-1].at(i)
				v -= below
			}
			if v > 0 {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#123e6b" opacity="%.2f"/>`, s.x(at, width), top, step+0.3, tall, min(1, 0.15+math.Log10(1+v)/4))
			}
		}
	}
	return b.String() + "</svg>"
}

// format writes a value in a unit of Grafana's.
func format(v float64, unit string) string {
	scaled := func(step float64, names ...string) string {
		i := 0
		for ; math.Abs(v) >= step && i < len(names)-1; i++ {
			v /= step
		}
		return strconv.FormatFloat(v, 'g', 3, 64) + names[i]
	}
	switch {
	case math.IsInf(v, 0):
		return "∞"
	case unit == "percentunit":
		return strconv.FormatFloat(100*v, 'f', 1, 64) + "%"
	case unit == "s" && v != 0 && v < 1e-3:
		return strconv.FormatFloat(v*1e6, 'g', 3, 64) + " µs"
	case unit == "s" && v != 0 && v < 1:
		return strconv.FormatFloat(v*1e3, 'g', 3, 64) + " ms"
	case unit == "s":
		return strconv.FormatFloat(v, 'g', 3, 64) + " s"
	case unit == "bytes" || unit == "Bps":
		return scaled(1024, " B", " KiB", " MiB", " GiB")
	case unit == "reqps":
		return scaled(1000, "/s", "k/s")
	default:
		return scaled(1000, "", "k", "M")
	}
}
