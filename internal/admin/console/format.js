// Numbers for people, and percentiles out of distributions.

const $ = (id) => document.getElementById(id);

function digits(n) {
  return n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1).replace(/\.0$/, '') : n.toFixed(2).replace(/\.?0+$/, '');
}

// amount writes a count or a rate: 7, 0.4, 1.25k.
function amount(n) {
  if (n >= 1e6) return digits(n / 1e6) + 'M';
  if (n >= 1e4) return digits(n / 1e3) + 'k';
  if (n >= 10) return n.toFixed(0);
  return n.toFixed(1).replace(/\.0$/, '');
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 1e-6) return '0';
  if (seconds < 1e-3) return digits(seconds * 1e6) + ' µs';
  if (seconds < 1) return digits(seconds * 1e3) + ' ms';
  return digits(seconds) + ' s';
}

function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024) return digits(n) + ' ' + unit;
    n /= 1024;
  }
  return digits(n) + ' TiB';
}

// A distribution counts durations by index i: those above 2^((i-1)/8) seconds,
// up to 2^(i/8). since returns what came to it after an earlier one: nothing if
// counts have gone to wider buckets, which happens now and then.
function since(after, before) {
  for (const i in before) if ((after[i] || 0) < before[i]) return {};
  const fresh = {};
  for (const i in after) {
    const n = after[i] - (before[i] || 0);
    if (n > 0) fresh[i] = n;
  }
  return fresh;
}

function merge(distributions) {
  const sum = {};
  for (const d of distributions) for (const i in d) sum[i] = (sum[i] || 0) + d[i];
  return sum;
}

function total(counts) {
  let sum = 0;
  for (const key in counts) sum += counts[key];
  return sum;
}

// percentiles returns the values below which these shares of the durations
// are, null if there are none.
function percentiles(distribution, shares) {
  const indexes = Object.keys(distribution).map(Number).sort((a, b) => a - b);
  const all = total(distribution);
  return shares.map((share) => {
    let left = share * all;
    for (const i of indexes) {
      const n = distribution[i];
      if (left <= n) return 2 ** ((i - 1 + left / n) / 8);
      left -= n;
    }
    return null;
  });
}

// set changes a text only if it is another one, so that nothing is laid out,
// or read out, for nothing.
function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
