// Horizontal bars: of a figure with its spread, and divided by part.

function drawBars(host, spec) {
  const stacked = spec.kind === 'stack';
  const width = widthOf(host);
  const widest = Math.max(0, ...spec.bars.map(b => b.label.length)) * 7 + 12;
  const above = widest > width * .36; // labels above the bars
  const left = above || !widest ? 2 : widest;
  const thick = 15, step = above ? 37 : 23;
  // Under each head the bars have a scale of their own: loads may differ widely.
  const heads = [];
  spec.bars.forEach((b, i) => heads.push(b.head || !i ? i : heads[i - 1]));
  const highs = {};
  spec.bars.forEach((b, i) => {
    highs[heads[i]] = Math.max(highs[heads[i]] ?? 1e-9, stacked ? b.value : Math.max(b.value, b.high));
  });
  const values = spec.bars.map(b => withUnit(b.value, spec.y.unit));
  const right = width - 10 - 6.8 * Math.max(...values.map(v => v.length));
  let high;
  const x = v => left + (right - left) * v / high;

  const root = svg('svg', { tabindex: 0, role: 'img', 'aria-label': describeBars(host, spec, values) });
  const targets = [];
  let top = 4;
  spec.bars.forEach((b, i) => {
    high = highs[heads[i]];
    if (b.head) {
      if (i) top += 8;
      root.append(svg('text', { class: 'strong', x: 0, y: top + 14, 'font-weight': 600 }, b.head));
      top += 23;
    }
    const y = above && b.label ? top + 18 : top + 2;
    root.append(above ? svg('text', { class: 'strong', x: left, y: top + 13 }, b.label)
      : svg('text', { class: 'strong', x: left - 8, y: y + 12, 'text-anchor': 'end' }, b.label));
    const group = svg('g');
    if (stacked) {
      let sum = 0;
      b.values.forEach((v, part) => {
        if (!v) return;
        const from = x(sum), to = x(sum += v);
        const rect = svg('rect', { x: round(from), y, width: Math.max(.3, round(to - from - .6)), height: thick, fill: `var(--p${part})` });
        rect.part = part;
        if (part === data.parts.length - 1) rect.classList.add('rest');
        group.append(rect);
      });
    } else {
      group.append(svg('rect', { x: left, y, width: Math.max(.5, round(x(b.value) - left)), height: thick, rx: 2, fill: colour(b.style) }));
      if (b.low !== b.high) {
        group.append(svg('path', { class: 'whisker', fill: 'none', d: `M${round(x(b.low))} ${y + 4}v7m0 -3.5H${round(x(b.high))}m0 -3.5v7` }));
      }
    }
    root.append(group, svg('text', { x: round(x(stacked ? b.value : Math.max(b.value, b.high))) + 6, y: y + 12 }, values[i]));
    targets.push({ bar: b, top: top, bottom: top + step, group });
    top += b.label || !above ? step : 23;
  });
  const height = top + 4;
  root.setAttribute('viewBox', `0 0 ${width} ${height}`);

  let current = -1;
  const hide = () => { current = -1; hideTip(); for (const t of targets) t.group.style.opacity = ''; };
  const show = (i, clientX, clientY, part) => {
    current = i;
    targets.forEach((t, j) => { t.group.style.opacity = i === j ? '' : '.45'; });
    const { bar, top } = targets[i];
    const frame = root.getBoundingClientRect();
    showTip(clientX ?? frame.left + left, clientY ?? frame.top + (top + step) * frame.height / height,
      [headOf(spec, i), bar.label].filter(Boolean).join(': ') || spec.y.title, stacked ? stackRows(spec, bar, part) : [
        [null, 'median', withUnit(bar.value, spec.y.unit)],
        ...(bar.low !== bar.high ? [[null, 'lowest', withUnit(bar.low, spec.y.unit)], [null, 'highest', withUnit(bar.high, spec.y.unit)]] : []),
      ]);
  };
  onPoint(root, (clientX, clientY, target) => {
    const frame = root.getBoundingClientRect();
    const at = (clientY - frame.top) * height / frame.height;
    const i = targets.findIndex(t => at >= t.top && at < t.bottom);
    if (i < 0) hide(); else show(i, clientX, clientY, target.part);
  }, hide);
  root.addEventListener('keydown', e => {
    const to = { ArrowDown: current + 1, ArrowUp: Math.max(0, current - 1), Home: 0, End: targets.length - 1 }[e.key];
    if (e.key === 'Escape') return hide();
    if (to === undefined) return;
    e.preventDefault();
    show(Math.min(to, targets.length - 1));
  });
  host.replaceChildren(...(stacked ? [partsLegend(spec)] : []), root);
}

function headOf(spec, i) {
  while (i >= 0) if (spec.bars[i].head) return spec.bars[i].head; else i--;
  return '';
}

function stackRows(spec, bar, only) {
  return bar.values.map((v, part) => ({ v, part })).filter(({ v }) => v > 0).sort((a, b) => b.v - a.v)
    .map(({ v, part }) => [box(part), (part === only ? '▸ ' : '') + data.parts[part], `${withUnit(v, spec.y.unit)} · ${Math.round(100 * v / bar.value)}%`]);
}

function partsLegend(spec) {
  const legend = html('div', { class: 'legend' });
  data.parts.forEach((name, part) => {
    if (spec.bars.some(b => b.values[part] > 0)) legend.append(html('span', {}, box(part), name));
  });
  return legend;
}

function describeBars(host, spec, values) {
  const title = host.closest('figure')?.querySelector('strong')?.textContent || '';
  return `${title}. Bars: ${spec.bars.map((b, i) => `${[headOf(spec, i), b.label].filter(Boolean).join(', ')} ${values[i]}`).join('; ')}. The arrow keys read the values.`;
}

function barsTable(host, spec) {
  const name = i => [headOf(spec, i), spec.bars[i].label].filter(Boolean).join(': ') || 'all';
  if (spec.kind === 'stack') {
    const some = data.parts.map((_, part) => part).filter(part => spec.bars.some(b => b.values[part] > 0));
    fillTable(host, ['', ...some.map(part => data.parts[part]), `sum, ${spec.y.unit}`],
      spec.bars.map((b, i) => [name(i), ...some.map(part => short(b.values[part])), short(b.value)]));
  } else {
    fillTable(host, ['', 'median', 'lowest', 'highest'],
      spec.bars.map((b, i) => [name(i), ...[b.value, b.low, b.high].map(v => withUnit(v, spec.y.unit))]));
  }
}
