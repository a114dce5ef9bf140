// The moving picture: requests come in from the left, wait in the queue, are
// worked on and leave to the right; those turned away fall out.

class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.state = null;
    this.dots = [];
    this.owed = { in: 0, drop: 0, out: 0 };
    this.still = matchMedia('(prefers-reduced-motion: reduce)');
    this.running = false;
    this.depths = [0]; // of the pools as drawn, on their way to the real ones
    const again = () => { this.colors = null; this.draw(); };
    this.still.addEventListener('change', () => { this.dots = []; this.wake(); });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
    new ResizeObserver(again).observe(canvas);
  }

  // update takes {arrivals, refused (at the door), dropped (out of the queue),
  // good, late, unmet, failed (all per second), workers, and of each pool: name, depth,
  // capacity (null for none), workers, busy}. Pools that are split are drawn one
  // above the other.
  update(state) {
    this.state = state;
    if (this.depths.length !== state.pools.length) {
      this.depths = state.pools.map(() => 0);
      this.dots = [];
    }
    this.wake();
  }

  // stop freezes the picture.
  stop() { this.running = false; }

  wake() {
    if (this.still.matches) {
      this.running = false;
      if (this.state) this.depths = this.state.pools.map((p) => p.depth);
      this.draw();
      return;
    }
    if (this.running) return;
    this.running = true;
    let before = performance.now();
    const step = (now) => {
      if (!this.running) return;
      this.advance(Math.min(0.1, (now - before) / 1000));
      before = now;
      this.draw();
      if (this.moves()) requestAnimationFrame(step);
      else this.running = false;
    };
    requestAnimationFrame(step);
  }

  moves() {
    const s = this.state;
    return this.dots.length > 0 || s.arrivals > 0 || s.pools.some((p, i) => Math.abs(this.depths[i] - p.depth) > 0.5);
  }

  // layout returns where a pool is drawn.
  layout(pool = 0) {
    const w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    const count = this.state.pools.length, band = (h - 34 - 6) / count, named = count > 1 ? 13 : 0;
    const top = 6 + pool * band + named, bottom = 6 + (pool + 1) * band - (pool + 1 < count ? 4 : 0);
    return { w, h, top, bottom, middle: (top + bottom) / 2, tank: { left: w * 0.22, right: w * 0.5 }, crew: { left: w * 0.54, right: w * 0.74 } };
  }

  advance(seconds) {
    const s = this.state;
    s.pools.forEach((p, i) => { this.depths[i] += (p.depth - this.depths[i]) * Math.min(1, seconds * 5); });
    // A dot is one request while there are few, and fewer than one when there
    // are many: what matters is more or less, and the shares.
    const pace = (rate) => rate <= 6 ? rate : Math.min(60, 6 + 5 * Math.log2(rate / 6));
    const share = (rate) => s.arrivals > 0 ? Math.min(1, rate / s.arrivals) : 0;
    const refused = share(s.refused), dropped = share(s.dropped);
    const stands = s.workers > 0 && s.pools.some((p) => p.depth > 0);
    // Which pool a request goes to is not known one by one: where more is under way.
    const under = s.pools.map((p) => p.busy + p.depth + 0.01), all = under.reduce((a, b) => a + b, 0);
    const pool = () => {
      let pick = Math.random() * all;
      return Math.max(0, under.findIndex((n) => (pick -= n) <= 0));
    };
    const add = (kind, color) => this.dots.push({ kind, age: 0, lane: Math.random(), place: Math.random(), color, pool: pool() });
    const due = (what, share) => {
      this.owed[what] += pace(s.arrivals) * share * seconds;
      const n = Math.floor(this.owed[what]);
      this.owed[what] -= n;
      return n;
    };
    for (let n = due('in', 1); n > 0; n--) {
      if (Math.random() < refused) add('refuse', '--shed');
      else if (stands) add('wait', '--flow');
      else add('pass', this.outcome());
    }
    for (let n = due('drop', dropped); n > 0; n--) add('drop', '--shed');
    for (let n = due('out', stands ? Math.max(0, 1 - refused - dropped) : 0); n > 0; n--) add('leave', this.outcome());
    for (const d of this.dots) d.age += seconds * (0.9 + 0.2 * d.lane);
    this.dots = this.dots.filter((d) => d.age < Picture.life[d.kind]);
  }

  outcome() {
    const s = this.state, all = s.good + s.late + s.unmet + s.failed;
    const pick = Math.random() * all;
    return pick < s.good || !all ? '--good' : pick < s.good + s.late ? '--late' : pick < s.good + s.late + s.unmet ? '--soft' : '--fault';
  }

  color(name) {
    if (!this.colors) this.colors = {};
    return this.colors[name] ||= getComputedStyle(this.canvas).getPropertyValue(name).trim();
  }

  draw() {
    const s = this.state;
    if (!s) return;
    const { canvas, context: c } = this;
    const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
    const width = Math.round(w * ratio), height = Math.round(h * ratio);
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, w, h);
    const places = s.pools.map((p, i) => {
      const l = this.layout(i), crew = this.crew(l, p);
      this.drawLanes(c, l);
      if (s.workers > 0) {
        if (s.pools.length > 1) this.drawName(c, l, p.name);
        this.drawTank(c, l, p, this.depths[i]);
        this.drawCrew(c, crew, p);
      }
      return { l, crew };
    });
    for (const d of this.dots) {
      const { l, crew } = places[Math.min(d.pool, places.length - 1)];
      this.drawDot(c, l, crew, d);
    }
  }

  drawName(c, l, name) {
    c.fillStyle = this.color('--soft');
    c.font = '12px system-ui, sans-serif';
    c.fillText(name, l.tank.left, l.top - 3);
  }

  drawLanes(c, l) {
    c.strokeStyle = this.color('--line');
    c.lineWidth = 2;
    c.setLineDash([2, 6]);
    c.beginPath();
    const queue = this.state.workers > 0;
    c.moveTo(0, l.middle);
    c.lineTo(queue ? l.tank.left - 6 : l.w, l.middle);
    if (queue) {
      c.moveTo(l.tank.right + 4, l.middle);
      c.lineTo(l.crew.left - 4, l.middle);
      c.moveTo(l.crew.right + 4, l.middle);
      c.lineTo(l.w, l.middle);
    }
    c.stroke();
    c.setLineDash([]);
  }

  // unit returns how many requests a cell of the first tank is.
  unit() { return this.cells(this.layout(), this.state.pools[0]).unit; }

  // cells returns how a tank is divided, and how many requests a cell is.
  cells(l, { capacity, depth }) {
    const width = l.tank.right - l.tank.left - 8, height = l.bottom - l.top - 8;
    let size = 10;
    const fits = (size) => Math.floor(width / size) * Math.floor(height / size);
    if (capacity !== null) while (size < 30 && fits(size + 2) >= capacity) size += 2;
    const columns = Math.floor(width / size), rows = Math.floor(height / size);
    const room = Math.max(1, columns * rows);
    let unit = 1;
    if (capacity !== null) unit = capacity / Math.min(room, capacity);
    else while (depth / unit > room) unit *= 10;
    const count = capacity === null ? room : Math.ceil(capacity / unit - 1e-9);
    return { rows, unit, count, height: height / rows, width: width / Math.ceil(count / rows) };
  }

  drawTank(c, l, pool, depth) {
    const { left, right } = l.tank, { capacity } = pool;
    const { rows, unit, count, width, height } = this.cells(l, pool);
    const full = capacity === null ? 0 : depth / capacity;
    const fill = this.color(full >= 0.95 ? '--shed' : full >= 0.7 ? '--late' : '--flow');
    c.strokeStyle = this.color('--soft');
    c.lineWidth = 2;
    c.beginPath();
    // Open towards the workers, and to the left if there is no bound.
    c.moveTo(right, l.top);
    c.lineTo(left, l.top);
    if (capacity === null) c.moveTo(left, l.bottom);
    else c.lineTo(left, l.bottom);
    c.lineTo(right, l.bottom);
    c.stroke();
    const lit = Math.min(count, Math.ceil(depth / unit - 0.01));
    for (let i = 0; i < count; i++) {
      const x = right - 4 - (Math.floor(i / rows) + 1) * width, y = l.top + 4 + (i % rows) * height;
      c.fillStyle = i < lit ? fill : this.color('--empty');
      c.fillRect(x + 1, y + 1, width - 2, height - 2);
    }
  }

  crew(l, { workers }) {
    const most = 60, n = Math.min(workers, most);
    const width = l.crew.right - l.crew.left, height = l.bottom - l.top;
    let size = 44;
    while (size > 8 && Math.floor(width / size) * Math.floor(height / size) < n) size--;
    const columns = Math.max(1, Math.min(Math.floor(width / size), Math.ceil(n / Math.floor(height / size)))), rows = Math.ceil(n / columns);
    return Array.from({ length: n }, (_, i) => ({
      x: (l.crew.left + l.crew.right) / 2 + (Math.floor(i / rows) - (columns - 1) / 2) * size,
      y: l.middle + (i % rows - (Math.min(rows, n) - 1) / 2) * size,
      r: size / 2 - 3,
    }));
  }

  drawCrew(c, crew, { busy, workers }) {
    const lit = Math.ceil(busy / workers * crew.length - 0.01);
    crew.forEach((p, i) => {
      c.beginPath();
      c.arc(p.x, p.y, p.r, 0, 7);
      c.fillStyle = this.color(i < lit ? '--flow' : '--empty');
      c.fill();
      c.lineWidth = 1.5;
      c.strokeStyle = this.color(i < lit ? '--flow' : '--soft');
      c.stroke();
    });
  }

  drawDot(c, l, crew, d) {
    const t = d.age / Picture.life[d.kind];
    const spot = crew.length ? crew[Math.floor(d.place * crew.length)] : { x: (l.crew.left + l.crew.right) / 2, y: l.middle };
    const spread = (l.bottom - l.top) * 0.7 * (d.lane - 0.5);
    const glide = (a, b, t) => a + (b - a) * t;
    // The first and the second half of the way, each from 0 to 1.
    const first = Math.min(1, t * 2), second = Math.max(0, t * 2 - 1);
    let x, y, fade = 1, color = d.color;
    switch (d.kind) {
      case 'wait':
        [x, y] = [glide(0, l.tank.left, t), l.middle + spread * t];
        break;
      case 'refuse':
        x = glide(0, l.tank.left - 10, first) - second * l.w * 0.02 * d.place;
        y = glide(l.middle + spread * 0.5 * first, l.h, second * second);
        fade = 1 - second * 0.6;
        break;
      case 'drop':
        [x, y] = [glide(l.tank.left + 6, l.tank.right - 6, d.place), glide(l.bottom, l.h, t * t)];
        fade = 1 - t * 0.6;
        break;
      default: { // past the queue or out of it, to a worker, and out
        const [from, lane] = d.kind === 'pass' ? [0, spread * 0.4] : [l.tank.right, spread];
        x = second ? glide(spot.x, l.w, second) : glide(from, spot.x, first);
        y = second ? glide(spot.y, l.middle + spread * 0.4, second) : glide(l.middle + lane, spot.y, first);
        if (!second) color = '--flow';
      }
    }
    c.globalAlpha = fade;
    c.fillStyle = this.color(color);
    c.beginPath();
    c.arc(x, y, 3.2, 0, 7);
    c.fill();
    c.globalAlpha = 1;
  }
}
Picture.life = { wait: 0.8, refuse: 1.5, drop: 0.9, pass: 2, leave: 1.5 }; // seconds
