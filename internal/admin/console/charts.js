// Charts over the last minutes, as SVG that the style sheet colours.

const SPAN = 300; // seconds; a chart begins with fewer

function shape(name, attributes, parent, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

// A Chart draws series of samples: {name, color, value(sample)}. Options:
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
      key.textContent = s.name;
      key.style.setProperty('--key', `var(${s.color})`);
      keys.append(key);
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

    const scale = options.log ? this.logarithmic(limit) : this.linear(limit);
    const y = (v) => bottom - Math.min(1, Math.max(0, scale.at(v))) * (bottom - top);
    for (const tick of scale.ticks) {
      shape('line', { class: 'rule', x1: left, x2: right, y1: y(tick), y2: y(tick) }, svg);
      shape('text', { x: left - 6, y: y(tick) + 4, 'text-anchor': 'end' }, svg, options.format(tick));
    }
    const step = span > 120 ? 60 : span > 60 ? 30 : 15;
    for (let ago = 0; ago <= span; ago += step) {
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
        line += point;
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
      }
    }
    if (limit && scale.at(limit) <= 1) {
      shape('line', { class: 'limit', x1: left, x2: right, y1: y(limit), y2: y(limit) }, svg);
      shape('text', { class: 'limit-name', x: left + 4, y: y(limit) + (y(limit) < 24 ? 13 : -4) }, svg, `${options.limitName} ${options.format(limit)}`);
    }
    samples.forEach((sample, i) => {
      if (!i || sample.strategy === samples[i - 1].strategy) return;
      shape('line', { class: 'switch', x1: x(sample), x2: x(sample), y1: top, y2: bottom }, svg);
      const near = x(sample) > right - 80;
      shape('text', { x: x(sample) + (near ? -4 : 4), y: top + 8, 'text-anchor': near ? 'end' : 'start' }, svg, sample.strategy);
    });
    this.place.setAttribute('aria-label', series.map((s) => {
      const v = s.value(last);
      return `${s.name} ${v === null ? 'none' : options.format(v)}`;
    }).join(', '));
    if (this.cursor !== null && this.cursor >= left) this.point(x, top, bottom, right);
  }

  // point shows the values under the pointer.
  point(x, top, bottom, right) {
    const nearest = this.samples.reduce((a, b) => Math.abs(x(b) - this.cursor) < Math.abs(x(a) - this.cursor) ? b : a);
    const at = x(nearest);
    if (Math.abs(at - this.cursor) > 24) return;
    shape('line', { class: 'cursor', x1: at, x2: at, y1: top, y2: bottom }, this.svg);
    this.tip.textContent = this.series.map((s) => {
      const v = s.value(nearest);
      return `${s.name} ${v === null ? '–' : this.options.format(v)}`;
    }).join(' · ');
    this.tip.hidden = false;
    this.tip.style.left = Math.max(0, Math.min(at + 8, right - this.tip.offsetWidth)) + 'px';
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
