// The console: it follows the stream of states, and shows them.

(() => {
  const picture = new Picture($('picture'));
  const perSecond = (n) => amount(n) + '/s';
  const charts = {
    latency: new Chart($('latency'), [
      { name: 'p50', color: '--p50', dash: 'dotted', value: (s) => s.p50 },
      { name: 'p90', color: '--p90', dash: 'dashed', value: (s) => s.p90 },
      { name: 'p99', color: '--p99', value: (s) => s.p99 },
    ], { log: true, format: duration, limit: () => last.slo, limitName: 'objective' }),
    traffic: new Chart($('traffic'), [
      { name: 'in time', color: '--good', value: (s) => s.good },
      { name: 'late', color: '--late', value: (s) => s.late },
      { name: 'condition not met', color: '--soft', value: (s) => s.unmet },
      { name: 'error', color: '--fault', value: (s) => s.failed },
      { name: 'turned away', color: '--shed', value: (s) => s.shed },
    ], { stacked: true, format: amount }),
    queue: new Chart($('queue'), [
      { name: 'waiting', color: '--flow', value: (s) => s.depth },
    ], { stacked: true, format: amount, limit: (s) => s.capacity, limitName: 'capacity', least: 4 }),
  };

  let samples = []; // of the last minutes
  let last = null; // the state that came last
  let about = null; // what never changes
  let explanations = {}; // of the reasons
  let stream = null; // aborts the stream that is open
  let remembering = false; // the history is being fetched
  let paused = false;
  let lost = false;
  let level = '';

  const summary = (name) => about?.strategies.find((s) => s.name === name)?.summary || '';

  // sample makes an object of a row of the history.
  function sample(row, columns, boot, before) {
    const s = Object.fromEntries(columns.map((name, i) => [name, row[i]]));
    s.gap = !before || s.time - before.time > 3;
    s.clock = new Date(boot + 1000 * s.time).toLocaleTimeString();
    return s;
  }

  // remember fetches what happened before.
  async function remember() {
    if (remembering) return;
    remembering = true;
    try {
      const answer = await fetch('history', { headers: headers(), cache: 'no-store' });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const past = await answer.json();
      if (past.boot !== last.boot) return;
      samples = [];
      for (const row of past.points) samples.push(sample(row, past.columns, past.boot, samples.at(-1)));
      show();
    } catch { // the next state has it tried again
    } finally {
      remembering = false;
    }
  }

  function take(state) {
    const before = last;
    last = state;
    if (before && before.boot !== state.boot) samples = [];
    if (before && before.strategy !== state.strategy) announce(`The strategy is now ${state.strategy}.`);
    if (!before || before.strategy !== state.strategy) showStrategy(state.strategy);
    if (state.point) {
      const newest = samples.at(-1), now = sample(state.point, about.columns, state.boot, newest);
      if (now.gap) remember();
      else if (now.time > newest.time) samples.push(now);
      samples = samples.filter((s) => now.time - s.time <= SPAN);
    }
    show();
  }

  // each writes a figure of every pool, if they are split.
  const each = (write) => last.pools ? last.pools.map((p) => `${p.name} ${write(p)}`).join(', ') : '';

  function show() {
    const now = samples.at(-1);
    const of = (p) => p.capacity === null ? 'no bound' : `of ${amount(p.capacity)}`;
    set($('depth'), amount(last.depth));
    set($('capacity'), last.workers === 0 ? 'no queue' : each((p) => `${amount(p.depth)} ${of(p)}`) || of(last));
    set($('busy'), last.workers === 0 ? '–' : amount(last.busy));
    // A learned number that is only observed holds nobody back, so that more may be at work.
    const held = !last.learned || last.mode !== 'observe';
    set($('workers'), last.workers === 0 ? 'by the connections' : !held ? 'nobody is held back' : each((p) => `${p.busy} of ${p.workers}`) || `of ${amount(last.workers)} ${last.workers === 1 ? 'worker' : 'workers'}${last.learned ? ', learned' : ''}`);
    const { objective } = last;
    set($('objective'), `objective: ${objective.in_force} (${objective.why})`);
    $('learned').hidden = !last.learned;
    if (last.learned) set($('learned'), `${held ? `learned: ${amount(last.learned.limit)} at once` : 'not learned'} (${last.learned.why})`);
    set($('connections'), `${amount(last.connections)} ${last.connections === 1 ? 'connection' : 'connections'}`);
    set($('summary'), summary(last.strategy) + (last.mode === 'observe' ? ' · observe mode: it turns nothing away' : ''));
    showVerdict();
    showStore();
    showSlowest();
    showWhy();
    showCallers();
    showUpstreams();
    showPercentiles();
    showChips($('codes'), last.codes);
    if (!now) {
      showHealth(0);
      return;
    }
    set($('process'), `${about.version} · up ${age(last.time)} · CPU ${digits(100 * now.cpu / about.cpus)}% of ${about.cpus} · ${bytes(now.memory)}`);
    $('process').title = `commit ${about.commit}, ${about.go}`;
    set($('arrivals'), perSecond(now.arrivals));
    set($('good'), perSecond(now.good));
    const answered = now.good + now.late + now.unmet + now.failed + now.shed;
    set($('share'), answered ? `${digits(100 * now.good / answered)}% of all` : '');
    set($('shed-total'), now.shed ? `${perSecond(now.shed)}, ${digits(100 * now.shed / answered)}% of all` : 'none');
    const reasons = Object.fromEntries(Object.keys(explanations).map((reason) => [reason, now.reasons?.[reason] || 0]));
    showChips($('sheds'), reasons);
    const refused = ['full', 'late', 'draining'].reduce((sum, reason) => sum + (reasons[reason] || 0), 0);
    picture.update({ ...now, pools: last.pools || [held ? last : { ...last, workers: last.workers && Math.max(60, last.busy) }], refused, dropped: now.shed - refused });
    const unit = picture.unit();
    set($('unit'), now.workers === 0 ? '' : unit === 1 ? '■ 1 request' : `■ ${amount(unit)} requests`);
    for (const name in charts) charts[name].update(samples);
    showHealth(samples.slice(-5).reduce((sum, s) => sum + s.shed, 0));
  }

  function showVerdict() {
    const { verdict } = last;
    $('verdict').dataset.level = verdict.level;
    set($('verdict-text'), verdict.text);
    set($('verdict-advice'), verdict.advice);
    $('verdict-switch').hidden = !verdict.switch || lost;
    set($('verdict-switch'), `Switch to ${verdict.switch}…`);
  }

  function showCallers() {
    const lines = [];
    for (const c of last.classes || []) lines.push([`priority ${c.name}`, c]);
    for (const c of last.clients || []) lines.push([c.name ? `client ${c.name}` : 'other clients', c]);
    $('callers').hidden = !lines.length;
    $('callers').classList.toggle('unconditional', lines.every(([, c]) => !c.unmet));
    const time = (last.clients || []).reduce((sum, c) => sum + c.time, 0);
    rows($('callers-rows'), lines.map(([name, c]) => [name, c.time && !name.startsWith('priority ') ? `${Math.round(100 * c.time / time)} %` : '–', ...[c.good + c.late + c.unmet + c.failed + c.shed, c.good, c.late, c.unmet, c.failed, c.shed].map((n) => n ? amount(n) : '–')]));
  }

  function showUpstreams() {
    const all = last.upstreams || [];
    $('upstreams').hidden = !all.length;
    rows($('upstreams-rows'), all.map((u) => [
      u.name, `${amount(u.busy)} of ${amount(u.limit)}`, u.good ? amount(u.good) : '–', u.failed ? amount(u.failed) : '–',
      u.unwell ? `${u.up ? 'returns' : 'rests'}, ${age(u.unwell)}` : u.up ? 'well' : 'not reached',
    ]));
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
    const percent = (n) => `${digits(Math.min(100, Math.max(0.01, 100 * n / last.answered)))}%`;
    const lines = Object.keys(explanations).map((reason) => [reason, last.reasons[reason] || 0])
      .filter(([, n]) => n > 0.5).sort((a, b) => b[1] - a[1])
      .map(([reason, n]) => [reason, `${percent(n)} of the answers of the last 10 s. Each request ${explanations[reason]}.`
        + (reason === 'full' && last.roomless > 0.5 ? ` Without memory for its body: ${percent(last.roomless)}.` : '')]);
    for (const [reason, n] of Object.entries(last.wouldShed)) {
      if (n > 0.5) lines.push([`${reason}, observed`, `${percent(n)} of the answers of the last 10 s. The mode enforce would have turned these requests away${explanations[reason] ? `: each ${explanations[reason]}` : ''}.`]);
    }
    if (lines.length) {
      const [least, most] = last.depths, waits = last.percentiles.find((p) => p.of === 'waiting').recent;
      lines.push(['queue', `${least === most ? amount(most) : `${amount(least)} to ${amount(most)}`} waited`
        + (last.capacity ? `, of at most ${amount(last.capacity)}.` : '.') + (last.limit ? ` The strategy's own limit is ${amount(last.limit)} now.` : '')
        + (waits ? ` Those that ran had waited ${duration(waits[0])} (median), ${duration(waits[2])} (p99).` : ' None ran.')
        + (last.pace ? ` The workers begin one every ${duration(last.pace)}.` : '')]);
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

  function showPercentiles() {
    const names = { latency: 'latency', waiting: 'waiting' };
    const line = (name, figures) => [name, ...(figures || [null, null, null]).map(duration)];
    rows($('percentiles'), last.percentiles.flatMap(({ of, recent, all }) => [
      line(`${names[of] || of}, last 10 s`, recent), line(`${names[of] || of}, last 15 min`, all),
    ]));
  }

  function showStore() {
    $('store').closest('.card').hidden = last.proxy;
    if (last.proxy) return; // there is none
    const { store } = last;
    const times = (figures, none) => figures ? `${duration(figures[0])}, ${duration(figures[2])}` : none;
    const state = $('store-state');
    state.dataset.level = store.unwritable ? 'bad' : 'good';
    if (!store.embedded) { // the cluster has figures of its own
      set(state, store.unwritable ? 'no node answers' : 'reachable');
      pairs($('store'), [
        ['read: median, p99', times(store.get, 'no read of late')],
        ['write: median, p99', times(store.commit, 'no write of late')],
        ['operations under way', last.workers === 0 ? '–' : `${last.busy} of at most ${last.workers}`],
      ]);
      return;
    }
    set(state, store.unwritable ? 'cannot write' : 'writable');
    const share = (hits, misses) => hits + misses ? `${digits(100 * hits / (hits + misses))}%` : '–';
    const values = !store.values ? [] : [
      ['value cache hits', share(store.values.hits, store.values.misses)],
      ['value cache', bytes(store.values.bytes)],
    ];
    pairs($('store'), [
      ['read: median, p99', times(store.get, 'no read of late')],
      ['write: median, p99', times(store.commit, 'no write of late')],
      ['fsync: median, p99', times(store.fsync, 'no fsync of late')],
      ['write stalls', amount(store.stalls), store.stallsLately ? 'bad' : 'off'],
      ['compactions', amount(store.compactions)],
      ['compaction debt', bytes(store.debt)],
      ['read amplification', String(store.readAmplification), store.readAmplification > 12 ? 'late' : 'off'],
      ...values,
      ['block cache hits', share(store.cacheHits, store.cacheMisses)],
      ['memtables', bytes(store.memtables)],
      ['on disk', bytes(store.disk)],
      ['levels in use', (store.levels || []).map((n, i) => n ? `L${i}` : '').filter(Boolean).join(' ') || '–'],
    ]);
  }

  function showSlowest() {
    const body = $('slowest'), most = last.slowest.length ? last.slowest[0].took : 1;
    rows(body, last.slowest.map((q) => [
      duration(q.took), '', duration(q.waited), q.ran || !q.shed ? duration(q.ran) : '–',
      `${q.method}${last.proxy ? q.route && ` ${q.route}` : `, key ${bytes(q.key)}`}${q.value ? `, ${last.proxy ? 'body' : 'value'} ${bytes(q.value)}` : ''}`,
      q.shed ? `${q.code} ${q.shed}` : String(q.code), q.strategy, q.age < 60 ? `${q.age.toFixed(0)} s` : `${(q.age / 60).toFixed(0)} min`,
    ]));
    last.slowest.forEach((q, i) => {
      const cell = body.rows[i].cells[1];
      cell.className = 'bar';
      const svg = shape('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
      let x = 0;
      for (const [part, color] of [[q.received, '--soft'], [q.waited, '--late'], [q.ran, '--flow']]) {
        const width = Math.max(0, 100 * part / most);
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
    const grave = health[0] === 'bad' ? health[1] : health[0] !== 'off' && last.verdict.level === 'bad' ? 'many are not served as they should be' : '';
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
        const since = samples.at(-1);
        notice(`No connection to the service (${error.message}). Trying again …` + (since ? ` The figures below are from ${since.clock}.` : ''));
        document.body.classList.add('stale');
        picture.stop();
        if (last) {
          showVerdict();
          showHealth(0);
          offer();
        }
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
          document.body.classList.remove('stale');
          offer();
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

  function showAbout(message) {
    about = message;
    explanations = message.reasons;
    $('choices').replaceChildren(...message.strategies.map((s) => {
      const label = document.createElement('label'), input = document.createElement('input');
      const name = document.createElement('b'), mark = document.createElement('em'), text = document.createElement('span');
      Object.assign(input, { type: 'radio', name: 'strategy', value: s.name });
      input.addEventListener('change', chosen);
      set(name, s.name);
      set(text, s.summary);
      mark.dataset.recommended = s.recommended;
      name.append(mark);
      label.append(input, name, text);
      return label;
    }));
    if (last) showStrategy(last.strategy);
  }

  function showStrategy(name) {
    set($('active'), name);
    set($('summary'), summary(name));
    for (const mark of document.querySelectorAll('#choices em')) {
      const now = mark.closest('label').querySelector('input').value === name;
      mark.className = now ? 'now' : '';
      set(mark, now ? 'now' : mark.dataset.recommended === 'true' ? 'recommended' : '');
    }
    offer();
    document.title = `${name} · Spillway`;
  }

  function offer() { $('choose').disabled = !last || lost; }

  const choice = () => document.querySelector('#choices input:checked')?.value || '';

  // changes returns what is chosen and not so already.
  function changes() {
    const wanted = {}, slo = $('slo').value.trim();
    if (choice() !== last.strategy) wanted.strategy = choice();
    if (slo !== last.objective.set) wanted.slo = slo;
    if ($('mode').value !== last.mode) wanted.mode = $('mode').value;
    return wanted;
  }

  function chosen() {
    const wanted = changes();
    $('confirm-yes').disabled = !Object.keys(wanted).length;
    set($('confirm-yes'), wanted.strategy ? `Switch to ${wanted.strategy}` : 'slo' in wanted || wanted.mode ? 'Change' : 'Switch');
  }

  // choose opens the list, with one chosen already.
  function choose(name) {
    for (const input of document.querySelectorAll('#choices input')) input.checked = input.value === name;
    $('slo').value = last.objective.set;
    $('mode').value = last.mode;
    set($('confirm-error'), '');
    chosen();
    $('confirm').showModal();
    document.querySelector('#choices input:checked')?.focus();
  }

  $('slo').addEventListener('input', chosen);
  $('mode').addEventListener('change', chosen);
  $('choose').addEventListener('click', () => choose(last.strategy));
  $('verdict-switch').addEventListener('click', () => choose(last.verdict.switch));
  $('confirm-no').addEventListener('click', () => $('confirm').close());
  $('confirm-form').addEventListener('submit', async (e) => {
    e.preventDefault();
    $('confirm-yes').disabled = true;
    set($('confirm-error'), '');
    const wanted = changes();
    try {
      const answer = await fetch('strategy', {
        method: 'PUT', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(wanted),
      });
      const said = await answer.json();
      if (!answer.ok) throw new Error(said.detail || `status ${answer.status}`);
      // The stream may have told of the switch already.
      announce(wanted.strategy ? `The strategy is now ${said.strategy}.` : `The objective is ${said.objective.in_force}, the mode ${said.mode}.`);
      last = { ...last, strategy: said.strategy, objective: said.objective, mode: said.mode };
      showStrategy(said.strategy);
      $('confirm').close();
    } catch (error) {
      set($('confirm-error'), `Not switched: ${error.message}`);
    } finally {
      chosen();
    }
  });

  follow();
})();
