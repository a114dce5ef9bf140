// Flame graphs, the callers on top. A frame in the data is an array: the index
// of its name, that of its part, its value, and the frames that it calls.

const rowHeight = 18;
const kindNames = { cpu: 'CPU', allocs: 'Allocations', mutex: 'Locks', block: 'Blocking' };

function makeFlame(figure) {
  const graphs = data.flames[figure.dataset.flame];
  const labels = [...new Set(graphs.map(g => g.label))];
  const kinds = [...new Set(graphs.map(g => g.kind))];
  const state = { label: labels[0], kind: kinds[0], zoom: null, search: '' };
  const plot = figure.querySelector('.plot');

  const select = html('select', { 'aria-label': 'Setting' }, ...labels.map(l => html('option', {}, l)));
  const buttons = kinds.map(k => html('button', { type: 'button', 'aria-pressed': String(k === state.kind) }, kindNames[k] || k));
  const search = html('input', { type: 'search', placeholder: 'Search functions', 'aria-label': 'Search functions', spellcheck: 'false' });
  const reset = html('button', { type: 'button' }, 'Whole graph');
  const found = html('output');
  const tools = html('div', { class: 'tools' }, ...(labels.length > 1 ? [select] : []), ...buttons, search, reset, found);
  plot.before(tools, html('div', { class: 'legend' }, ...data.parts.slice(0, -1).map((name, part) => html('span', {}, box(part, 'f'), name))));

  const draw = () => {
    const graph = graphs.find(g => g.label === state.label && g.kind === state.kind);
    buttons.forEach((b, i) => {
      b.setAttribute('aria-pressed', String(kinds[i] === state.kind));
      b.disabled = !graphs.some(g => g.label === state.label && g.kind === kinds[i]);
    });
    reset.disabled = !state.zoom;
    found.textContent = '';
    if (graph) drawFlame(plot, graph, state, found, draw);
    else plot.replaceChildren(html('p', {}, 'There is no such profile.'));
  };
  select.addEventListener('change', () => { state.label = select.value; state.zoom = null; draw(); });
  buttons.forEach((b, i) => b.addEventListener('click', () => { state.kind = kinds[i]; state.zoom = null; draw(); }));
  search.addEventListener('input', () => { state.search = search.value.trim().toLowerCase(); draw(); });
  reset.addEventListener('click', () => { state.zoom = null; draw(); });
  return draw;
}

const calls = frame => frame.slice(3);

/** The frames from the root to one that is zoomed into, which may be gone. */
function pathTo(frame, wanted) {
  if (frame === wanted) return [frame];
  for (const c of calls(frame)) {
    const rest = pathTo(c, wanted);
    if (rest) return [frame, ...rest];
  }
  return null;
}

function drawFlame(host, graph, state, found, redraw) {
  const width = widthOf(host, 700);
  const zoomed = (state.zoom && pathTo(graph.root, state.zoom)) || [graph.root];
  const whole = zoomed.at(-1)[2];
  const root = svg('svg', { tabindex: 0, role: 'group', 'aria-label': `Flame graph of ${graph.label}, ${kindNames[graph.kind] || graph.kind}. Arrow keys move, Enter zooms, Escape shows the whole.` });
  const drawn = []; // { frame, parent, group }
  let depth = 0, hits = 0;

  const put = (frame, row, x, w, parent, faded) => {
    depth = Math.max(depth, row + 1);
    const name = data.names[frame[0]];
    const hit = state.search && name.toLowerCase().includes(state.search);
    const group = svg('g', { 'data-i': drawn.length, class: [faded && 'faded', hit && 'hit'].filter(Boolean).join(' ') },
      svg('rect', { x: round(x), y: row * rowHeight, width: Math.max(.2, round(w)), height: rowHeight, rx: 1.5, fill: `var(--f${frame[1]})` }));
    const letters = Math.floor((w - 6) / 6.1);
    if (letters >= 3) {
      const text = shortName(name);
      group.append(svg('text', { x: round(x) + 3, y: row * rowHeight + 13 }, text.length > letters ? text.slice(0, letters - 1) + '…' : text));
    }
    const item = { frame, parent, group, children: [] };
    parent?.children.push(item);
    drawn.push(item);
    root.append(group);
    return item;
  };
  const descend = (frame, row, x, w, parent, counted) => {
    const item = put(frame, row, x, w, parent, false);
    const hit = state.search && data.names[frame[0]].toLowerCase().includes(state.search);
    if (hit && !counted) hits += frame[2];
    for (const c of calls(frame)) {
      const cw = width * c[2] / whole;
      if (cw >= .4) descend(c, row + 1, x, cw, item, counted || hit);
      else if (state.search && !counted && !hit) hits += hitsIn(c, state.search);
      x += cw;
    }
  };
  let above = null;
  zoomed.slice(0, -1).forEach((f, row) => { above = put(f, row, 0, width, above, true); });
  descend(zoomed.at(-1), zoomed.length - 1, 0, width, above, false);
  const height = depth * rowHeight;
  root.setAttribute('viewBox', `0 0 ${width} ${height}`);
  if (state.search) found.textContent = `${digits(100 * hits / whole)}% of what is shown`;

  let current = null;
  const hide = () => { current?.group.classList.remove('current'); current = null; hideTip(); };
  const show = (item, x, y) => {
    current?.group.classList.remove('current');
    current = item;
    item.group.classList.add('current');
    const { frame } = item;
    const own = frame[2] - calls(frame).reduce((sum, c) => sum + c[2], 0);
    const around = item.group.getBoundingClientRect();
    const cost = v => `${withUnit(v / graph.per, graph.unit)} per request · ${digits(100 * v / graph.root[2])}%`;
    showTip(x ?? around.left, y ?? around.bottom, data.names[frame[0]], [
      [box(frame[1], 'f'), data.parts[frame[1]], cost(frame[2])],
      [null, 'itself, and what is left out', cost(own)],
    ]);
  };
  const itemAt = target => drawn[target.closest?.('g[data-i]')?.dataset.i];
  const zoom = item => {
    state.zoom = item.frame === graph.root ? null : item.frame;
    hide();
    redraw();
    host.querySelector('svg').focus({ preventScroll: true });
  };
  onPoint(root, (x, y, target) => { const item = itemAt(target); if (item) show(item, x, y); else hide(); }, hide);
  root.addEventListener('click', e => { const item = itemAt(e.target); if (item) zoom(item); });
  root.addEventListener('keydown', e => {
    const beside = by => current.parent ? current.parent.children[current.parent.children.indexOf(current) + by] : undefined;
    if (e.key === 'Escape') { hide(); state.zoom = null; redraw(); host.querySelector('svg').focus({ preventScroll: true }); return; }
    if (!['ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowRight', 'Enter'].includes(e.key)) return;
    e.preventDefault();
    if (!current) return show(drawn[zoomed.length - 1]);
    if (e.key === 'Enter') return zoom(current);
    const to = { ArrowDown: () => current.children[0], ArrowUp: () => current.parent, ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) }[e.key]();
    if (to) show(to);
  });
  host.replaceChildren(root);
}

/** What a search finds in frames that are too small to be drawn. */
function hitsIn(frame, search) {
  if (data.names[frame[0]].toLowerCase().includes(search)) return frame[2];
  return calls(frame).reduce((sum, c) => sum + hitsIn(c, search), 0);
}

/** A function's name without the path of its package. */
const shortName = name => name.slice(name.lastIndexOf('/', name.includes('(') ? name.indexOf('(') : name.length) + 1);
