// Draws the charts that are shown, when they are shown.

const drawers = new Map(); // from an element to what draws into it

for (const figure of document.querySelectorAll('figure[data-chart]')) {
  const spec = data.charts[figure.dataset.chart];
  const plot = figure.querySelector('.plot');
  drawers.set(plot, () => (spec.kind === 'lines' ? drawLines : drawBars)(plot, spec));
  const numbers = figure.querySelector('.numbers');
  numbers.addEventListener('toggle', () => {
    if (numbers.open) (spec.kind === 'lines' ? linesTable : barsTable)(numbers.querySelector('.scroll'), spec);
  });
}
for (const figure of document.querySelectorAll('figure[data-flame]')) {
  drawers.set(figure.querySelector('.plot'), makeFlame(figure));
}

// What is hidden has no width; it is drawn when it gets one.
const widths = new Map();
const resized = new ResizeObserver(entries => {
  for (const { target, contentRect } of entries) {
    const width = Math.round(contentRect.width);
    if (width > 0 && width !== widths.get(target) && !paper.matches) {
      widths.set(target, width);
      drawers.get(target)();
    }
  }
});
for (const plot of drawers.keys()) resized.observe(plot);
paper.addEventListener('change', () => {
  for (const plot of widths.keys()) drawers.get(plot)();
});

// Tables that go on beyond an edge fade there.
const faded = new ResizeObserver(entries => { for (const e of entries) fade(e.target); });
function fade(scroll) {
  scroll.classList.toggle('before', scroll.scrollLeft > 1);
  scroll.classList.toggle('beyond', scroll.scrollLeft + scroll.clientWidth < scroll.scrollWidth - 1);
}
for (const scroll of document.querySelectorAll('.scroll')) {
  scroll.addEventListener('scroll', () => fade(scroll), { passive: true });
  faded.observe(scroll);
}

for (const tabs of document.querySelectorAll('.tabs')) {
  const buttons = [...tabs.children];
  const choose = i => buttons.forEach((b, j) => {
    b.setAttribute('aria-selected', String(i === j));
    b.tabIndex = i === j ? 0 : -1;
    document.getElementById(b.getAttribute('aria-controls')).hidden = i !== j;
  });
  buttons.forEach((b, i) => b.addEventListener('click', () => choose(i)));
  tabs.addEventListener('keydown', e => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by) return;
    const to = (buttons.indexOf(document.activeElement) + by + buttons.length) % buttons.length;
    choose(to);
    buttons[to].focus();
  });
  choose(buttons.length - 1); // the last: the heaviest, where loads differ by rate
}
