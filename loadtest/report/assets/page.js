// Draws the charts that are shown, when they are shown.

const drawers = new Map(); // from an element to what draws into it

for (const figure of document.querySelectorAll('figure[data-chart]')) {
  const spec = data.charts[figure.dataset.chart];
  const plot = figure.querySelector('.plot');
  drawers.set(plot, () => drawLines(plot, spec));
  const numbers = figure.querySelector('.numbers');
  numbers.addEventListener('toggle', () => {
    if (numbers.open) linesTable(numbers.querySelector('.scroll'), spec);
  });
}

// What is hidden has no width; it is drawn when it gets one.
const widths = new Map();
const resized = new ResizeObserver(entries => {
  for (const { target, contentRect } of entries) {
    const width = Math.round(contentRect.width);
    if (width > 0 && width !== widths.get(target) && !paper.matches) {
      widths.set(target, width);
      drawers.get(target)();
    }
  }
});
for (const plot of drawers.keys()) resized.observe(plot);
paper.addEventListener('change', () => {
  for (const plot of widths.keys()) drawers.get(plot)();
});

// Tables that go on beyond an edge fade there.
const faded = new ResizeObserver(entries => { for (const e of entries) fade(e.target); });
function fade(scroll) {
  scroll.classList.toggle('before', scroll.scrollLeft > 1);
  scroll.classList.toggle('beyond', scroll.scrollLeft + scroll.clientWidth < scroll.scrollWidth - 1);
}
for (const scroll of document.querySelectorAll('.scroll')) {
  scroll.addEventListener('scroll', () => fade(scroll), { passive: true });
  faded.observe(scroll);
}

for (const tabs of document.querySelectorAll('.tabs')) {
  const buttons = [...tabs.children];
  const choose = i => buttons.forEach((b, j) => {
    b.setAttribute('aria-selected', String(i === j));
    b.tabIndex = i === j ? 0 : -1;
    document.getElementById(b.getAttribute('aria-controls')).hidden = i !== j;
  });
  buttons.forEach((b, i) => b.addEventListener('click', () => choose(i)));
  tabs.addEventListener('keydown', e => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by) return;
    const to = (buttons.indexOf(document.activeElement) + by + buttons.length) % buttons.length;
    choose(to);
    buttons[to].focus();
  });
  choose(buttons.length - 1); // the last: the heaviest, where loads differ by rate
}

/** Leaves nothing but the line charts whose title begins so, with their legends: an
 *  SVG that stands alone, in a browser without a window as in docs/figures.sh.
 *  Lines that look alike are one. */
function standAlone(title) {
  const host = html('div');
  host.style.width = '540px';
  document.body.append(host);
  const style = [...document.styleSheets[0].cssRules].map(r => r.cssText).filter(text => /:root|^\.plot (\.|svg text)/.test(text));
  const root = svg('svg', { xmlns: 'http://www.w3.org/2000/svg', role: 'img', 'font-family': 'sans-serif', 'font-size': 12 },
    svg('style', {}, `text { fill: var(--muted) } ${style.join(' ').replace(/\.plot (svg )?/g, '')}`));
  let top = 0;
  const said = [];
  for (const figure of document.querySelectorAll('figure[data-chart]')) {
    const spec = data.charts[figure.dataset.chart];
    const name = [figure.querySelector('strong').textContent, figure.closest('.panel')?.ariaLabel].filter(Boolean).join(': ');
    if (!name.startsWith(title)) continue;
    const highest = Math.max(...spec.series.flatMap(s => s.points.map(p => p[1])));
    const series = [];
    for (const s of spec.series) {
      const same = series.find(o => o.points.length === s.points.length && o.points.every((p, i) => Math.abs(p[1] - s.points[i][1]) < .04 * highest));
      if (same) same.names.push(s.name); else series.push({ ...s, names: [s.name] });
    }
    for (const s of series) s.name = s.names.join(', ');
    drawLines(host, { ...spec, series });
    const drawn = host.lastChild;
    const [, , width, height] = drawn.getAttribute('viewBox').split(' ');
    for (const attribute of ['role', 'aria-label', 'tabindex']) drawn.removeAttribute(attribute);
    for (const [k, v] of Object.entries({ y: top + 28, width, height })) drawn.setAttribute(k, v);
    root.append(svg('text', { class: 'strong', y: top + 16 }, name), drawn);
    let below = top + 50;
    for (const s of series) {
      const line = sample(s.style);
      for (const [k, v] of Object.entries({ x: 560, y: below - 10, width: 30, height: 12 })) line.setAttribute(k, v);
      root.append(line);
      for (let at = 0; at < s.names.length; at += 3, below += 17) {
        root.append(svg('text', { x: 598, y: below }, s.names.slice(at, at + 3).join(', ') + (at + 3 < s.names.length ? ',' : '')));
      }
      below += 5;
    }
    said.push(`${name}: ${series.map(s => `${s.name} ends at ${withUnit(s.points.at(-1)[1], spec.y.unit)}`).join('; ')}`);
    top = Math.max(below, top + 28 + Number(height)) + 12;
  }
  root.setAttribute('viewBox', `0 0 860 ${top}`);
  root.setAttribute('aria-label', said.join('. '));
  document.doctype.remove();
  document.documentElement.replaceWith(root);
}
if (location.hash.startsWith('#svg=')) standAlone(decodeURIComponent(location.hash.slice(5)));
