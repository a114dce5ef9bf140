// Charts over the last minutes, as SVG that the style sheet colours.

const SPAN = 900; // seconds; a chart begins with fewer

function shape(name, attributes, parent, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

// A Chart draws series of samples: {name, color, dash (of a line), value(sample)}. Options:
// log for a logarithmic scale, stacked for areas on top of each other, format
// for the values, limit(sample) for a line that should not be crossed, and
// limitName for what it is called.
class Chart {
  constructor(place, series, options) {
    Object.assign(this, { place, series, options, samples: [], cursor: null });
    const keys = document.createElement('p');
    keys.className = 'keys';
    for (const s of series) {
      const key = document.createElement('span');
      const swatch = document.createElement('i');
      swatch.className = options.stacked ? '' : `stroke ${s.dash || ''}`;
      swatch.style.setProperty('--key', `var(${s.color})`);
      key.append(swatch, s.name);
      keys.append(key);
    }
    if (options.limit) {
      this.limit = document.createElement('span');
      keys.append(this.limit);
    }
    place.before(keys);
    place.setAttribute('role', 'img');
    this.svg = shape('svg', { 'aria-hidden': 'true' }, place);
    this.tip = document.createElement('div');
    this.tip.className = 'tip';
    this.tip.hidden = true;
    place.append(this.tip);
    place.addEventListener('pointermove', (e) => {
      this.cursor = e.clientX - place.getBoundingClientRect().left;
      this.draw();
    });
    const away = () => {
      this.cursor = null;
      this.draw();
    };
    place.addEventListener('pointerleave', away);
    place.addEventListener('blur', away);
    // The same by keyboard.
    place.tabIndex = 0;
    place.addEventListener('keydown', (e) => {
      const to = { ArrowLeft: (this.cursor ?? place.clientWidth) - 8, ArrowRight: (this.cursor ?? 0) + 8, End: place.clientWidth - 4, Escape: null }[e.key];
      if (to === undefined) return;
      e.preventDefault();
      this.cursor = to;
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(place);
  }

  update(samples) {
    this.samples = samples;
    this.draw();
  }

  draw() {
    const { svg, samples, series, options } = this;
    const width = this.place.clientWidth, height = this.place.clientHeight;
    svg.replaceChildren();
    this.tip.hidden = true;
    if (!samples.length || !width) return;
    const last = samples[samples.length - 1];
    const left = 46, right = width - 4, top = 8, bottom = height - 18;
    const span = Math.min(SPAN, Math.max(60, last.time - samples[0].time));
    const x = (s) => right - (last.time - s.time) / span * (right - left);
    const limit = options.limit && options.limit(last);

    if (this.limit) this.nameLimit(limit);
    const scale = options.log ? this.logarithmic(limit) : this.linear(limit);
    const y = (v) => bottom - Math.min(1, Math.max(0, scale.at(v))) * (bottom - top);
    for (const tick of scale.ticks) {
      shape('line', { class: 'rule', x1: left, x2: right, y1: y(tick), y2: y(tick) }, svg);
      shape('text', { x: left - 6, y: y(tick) + 4, 'text-anchor': 'end' }, svg, options.format(tick));
    }
    // As many as there is room for, and none over another.
    const room = (right - left) / span;
    const step = [15, 30, 60, 120, 180, 300, 900].find((s) => s * room >= 62 && (s > 15 || span <= 60)) || 900;
    for (let ago = 0; ago <= span; ago += step) {
      if (ago && (ago * room < 50 || right - ago * room < left + 16)) continue;
      const name = !ago ? 'now' : ago % 60 ? `−${ago} s` : `−${ago / 60} min`;
      shape('text', { x: right - ago / span * (right - left), y: height - 3, 'text-anchor': ago ? 'middle' : 'end' }, svg, name);
    }

    const bases = samples.map(() => 0);
    for (const s of series) {
      let line = '', area = '', start = -1;
      const close = (i) => {
        if (options.stacked && start >= 0) {
          for (let j = i - 1; j >= start; j--) area += `L${x(samples[j]).toFixed(1)} ${y(bases[j]).toFixed(1)}`;
          area += 'Z';
        }
        start = -1;
      };
      const tops = bases.slice();
      samples.forEach((sample, i) => {
        const v = s.value(sample);
        if (v === null || sample.gap) close(i);
        if (v === null) return;
        tops[i] = options.stacked ? bases[i] + v : v;
        const point = `${start < 0 ? 'M' : 'L'}${x(sample).toFixed(1)} ${y(tops[i]).toFixed(1)}`;
        line += start < 0 ? point + 'h0' : point; // one alone is a dot
        area += point;
        if (start < 0) start = i;
      });
      close(samples.length);
      if (options.stacked) {
        const path = shape('path', { d: area }, svg);
        path.style.fill = `var(${s.color})`;
        tops.forEach((v, i) => { bases[i] = v; });
      } else {
        const path = shape('path', { class: 'line', d: line, 'stroke-linecap': 'round' }, svg);
        path.style.stroke = `var(${s.color})`;
        if (s.dash) path.setAttribute('stroke-dasharray', s.dash === 'dotted' ? '1 5' : '7 5');
      }
    }
    if (limit && scale.at(limit) <= 1) {
      shape('line', { class: 'limit', x1: left, x2: right, y1: y(limit), y2: y(limit) }, svg);
    }
    let free = left; // from here on no name has been written
    samples.forEach((sample, i) => {
      if (!i || sample.strategy === samples[i - 1].strategy) return;
      shape('line', { class: 'switch', x1: x(sample), x2: x(sample), y1: top, y2: bottom }, svg);
      const wide = 7 * sample.strategy.length + 8, near = x(sample) + wide > right;
      const from = near ? x(sample) - wide : x(sample);
      if (from < free) return; // the tooltip has it
      free = from + wide;
      shape('text', { x: x(sample) + (near ? -4 : 4), y: top + 6, 'text-anchor': near ? 'end' : 'start' }, svg, sample.strategy);
    });
    this.place.setAttribute('aria-label', series.map((s) => {
      const v = s.value(last);
      return `${s.name} ${v === null ? 'none' : options.format(v)}`;
    }).join(', '));
    if (this.cursor !== null && this.cursor >= left) this.point(x, top, bottom, right);
  }

  // nameLimit says in the legend what is not to be crossed, where it is over nothing.
  nameLimit(limit) {
    this.limit.hidden = !limit;
    if (!this.limit.firstChild) {
      const swatch = document.createElement('i');
      swatch.className = 'stroke dashed';
      swatch.style.setProperty('--key', 'var(--late)');
      this.limit.append(swatch, '');
    }
    const text = `${this.options.limitName} ${limit ? this.options.format(limit) : ''}`;
    if (this.limit.lastChild.data !== text) this.limit.lastChild.data = text;
  }

  // point shows the values under the pointer.
  point(x, top, bottom, right) {
    const nearest = this.samples.reduce((a, b) => Math.abs(x(b) - this.cursor) < Math.abs(x(a) - this.cursor) ? b : a);
    const at = x(nearest);
    if (Math.abs(at - this.cursor) > 24) return;
    shape('line', { class: 'cursor', x1: at, x2: at, y1: top, y2: bottom }, this.svg);
    const values = this.series.map((s) => {
      const v = s.value(nearest);
      return `${s.name} ${v === null ? '–' : this.options.format(v)}`;
    });
    this.tip.textContent = [`${nearest.clock} · ${nearest.strategy}`, ...values].join('\n');
    this.tip.hidden = false;
    // Beside the line, not over it.
    this.tip.style.left = (at + 10 + this.tip.offsetWidth < right ? at + 10 : Math.max(0, at - 10 - this.tip.offsetWidth)) + 'px';
  }

  linear(limit) {
    let most = 0;
    for (const sample of this.samples) {
      const values = this.series.map((s) => s.value(sample) || 0);
      most = Math.max(most, this.options.stacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values));
    }
    // The limit belongs into the picture, with room for its name above, unless it
    // would flatten it.
    if (limit && limit < most * 8) most = Math.max(most, limit * 1.2);
    most = Math.max(most * 1.05, this.options.least || 1);
    const rough = most / 3, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const ticks = [];
    for (let v = 0; v <= most; v += step) ticks.push(v);
    return { at: (v) => v / most, ticks };
  }

  logarithmic(limit) {
    let low = Infinity, high = limit || 0;
    for (const sample of this.samples) {
      for (const s of this.series) {
        const v = s.value(sample);
        if (v !== null) [low, high] = [Math.min(low, v), Math.max(high, v)];
      }
    }
    low = Math.floor(Math.log10(Math.min(low, high / 100) || 1e-4));
    high = Math.max(Math.ceil(Math.log10(high || 1)), low + 1);
    const ticks = [];
    for (let e = low; e <= high; e++) ticks.push(10 ** e);
    return { at: (v) => (Math.log10(v) - low) / (high - low), ticks };
  }
}
