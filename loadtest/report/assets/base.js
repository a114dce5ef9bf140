// What all charts share: making elements, writing figures, colours, the tooltip.

const data = JSON.parse(document.getElementById('data').textContent);

/** Makes an HTML element. Text never becomes markup. */
function html(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) if (v !== undefined) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

/** Makes an SVG element. Colours go through the object model, which the page's
 *  security policy allows, and not through style attributes, which it does not. */
function svg(name, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [k, v] of Object.entries(attributes)) {
    if (k === 'stroke' || k === 'fill') e.style[k] = v;
    else if (v !== undefined) e.setAttribute(k, v);
  }
  e.append(...children);
  return e;
}

const paper = matchMedia('print');

/** How wide a chart is drawn. That of paper is not known yet when it is drawn for
 *  it: half a page, to which it is then scaled. */
const widthOf = (host, onPaper = 340) => Math.max(260, paper.matches ? onPaper : host.clientWidth);

const round = v => Math.round(v * 10) / 10;

/** Writes a figure with three digits. */
function short(v) {
  if (v === null || !Number.isFinite(v)) return '–';
  const a = Math.abs(v);
  for (const [size, suffix] of [[1e9, ' G'], [1e6, ' M'], [1e4, ' k']]) {
    if (a >= size) return digits(v / (size === 1e4 ? 1e3 : size)) + suffix;
  }
  return digits(v);
}

function digits(v) {
  const a = Math.abs(v);
  if (a >= 100) return Math.round(v).toLocaleString('en');
  if (a === 0) return '0';
  return String(Number(v.toFixed(Math.min(6, 2 - Math.floor(Math.log10(a))))));
}

/** Writes a figure with its unit; times with one in which they are short. */
function withUnit(v, unit) {
  if (v === null) return '–';
  const larger = { ns: 'µs', µs: 'ms', ms: 's' };
  for (; v >= 1000 && larger[unit]; v /= 1000) unit = larger[unit];
  return short(v) + (unit && unit !== '/s' && unit !== '%' ? ' ' : '') + (unit || '');
}

/** Writes a value of an axis, as the tooltip and the tables show it. */
function along(axis, v) {
  if (axis.scale === 'percentile') {
    const p = 100 * (1 - 1 / v);
    return 'p' + Number(p.toFixed(Math.max(0, Math.min(8, Math.ceil(Math.log10(v)) - 1))));
  }
  return withUnit(v, axis.unit);
}

/** Writes the lowest and the highest of a point's runs; nothing if they are as
 *  good as the same. */
function spread([, , low, high]) {
  return low === undefined || short(low) === short(high) ? '' : ` (${short(low)}–${short(high)})`;
}

const hues = 7;
const dashes = ['', '7 3', '2 3', '9 3 2 3', '12 4', '5 2 1 2', '1 3'];
const colour = i => `var(--s${i % hues})`;
const dash = i => dashes[(i + Math.floor(i / hues)) % dashes.length];

/** Draws the marker of a line: another shape for each of the first seven. */
function marker(i, x, y, r = 3.6) {
  const shape = (i + 2 * Math.floor(i / hues)) % 7;
  const at = points => points.map(([dx, dy]) => `${round(x + dx * r)},${round(y + dy * r)}`).join(' ');
  const fill = colour(i);
  switch (shape) {
    case 0: return svg('circle', { cx: round(x), cy: round(y), r, fill });
    case 1: return svg('polygon', { points: at([[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]]), fill });
    case 2: return svg('polygon', { points: at([[0, -1.2], [1.1, .8], [-1.1, .8]]), fill });
    case 3: return svg('polygon', { points: at([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]), fill });
    case 4: return svg('polygon', { points: at([[0, 1.2], [1.1, -.8], [-1.1, -.8]]), fill });
    case 5: return svg('circle', { cx: round(x), cy: round(y), r: r * .8, fill: 'var(--bg)', stroke: fill, 'stroke-width': 1.6 });
    default: return svg('polygon', { points: at([[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]]), fill: 'var(--bg)', stroke: fill, 'stroke-width': 1.6 });
  }
}

/** A short piece of a line, for legends and the tooltip. */
function sample(i) {
  return svg('svg', { viewBox: '0 0 30 12', 'aria-hidden': 'true' },
    svg('line', { x1: 1, x2: 29, y1: 6, y2: 6, stroke: colour(i), 'stroke-width': 2, 'stroke-dasharray': dash(i) }),
    marker(i, 15, 6, 3.4));
}

const tip = document.getElementById('tip');

/** Shows the tooltip beside a point of the window: a title and rows of
 *  [symbol, name, value]. It is also what a screen reader says. */
function showTip(x, y, title, rows = []) {
  const table = html('table', { role: 'presentation' });
  for (const [symbol, name, value] of rows) {
    table.append(html('tr', {}, html('td', {}, symbol || ''), html('td', {}, name), html('td', {}, value)));
  }
  tip.replaceChildren(html('b', {}, title), table);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth - 8 ? x - 14 - width : x + 14;
  const top = y + 14 + height > innerHeight - 8 ? y - 14 - height : y + 14;
  tip.style.transform = `translate(${Math.max(8, Math.min(left, innerWidth - width - 8))}px, ${Math.max(8, top)}px)`;
}

function hideTip() { tip.hidden = true; }

addEventListener('keydown', e => { if (e.key === 'Escape') hideTip(); });
addEventListener('scroll', hideTip, { passive: true });

let pointed; // the element that was pointed at last, and how to end that

// A finger does not leave an element: it touches something else. This is heard
// before the other element is, so that it does not hide what that shows.
document.addEventListener('pointerdown', e => {
  if (pointed && !pointed.element.contains(e.target)) pointed.hide();
}, { capture: true });

/** Follows the pointer, by mouse, pen or touch, over an element. */
function onPoint(element, show, hide) {
  const at = e => {
    pointed = { element, hide };
    show(e.clientX, e.clientY, e.target);
  };
  element.addEventListener('pointermove', at);
  element.addEventListener('pointerdown', at);
  element.addEventListener('pointerleave', e => { if (e.pointerType === 'mouse') hide(); });
  element.addEventListener('blur', hide);
}

/** Fills the table behind a chart. */
function fillTable(host, head, rows) {
  const row = (cells, name) => html('tr', {}, ...cells.map((c, i) => html(i && name === 'td' ? 'td' : 'th', { scope: name === 'th' ? 'col' : i ? undefined : 'row' }, c)));
  host.replaceChildren(html('table', {}, html('thead', {}, row(head, 'th')), html('tbody', {}, ...rows.map(r => row(r, 'td')))));
}
