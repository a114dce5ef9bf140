// Numbers for people.

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

// age writes how long something has been: 42 s, 7 min, 3 h 12 min, 5 d 2 h.
function age(seconds) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = parts.findIndex(([size]) => seconds >= size);
  if (first < 0) return '0 s';
  const [size, unit] = parts[first], text = `${Math.floor(seconds / size)} ${unit}`;
  if (first > 1) return text;
  const [small, smaller] = parts[first + 1];
  return `${text} ${Math.floor(seconds % size / small)} ${smaller}`;
}

function total(counts) {
  let sum = 0;
  for (const key in counts) sum += counts[key];
  return sum;
}

// set changes a text only if it is another one, so that nothing is laid out,
// or read out, for nothing.
function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
