// Scales and axes.

/** Returns a function from values to pixels, with its ticks. */
function makeScale(axis, low, high, from, to, room) {
  const logarithmic = axis.scale === 'log' || axis.scale === 'percentile';
  const f = logarithmic ? v => Math.log10(Math.max(v, 1e-9)) : v => v;
  let ticks;
  if (axis.scale === 'percentile') ticks = percentileTicks(high);
  else if (logarithmic) {
    if (low > 0) [low, high] = [nice125(low, false), nice125(high, true)];
    ticks = logTicks(low, high, room);
  } else {
    ticks = linearTicks(low, high, room);
    high = axis.end ?? Math.max(high, ticks.at(-1));
  }
  const [a, b] = [f(low), f(high)];
  const scale = v => from + (to - from) * (b === a ? .5 : (Math.max(a, Math.min(b, f(v))) - a) / (b - a));
  return Object.assign(scale, { ticks: ticks.filter(t => t >= low && t <= high), low, high });
}

/** The next 1, 2 or 5 times a power of ten. */
function nice125(v, up) {
  const power = 10 ** Math.floor(Math.log10(v) + 1e-9);
  const steps = [1, 2, 5, 10].map(s => s * power);
  return up ? steps.find(s => s >= v * .9999) : steps.findLast(s => s <= v * 1.0001);
}

/** Ticks from 0, a little beyond high. */
function linearTicks(low, high, room) {
  const step = nice125((high - low || 1) / Math.max(2, room), true);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); ; i++) {
    ticks.push(Number((i * step).toPrecision(12)));
    if (ticks.at(-1) >= high) return ticks;
  }
}

function logTicks(low, high, room) {
  const ticks = [];
  const first = Math.floor(Math.log10(low) + 1e-9);
  const last = Math.ceil(Math.log10(high) - 1e-9);
  const every = Math.max(1, Math.ceil((last - first) / room));
  const fine = (last - first) * 3 <= room;
  for (let e = first; e <= last; e += every) {
    ticks.push(10 ** e);
    if (fine) ticks.push(2 * 10 ** e, 5 * 10 ** e);
  }
  return ticks.map(t => Number(t.toPrecision(6)));
}

function percentileTicks(high) {
  const ticks = [1, 2];
  for (let t = 10; t <= high; t *= 10) ticks.push(t);
  return ticks;
}

function tickLabel(axis, v) {
  if (axis.scale !== 'percentile') return short(v);
  return v === 1 ? '0%' : along(axis, v).slice(1) + '%';
}

/** Draws both axes and their grid into the drawing. */
function drawAxes(root, spec, x, y, area) {
  let free = Infinity; // where the next label has room
  let last;
  for (const t of y.ticks) {
    const at = round(y(t));
    root.append(svg('line', { class: 'grid', x1: area.left, x2: area.right, y1: at, y2: at }));
    const label = tickLabel(spec.y, t);
    if (at > free || label === last) continue;
    free = at - 13;
    last = label;
    root.append(svg('text', { x: area.left - 6, y: at + 4, 'text-anchor': 'end' }, label));
  }
  free = -Infinity;
  last = undefined;
  for (const t of x.ticks) {
    const at = round(x(t));
    const label = tickLabel(spec.x, t);
    const half = label.length * 3.6;
    const middle = Math.min(at, area.right + 10 - half);
    root.append(svg('line', { class: 'grid', x1: at, x2: at, y1: area.top, y2: area.bottom }));
    if (middle - half < free || label === last) continue;
    free = middle + half + 8;
    last = label;
    root.append(svg('text', { x: round(middle), y: area.bottom + 16, 'text-anchor': 'middle' }, label));
  }
  root.append(svg('line', { class: 'axis', x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }),
    svg('text', { x: area.right, y: area.bottom + 33, 'text-anchor': 'end' }, titled(spec.x)),
    svg('text', { x: 0, y: 11 }, titled(spec.y)));
}

function titled(axis) {
  const notes = [axis.unit, axis.scale === 'log' ? 'log' : ''].filter(Boolean);
  return axis.title + (notes.length ? `, ${notes.join(', ')}` : '');
}
