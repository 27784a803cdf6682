// SPDX-License-Identifier: Apache-2.0
// Step time against memory: a point per row, and the line of rows that no other row beats in both.

const peakOf = (row) => gib(row.worst_rank.total_bytes);
const secondsOf = (row) => row.step_ns / 1e9;

/** Rows of which no other one is at least as fast and as small; by ascending memory. */
function frontierOf(rows) {
  const sorted = [...rows].sort((a, b) => peakOf(a) - peakOf(b) || a.step_ns - b.step_ns);
  let best = Infinity;
  return sorted.filter((row) => {
    if (row.step_ns >= best) return false;
    best = row.step_ns;
    return true;
  });
}

/**
 * An axis over these values, [from, to] its ends in the picture: {at(value), ticks}. Logarithmic if
 * the largest value is more than five times the smallest.
 */
function axisOf(values, from, to) {
  let low = Math.min(...values), high = Math.max(...values);
  const log = low > 0 && high > 5 * low;
  if (log) {
    low /= 1.1;
    high *= 1.1;
  } else {
    const room = 0.06 * (high - low) || 0.1 * high || 1;
    high += room;
    low = Math.max(0, low - room);
  }
  const scale = log ? Math.log : (value) => value;
  const at = (value) => from + (to - from) * (scale(value) - scale(low)) / (scale(high) - scale(low));
  const ticks = [];
  if (log) {
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
      for (const factor of [1, 2, 5]) ticks.push(factor * power);
    }
  } else {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    for (let i = Math.ceil(low / step); i * step <= high; ++i) ticks.push(i * step);
  }
  return {at, ticks: ticks.filter((tick) => tick >= low && tick <= high)};
}

const tickText = (value) => String(Number(value.toPrecision(3)));

/** Draws rows into #chart. `on`: {hover(row, event), leave(), select(row)}. Returns points by index of row. */
function drawChart(rows, on) {
  const box = byId('chart');
  const narrow = box.clientWidth < 520;
  const width = narrow ? 380 : 720, height = narrow ? 300 : 400;
  const left = 52, right = width - 12, top = 20, bottom = height - 40;
  const svg = makeSvg(null, 'svg', {viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': 'Step time against memory'});
  box.replaceChildren(svg);
  const points = new Map();
  if (rows.length === 0) {
    makeSvg(svg, 'text', {x: width / 2, y: height / 2, 'text-anchor': 'middle'}).textContent = 'no row is left';
    return points;
  }
  const across = axisOf([...rows.map(peakOf), plan.memory_gib], left, right);
  const up = axisOf(rows.map(secondsOf), bottom, top);
  for (const tick of across.ticks) {
    const x = across.at(tick);
    makeSvg(svg, 'line', {x1: x, x2: x, y1: top, y2: bottom, class: 'grid'});
    makeSvg(svg, 'text', {x, y: bottom + 16, 'text-anchor': 'middle'}).textContent = tickText(tick);
  }
  for (const tick of up.ticks) {
    const y = up.at(tick);
    makeSvg(svg, 'line', {x1: left, x2: right, y1: y, y2: y, class: 'grid'});
    makeSvg(svg, 'text', {x: left - 6, y: y + 4, 'text-anchor': 'end'}).textContent = tickText(tick);
  }
  makeSvg(svg, 'text', {x: right, y: height - 6, 'text-anchor': 'end'}).textContent = 'GiB of the fullest rank';
  makeSvg(svg, 'text', {x: 4, y: 12}).textContent = 'seconds per step';
  const limit = across.at(plan.memory_gib);
  makeSvg(svg, 'line', {x1: limit, x2: limit, y1: top, y2: bottom, class: 'memory'});
  // The best rows are drawn last, above the others.
  for (const row of [...rows].reverse()) {
    const colour = `var(--${row.vocab_mode})`;
    const point = makeSvg(svg, 'circle', {cx: across.at(peakOf(row)), cy: up.at(secondsOf(row)), r: rows.length > 300 ? 3.5 : 5,
      class: 'point' + (row.fits ? '' : ' short'), style: `fill: ${colour}; stroke: ${colour}`});
    point.addEventListener('pointerenter', (event) => on.hover(row, event));
    point.addEventListener('pointerleave', on.leave);
    point.addEventListener('click', () => on.select(row));
    points.set(row.index, point);
  }
  const line = frontierOf(rows).map((row) => `${across.at(peakOf(row))} ${up.at(secondsOf(row))}`);
  makeSvg(svg, 'path', {d: 'M' + line.join('L'), class: 'frontier'});
  return points;
}

function chartLegend() {
  const legend = byId('legend');
  for (const mode of [...new Set(plan.rows.map((row) => row.vocab_mode))]) {
    const key = make(legend, 'span'), dot = make(key, 'i', 'dot');
    dot.style.color = `var(--${mode})`;
    dot.style.background = 'currentColor';
    key.append(mode);
  }
  const key = (className, name) => {
    const entry = make(legend, 'span');
    make(entry, 'i', className);
    entry.append(name);
  };
  if (plan.rows.some((row) => !row.fits)) key('dot', 'does not fit');
  key('dash', `memory of a GPU, ${plan.memory_gib.toFixed(1)} GiB`);
  key('dash solid', 'frontier');
}
