// The console: it follows the stream of states, and shows them.

(() => {
  const picture = new Picture($('picture'));
  const perSecond = (n) => amount(n) + '/s';
  const charts = {
    latency: new Chart($('latency'), [
      { name: 'p50', color: '--p50', value: (s) => s.latency[0] },
      { name: 'p90', color: '--p90', value: (s) => s.latency[1] },
      { name: 'p99', color: '--p99', value: (s) => s.latency[2] },
    ], { log: true, format: duration, limit: (s) => s.slo, limitName: 'objective' }),
    traffic: new Chart($('traffic'), [
      { name: 'in time', color: '--good', value: (s) => s.good },
      { name: 'late', color: '--late', value: (s) => s.late },
      { name: 'failed', color: '--fault', value: (s) => s.fault },
      { name: 'turned away', color: '--shed', value: (s) => s.shed },
    ], { stacked: true, format: amount }),
    queue: new Chart($('queue'), [
      { name: 'waiting', color: '--flow', value: (s) => s.depth },
    ], { stacked: true, format: amount, limit: (s) => s.capacity, limitName: 'capacity', least: 4 }),
  };

  let samples = []; // of the last minutes
  let last = null; // the state that came last
  let summaries = {}; // of the strategies
  let explanations = {}; // of the reasons
  let stream = null; // aborts the stream that is open
  let paused = false;
  let lost = false;
  let level = '';

  // sample makes the figures of the time between two states.
  function sample(before, now) {
    const seconds = now.time - before.time;
    const rate = (a, b) => Math.max(0, b - a) / seconds;
    const rates = (a, b) => Object.fromEntries(Object.keys(b).map((k) => [k, rate(a[k] || 0, b[k])]));
    const latencies = since(now.latency, before.latency), waits = since(now.wait, before.wait), fsyncs = since(now.store.fsync, before.store.fsync);
    const gets = since(now.store.get, before.store.get), commits = since(now.store.commit, before.store.commit);
    const ok = total(latencies) / seconds, good = Math.min(ok, rate(before.good, now.good));
    const reasons = rates(before.shed, now.shed), codes = rates(before.codes, now.codes);
    const roomless = rate(before.roomless, now.roomless);
    reasons.full += roomless;
    const shed = total(reasons);
    return {
      seconds, roomless,
      time: now.time, gap: seconds > 5, strategy: now.strategy, slo: now.slo,
      arrivals: rate(before.submitted, now.submitted) + roomless, ran: rate(before.run, now.run),
      good, late: ok - good, shed, fault: rate(before.failed, now.failed), reasons, codes,
      depth: now.depth, capacity: now.capacity, workers: now.workers, busy: now.busy,
      latencies, waits, fsyncs, gets, commits, latency: percentiles(latencies, [0.5, 0.9, 0.99]),
      hits: Math.max(0, now.store.cacheHits - before.store.cacheHits), misses: Math.max(0, now.store.cacheMisses - before.store.cacheMisses), stalls: now.store.stalls,
    };
  }

  function take(state) {
    if (last && last.boot !== state.boot) {
      samples = [];
      last = null;
    }
    const before = last;
    // Requests may be turned away before the queue, as there is no room for their
    // bodies: more are answered so than tasks were shed. Answers are counted after
    // their tasks, so that the difference may be too small, but never too large.
    state.roomless = Math.max(before ? before.roomless : 0, state.turnedAway - total(state.shed));
    last = state;
    if (before && before.strategy !== state.strategy) announce(`The strategy is now ${state.strategy}.`);
    if (!before || before.strategy !== state.strategy) showStrategy(state.strategy);
    if (before && state.time > before.time) {
      samples.push(sample(before, state));
      samples = samples.filter((s) => state.time - s.time <= SPAN);
    }
    show();
  }

  function show() {
    const now = samples[samples.length - 1];
    set($('depth'), amount(last.depth));
    set($('capacity'), last.workers === 0 ? 'no queue' : last.capacity === null ? 'no bound' : `of ${amount(last.capacity)}`);
    set($('busy'), last.workers === 0 ? '–' : amount(last.busy));
    set($('workers'), last.workers === 0 ? 'the connections' : `of ${last.workers} workers`);
    set($('connections'), `${amount(last.connections)} ${last.connections === 1 ? 'connection' : 'connections'}`);
    showStore();
    showSlowest();
    if (!now) {
      showHealth(0);
      return;
    }
    set($('arrivals'), perSecond(now.arrivals));
    set($('good'), perSecond(now.good));
    const answered = now.good + now.late + now.fault + now.shed;
    set($('share'), answered ? `${digits(100 * now.good / answered)}% of all` : '');
    set($('shed-total'), now.shed ? `${perSecond(now.shed)}, ${digits(100 * now.shed / answered)}% of all` : 'none');
    showChips($('sheds'), now.reasons);
    showWhy();
    showChips($('codes'), now.codes);
    const refused = ['full', 'limit', 'draining'].reduce((sum, reason) => sum + (now.reasons[reason] || 0), 0);
    picture.update({ ...now, refused, dropped: now.shed - refused });
    const { unit } = picture.cells();
    set($('unit'), now.workers === 0 ? '' : unit === 1 ? '■ 1 request' : `■ ${amount(unit)} requests`);
    for (const name in charts) charts[name].update(samples);
    showPercentiles();
    showHealth(latest(5).reduce((sum, s) => sum + s.shed, 0));
  }

  function showChips(list, rates) {
    const names = Object.keys(rates);
    while (list.children.length > names.length) list.lastChild.remove();
    while (list.children.length < names.length) list.append(document.createElement('li'));
    names.forEach((name, i) => {
      set(list.children[i], `${name} ${perSecond(rates[name])}`);
      list.children[i].title = explanations[name] ? `It ${explanations[name]}.` : '';
      list.children[i].className = rates[name] > 0 ? 'on' : '';
    });
  }

  // showWhy explains what was turned away of late: which share, by which rule, and
  // what the queue was like meanwhile.
  function showWhy() {
    const recent = latest(10);
    const over = (rate) => recent.reduce((n, s) => n + rate(s) * s.seconds, 0);
    const answered = over((s) => s.good + s.late + s.fault + s.shed), roomless = over((s) => s.roomless);
    const percent = (n) => `${digits(Math.max(0.01, 100 * n / answered))}%`;
    const lines = Object.keys(explanations).map((reason) => [reason, over((s) => s.reasons[reason] || 0)])
      .filter(([, n]) => n > 0.5).sort((a, b) => b[1] - a[1])
      .map(([reason, n]) => [reason, `${percent(n)} of the last 10 s: what ${explanations[reason]}.`
        + (reason === 'full' && roomless > 0.5 ? ` For want of memory for bodies: ${percent(roomless)}.` : '')]);
    if (lines.length) {
      const depths = recent.map((s) => s.depth), least = Math.min(...depths), most = Math.max(...depths);
      const [p50, p99] = percentiles(merge(recent.map((s) => s.waits)), [0.5, 0.99]);
      lines.push(['meanwhile', `${least === most ? amount(most) : `${amount(least)} to ${amount(most)}`} waiting`
        + (last.capacity ? ` of ${amount(last.capacity)} that may` : '') + (last.limit ? `, the strategy's limit is ${amount(last.limit)} now` : '') + ', looked at once a second'
        + (p50 === null ? '; none was run.' : `; what was run had waited ${duration(p50)} (median), ${duration(p99)} (p99).`)
        + (last.pace ? ` Workers begin a task every ${duration(last.pace)}, as the strategy measures it.` : '')]);
    }
    $('why').hidden = !lines.length;
    pairs($('why'), lines);
  }

  // pairs makes a list have these names and values, each value with a level.
  function pairs(list, entries) {
    while (list.children.length > 2 * entries.length) list.lastChild.remove();
    entries.forEach(([name, value, level = 'off'], i) => {
      while (list.children.length < 2 * i + 2) list.append(document.createElement(list.children.length % 2 ? 'dd' : 'dt'));
      set(list.children[2 * i], name);
      set(list.children[2 * i + 1], value);
      list.children[2 * i + 1].dataset.level = level;
    });
  }

  // rows makes a table body have these cells, given as texts.
  function rows(body, lines) {
    while (body.rows.length > lines.length) body.deleteRow(-1);
    lines.forEach((cells, i) => {
      const row = body.rows[i] || body.insertRow();
      cells.forEach((text, j) => set(row.cells[j] || row.insertCell(), text));
    });
  }

  // latest returns the samples of the last n seconds. What came while nobody
  // looked is in one sample, and is not of late.
  function latest(n) {
    return samples.slice(-n).filter((s) => !s.gap);
  }

  function showPercentiles() {
    const shares = [0.5, 0.9, 0.99];
    const line = (name, key, some) => [name, ...percentiles(merge(some.map((s) => s[key])), shares).map(duration)];
    const recent = latest(5);
    rows($('percentiles'), [
      line('latency, last 5 s', 'latencies', recent), line('latency, last 5 min', 'latencies', samples),
      line('queue wait, last 5 s', 'waits', recent), line('queue wait, last 5 min', 'waits', samples),
    ]);
  }

  function showStore() {
    const { store } = last, recent = latest(10);
    const times = (key, none) => {
      const [p50, p99] = percentiles(merge(recent.map((s) => s[key])), [0.5, 0.99]);
      return p99 === null ? none : `${duration(p50)}, ${duration(p99)}`;
    };
    const state = $('store-state');
    state.dataset.level = store.unwritable ? 'bad' : 'good';
    if (!store.embedded) { // the cluster has figures of its own
      set(state, store.unwritable ? 'no node answers' : 'reachable');
      pairs($('store'), [
        ['read p50, p99', times('gets', 'no read of late')],
        ['write p50, p99', times('commits', 'no write of late')],
        ['operations under way', last.workers === 0 ? '–' : `${last.busy} of ${last.workers} that may`],
      ]);
      return;
    }
    set(state, store.unwritable ? 'cannot write' : 'writable');
    const hits = recent.reduce((n, s) => n + s.hits, 0), misses = recent.reduce((n, s) => n + s.misses, 0);
    const stalled = samples.length > 0 && store.stalls > samples[0].stalls;
    pairs($('store'), [
      ['fsync p50, p99', times('fsyncs', 'no fsync of late')],
      ['write stalls', amount(store.stalls), stalled ? 'bad' : 'off'],
      ['compactions', amount(store.compactions)],
      ['to be compacted', bytes(store.debt)],
      ['places a read looks at', String(store.readAmplification), store.readAmplification > 12 ? 'late' : 'off'],
      ['cache hits', hits + misses ? `${digits(100 * hits / (hits + misses))}%` : '–'],
      ['memtables', bytes(store.memtables)],
      ['on disk', bytes(store.disk)],
      ['levels with data', store.levels.map((n, i) => n ? `L${i}` : '').filter(Boolean).join(' ') || '–'],
    ]);
  }

  function showSlowest() {
    const body = $('slowest'), most = last.slowest.length ? last.slowest[0].took : 1;
    rows(body, last.slowest.map((q) => [
      duration(q.took), '', duration(q.waited), q.ran || !q.shed ? duration(q.ran) : '–',
      `${q.method}, key ${bytes(q.key)}${q.value ? `, value ${bytes(q.value)}` : ''}`,
      q.shed ? `${q.code} ${q.shed}` : String(q.code), q.strategy, q.age < 60 ? `${q.age.toFixed(0)} s` : `${(q.age / 60).toFixed(0)} min`,
    ]));
    last.slowest.forEach((q, i) => {
      const cell = body.rows[i].cells[1];
      cell.className = 'bar';
      const svg = shape('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
      let x = 0;
      for (const [part, color] of [[q.received, '--soft'], [q.waited, '--late'], [q.ran, '--flow']]) {
        const width = 100 * part / most;
        shape('rect', { x, y: 0, width, height: 10 }, svg).style.fill = `var(${color})`;
        x += width;
      }
      cell.replaceChildren(svg);
    });
    if (!last.slowest.length) rows(body, [['none yet']]);
  }

  function showHealth(shed) {
    const health = lost ? ['bad', 'no connection']
      : paused ? ['off', 'paused']
        : last.ready ? ['bad', `not ready: ${last.ready}`]
          : shed > 0 ? ['bad', 'shedding']
            : last.workers > 0 && last.depth > 0 ? ['late', 'queueing']
              : ['good', 'serving'];
    $('health').dataset.level = health[0];
    set($('health'), health[1]);
    // Only what matters is read out: not the coming and going of a queue.
    const grave = health[0] === 'bad' ? health[1] : '';
    if (grave !== level && !paused) {
      announce(grave ? `The service: ${grave}.` : 'The service serves normally again.');
      level = grave;
    }
  }

  function announce(text) { $('announce').textContent = text; }

  function notice(text) {
    $('notice').hidden = !text;
    set($('notice'), text);
  }

  // The stream of states.

  const token = {
    get: () => sessionStorage.getItem('spillway-token'),
    set: (value) => sessionStorage.setItem('spillway-token', value),
    forget: () => sessionStorage.removeItem('spillway-token'),
  };
  const headers = () => token.get() ? { Authorization: `Bearer ${token.get()}` } : {};

  const pause = (ms, signal) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); });
  });

  // follow keeps a stream open until it is told to stop.
  async function follow() {
    if (stream || paused || document.hidden || $('login').open) return;
    const mine = new AbortController();
    stream = mine;
    for (let wait = 500; !mine.signal.aborted; wait = Math.min(5000, wait * 2)) {
      try {
        await read(mine.signal, () => { wait = 500; });
      } catch (error) {
        if (mine.signal.aborted) break;
        if (error.status === 401) {
          unfollow();
          login(token.get() !== null);
          break;
        }
        lost = true;
        notice(`No connection to the service (${error.message}). Trying again …`);
        picture.stop();
        if (last) showHealth(0);
      }
      await pause(wait, mine.signal);
    }
  }

  async function read(signal, alive) {
    // A connection that has died without a word must be noticed as well.
    const silent = new AbortController();
    let alarm = setTimeout(() => silent.abort(new Error('it is silent')), 10000);
    try {
      const answer = await fetch('console/events', { headers: headers(), cache: 'no-store', signal: AbortSignal.any([signal, silent.signal]) });
      if (!answer.ok) throw Object.assign(new Error(`status ${answer.status}`), { status: answer.status });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ''; ;) {
        const { value, done } = await reader.read();
        if (done) throw new Error('it was closed');
        clearTimeout(alarm);
        alarm = setTimeout(() => silent.abort(new Error('it is silent')), 10000);
        alive();
        if (lost) {
          lost = false;
          notice('');
        }
        text += value;
        for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) receive(text.slice(0, end));
      }
    } finally {
      clearTimeout(alarm);
    }
  }

  function receive(event) {
    const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event);
    if (name === 'state') take(JSON.parse(data));
    else showAbout(JSON.parse(data));
  }

  function unfollow() {
    if (stream) stream.abort();
    stream = null;
    picture.stop();
  }

  document.addEventListener('visibilitychange', () => document.hidden ? unfollow() : follow());
  $('pause').addEventListener('click', () => {
    paused = !paused;
    $('pause').setAttribute('aria-pressed', String(paused));
    set($('pause'), paused ? 'Resume' : 'Pause');
    if (paused) unfollow();
    else follow();
    if (last) showHealth(0);
  });

  function login(wrong) {
    token.forget();
    $('links').hidden = true; // a browser cannot show the token to them
    set($('login-error'), wrong ? 'That is not the token of this service.' : '');
    if (!$('login').open) $('login').showModal();
    $('token').focus();
  }
  $('login').addEventListener('cancel', (e) => e.preventDefault());
  $('login-form').addEventListener('submit', (e) => {
    e.preventDefault();
    token.set($('token').value.trim());
    $('token').value = '';
    $('login').close();
    follow();
  });
  $('links').hidden = token.get() !== null;

  // The switch of the strategy.

  function showAbout({ strategies: choices, reasons }) {
    explanations = reasons;
    summaries = Object.fromEntries(choices.map((s) => [s.name, s.summary]));
    const chosen = $('strategy').value;
    $('strategy').replaceChildren(...choices.map((s) => new Option(s.name, s.name)));
    $('strategy').value = chosen || (last ? last.strategy : '');
    if (last) set($('summary'), summaries[last.strategy] || '');
    offer();
  }

  function showStrategy(name) {
    $('strategy').value = name;
    set($('active'), name);
    set($('summary'), summaries[name] || '');
    offer();
    document.title = `${name} · Spillway`;
  }

  function offer() {
    const wanted = $('strategy').value;
    $('strategy').title = summaries[wanted] || '';
    $('apply').disabled = !last || !wanted || wanted === last.strategy;
  }

  $('strategy').addEventListener('change', offer);
  $('switch').addEventListener('submit', (e) => {
    e.preventDefault();
    const wanted = $('strategy').value;
    set($('confirm-from'), last.strategy);
    set($('confirm-to'), wanted);
    set($('confirm-summary'), summaries[wanted]);
    set($('confirm-yes'), `Switch to ${wanted}`);
    set($('confirm-error'), '');
    $('confirm').showModal();
  });
  $('confirm-no').addEventListener('click', () => $('confirm').close());
  $('confirm').addEventListener('close', () => {
    if (last) showStrategy(last.strategy);
  });
  $('confirm-yes').addEventListener('click', async () => {
    $('confirm-yes').disabled = true;
    set($('confirm-error'), '');
    try {
      const answer = await fetch('strategy', {
        method: 'PUT', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify({ strategy: $('confirm-to').textContent }),
      });
      const said = await answer.json();
      if (!answer.ok) throw new Error(said.detail || `status ${answer.status}`);
      last = { ...last, strategy: said.strategy };
      announce(`The strategy is now ${said.strategy}.`);
      $('confirm').close();
    } catch (error) {
      set($('confirm-error'), `Not switched: ${error.message}`);
    } finally {
      $('confirm-yes').disabled = false;
    }
  });

  follow();
})();
