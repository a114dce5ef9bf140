// Line charts: a line for each setting, with the spread of its runs.

function drawLines(host, spec) {
  const hidden = host.hiddenSeries ??= new Set();
  const width = widthOf(host);
  const height = Math.max(230, Math.min(330, width * .66));
  const shown = spec.series.filter(s => !hidden.has(s.name));
  const points = (shown.length ? shown : spec.series).flatMap(s => s.points);
  const xs = [...new Set(points.map(p => p[0]))].sort((a, b) => a - b);
  const ys = points.flatMap(p => p.slice(1));
  const logY = spec.y.scale === 'log';
  const high = Math.max(...ys, 0) || 1;
  const low = logY ? Math.min(...ys.filter(v => v > 0), high) : 0;

  const area = { top: 22, bottom: height - 40, right: width - 12, left: 0 };
  const rough = makeScale(spec.y, low, high, area.bottom, area.top, 6);
  area.left = 14 + 6.8 * Math.max(...rough.ticks.map(t => tickLabel(spec.y, t).length));
  const y = makeScale(spec.y, low, high, area.bottom, area.top, 6);
  const lowX = { percentile: 1, log: Math.min(...xs) }[spec.x.scale] ?? 0;
  const x = makeScale(spec.x, lowX, spec.x.end || Math.max(...xs) || 1, area.left, area.right, Math.max(3, width / 85));

  const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: 'img', 'aria-label': describeLines(host, spec) });
  drawAxes(root, spec, x, y, area);
  if (spec.ideal) {
    const end = Math.min(x.high, y.high);
    root.append(svg('line', { class: 'ideal', x1: x(0), y1: y(0), x2: round(x(end)), y2: round(y(end)) }));
  }
  for (const s of shown) {
    const path = s.points.map(([px, py], i) => `${i ? 'L' : 'M'}${round(x(px))} ${round(y(py))}`).join('');
    root.append(svg('path', { d: path, fill: 'none', stroke: colour(s.style), 'stroke-width': 2, 'stroke-linejoin': 'round', 'stroke-dasharray': dash(s.style) }));
    for (const [px, , lo, hi] of s.points) {
      if (lo === undefined || lo === hi) continue;
      const at = round(x(px));
      root.append(svg('path', { d: `M${at - 3} ${round(y(lo))}h6m-3 0V${round(y(hi))}m-3 0h6`, fill: 'none', stroke: colour(s.style), 'stroke-width': 1.25 }));
    }
    const every = Math.ceil(s.points.length / 14);
    s.points.forEach(([px, py], i) => { if (i % every === Math.floor(every / 2)) root.append(marker(s.style, x(px), y(py))); });
  }

  const cross = svg('g', { visibility: 'hidden' });
  root.append(cross);
  let current = -1;
  const hide = () => { cross.setAttribute('visibility', 'hidden'); hideTip(); current = -1; };
  const show = (i, clientX, clientY) => {
    current = i;
    const at = round(x(xs[i]));
    cross.replaceChildren(svg('line', { class: 'cross', x1: at, x2: at, y1: area.top, y2: area.bottom }));
    cross.setAttribute('visibility', 'visible');
    const rows = [];
    for (const s of shown) {
      const p = nearest(s.points, xs[i], x);
      if (!p || Math.abs(x(p[0]) - at) > 18) continue;
      cross.append(marker(s.style, x(p[0]), y(p[1]), 5));
      rows.push([p[1], [sample(s.style), s.name, withUnit(p[1], spec.y.unit) + spread(p)]]);
    }
    rows.sort((a, b) => b[0] - a[0]);
    const frame = root.getBoundingClientRect();
    showTip(clientX ?? frame.left + at * frame.width / width, clientY ?? frame.top + frame.height / 3,
      `${spec.x.title} ${along(spec.x, xs[i])}`, rows.map(r => r[1]));
  };
  onPoint(root, (clientX, clientY) => {
    if (!shown.length) return;
    const frame = root.getBoundingClientRect();
    const at = (clientX - frame.left) * width / frame.width;
    let best = 0;
    xs.forEach((v, i) => { if (Math.abs(x(v) - at) < Math.abs(x(xs[best]) - at)) best = i; });
    show(best, clientX, clientY);
  }, hide);
  root.addEventListener('keydown', e => {
    const to = { ArrowRight: current + 1, ArrowLeft: Math.max(0, current - 1), Home: 0, End: xs.length - 1 }[e.key];
    if (e.key === 'Escape') return hide();
    if (to === undefined || !shown.length) return;
    e.preventDefault();
    show(Math.min(to, xs.length - 1));
  });
  host.replaceChildren(linesLegend(host, spec, hidden), root);
}

function nearest(points, at, x) {
  let best;
  for (const p of points) if (!best || Math.abs(x(p[0]) - x(at)) < Math.abs(x(best[0]) - x(at))) best = p;
  return best;
}

/** The legend switches lines off and on; a double click leaves one alone. */
function linesLegend(host, spec, hidden) {
  const legend = html('div', { class: 'legend' });
  if (spec.series.length < 2 && !spec.ideal) return legend;
  for (const s of spec.series) {
    const button = html('button', { type: 'button', 'aria-pressed': String(!hidden.has(s.name)), title: 'Click hides or shows; double click shows this one alone' }, sample(s.style), s.name);
    const redraw = () => {
      const at = [...legend.children].indexOf(button);
      drawLines(host, spec);
      host.querySelectorAll('.legend button')[at]?.focus({ preventScroll: true });
    };
    button.addEventListener('click', () => {
      if (!hidden.delete(s.name)) hidden.add(s.name);
      redraw();
    });
    button.addEventListener('dblclick', () => {
      for (const other of spec.series) hidden.add(other.name);
      hidden.delete(s.name);
      redraw();
    });
    legend.append(button);
  }
  return legend;
}

function describeLines(host, spec) {
  const title = host.closest('figure')?.querySelector('strong')?.textContent || '';
  const ends = spec.series.map(s => `${s.name} ends at ${withUnit(s.points.at(-1)[1], spec.y.unit)}`).join('; ');
  return `${title}. Line chart of ${spec.y.title} over ${spec.x.title}: ${ends}. The arrow keys read the values; the table below has all of them.`;
}

function linesTable(host, spec) {
  const xs = [...new Set(spec.series.flatMap(s => s.points.map(p => p[0])))].sort((a, b) => a - b);
  fillTable(host, [titled(spec.x), ...spec.series.map(s => s.name + (spec.y.unit ? `, ${spec.y.unit}` : ''))],
    xs.map(v => [along(spec.x, v), ...spec.series.map(s => {
      const p = s.points.find(q => q[0] === v);
      return p ? short(p[1]) + spread(p) : '';
    })]));
}
