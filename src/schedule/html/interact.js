// SPDX-License-Identifier: Apache-2.0
// The page: the words around the picture, what is selected and what is under the pointer.

const element = (id) => document.getElementById(id);
const canvas = element('canvas');
const painter = new Painter(canvas);
const view = {from: 0, to: 1, top: 0, laneScale: 1, lanes: ranks <= 8, memory: ranks <= 16};
const state = {
  dark: matchMedia('(prefers-color-scheme: dark)').matches,
  hover: null,     // {run, slice}
  selected: null,  // {run, slice, chain}
  critical: null,  // [run] chains
  found: null,     // [{run, slice}] of the search
  panel: null,
  band: null,      // [x0, x1] while a range is dragged
  size: null,      // other than the window's: print
};
let palette = null;
let scheduled = false;

function make(parent, tag, className, text) {
  const child = parent.appendChild(document.createElement(tag));
  if (className) child.className = className;
  if (text !== undefined) child.textContent = text;
  return child;
}

function chip(parent, colour) { make(parent, 'i', 'chip').style.background = css(colour); }

// --- Header ---------------------------------------------------------------------------------

function percent(value) { return (100 * value).toFixed(2) + ' %'; }

function writeHeader() {
  element('title').textContent = page.title;
  element('cards').replaceChildren();
  element('legend').replaceChildren();
  runs.forEach((run, index) => {
    const card = make(element('cards'), 'div', 'card');
    if (runs.length > 1 || run.title !== page.title) make(card, 'b', '', run.title);
    const fact = (name, value) => {
      const span = make(card, 'span', '', name + ' ');
      make(span, 'i', '', value);
    };
    const beside = index > 0 && runs[0].makespan > 0
        ? ` (${run.makespan >= runs[0].makespan ? '+' : '−'}${
              percent(Math.abs(run.makespan / runs[0].makespan - 1))})` : '';
    fact('makespan', timeText(run.makespan) + beside);
    fact('largest span', timeText(run.largestSpan));
    fact('bubble', percent(run.bubble));
    if (run.peak > 0) {
      const peaks = run.memory.map((memory) => memory.peak);
      fact('peak memory', bytesText(run.peak) + ' on ' + rankText(run, peaks.indexOf(run.peak)));
    }
    fact('passes', run.passes.toLocaleString('en'));
    if (run.costs !== '') fact(page.ticks > 0 ? 'costs in units' : 'costs', run.costs);
  });
  const used = new Set();
  for (const run of runs) for (const kind of run.kinds) used.add(kind);
  if (measured) used.add(kBeyond);
  kKinds.forEach((kind, index) => {
    if (!used.has(index)) return;
    const entry = make(element('legend'), 'span');
    chip(entry, kind.colour);
    entry.append(kind.text);
  });
  memoryLegend();
}

function memoryLegend() {
  for (const old of document.querySelectorAll('#legend .purpose')) old.remove();
  if (!view.memory) return;
  const names = [];
  for (const run of runs) {
    run.purposes.forEach((name, p) => {
      const used = run.memory.some((memory) => memory.by[p].some((value) => value > 0));
      if (used && !names.some((entry) => entry[0] === name)) names.push([name, p]);
    });
  }
  names.forEach(([name, p], index) => {
    const entry = make(element('legend'), 'span', 'purpose', index === 0 ? 'memory: ' : '');
    chip(entry, mix(kPurposeColours[p % kPurposeColours.length], palette.back, 0.25));
    entry.append(name);
  });
}

// --- Drawing --------------------------------------------------------------------------------

function sizeNow() {
  if (state.size !== null) return state.size;
  return {width: canvas.parentElement.clientWidth, height: canvas.parentElement.clientHeight,
          ratio: window.devicePixelRatio || 1};
}

function drawNow() {
  scheduled = false;
  const size = sizeNow();
  if (size.width < kGutter + 20 || size.height < kAxis + 10) return;
  clampView();
  painter.draw(runs, view, size, palette);
  if (state.critical !== null) {
    runs.forEach((run, index) => painter.path(run, state.critical[index], palette.wait));
  }
  if (state.selected !== null) {
    const {run, slice, chain} = state.selected;
    painter.path(run, chain, palette.accent);
    for (const link of chain) painter.waiting(run, link.slice);
    painter.outline(run, slice, palette.ink, 2);
  }
  if (state.hover !== null) {
    const {run, slice} = state.hover;
    if (ofMicrobatch(run, slice)) painter.microbatch(run, run.number[slice], palette.ink);
    painter.waiting(run, slice);
    painter.outline(run, slice, palette.ink, 3);
  }
  if (state.band !== null) {
    const [x0, x1] = state.band.map((x) => x * painter.ratio);
    painter.clipped((context) => {
      context.globalAlpha = 0.2;
      context.fillStyle = palette.accent;
      context.fillRect(Math.min(x0, x1), 0, Math.abs(x1 - x0), painter.height);
    });
  }
}

function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(drawNow);
}

function clampView() {
  const smallest = page.ticks > 0 ? longest * 1e-7 : 20;
  const span = Math.max(smallest, Math.min(longest * 1.04, view.to - view.from));
  const margin = span * 0.02;
  view.from = Math.max(-margin, Math.min(view.from, longest * 1.02 - span));
  view.to = view.from + span;
  const {height} = layoutOf(runs, view, sizeNow().height);
  view.top = Math.max(0, Math.min(view.top, height - (sizeNow().height - kAxis)));
}

function setTheme(dark) {
  state.dark = dark;
  document.documentElement.classList.toggle('dark', dark);
  palette = paletteOf(dark);
  memoryLegend();
}

// --- Moving about ---------------------------------------------------------------------------

function timeAt(x) {
  const plot = sizeNow().width - kGutter;
  return view.from + (x - kGutter) / plot * (view.to - view.from);
}

function zoom(factor, x) {
  const at = timeAt(Math.max(x, kGutter));
  view.from = at - (at - view.from) * factor;
  view.to = at + (view.to - at) * factor;
  changed();
}

function pan(share) {
  const by = (view.to - view.from) * share;
  view.from += by;
  view.to += by;
  changed();
}

function show(from, to) {
  view.from = from;
  view.to = to;
  changed();
}

function fit() { show(-longest * 0.005, longest * 1.015); }

/** The address keeps the view, so that a link shows what was looked at. */
function changed() {
  redraw();
  if (state.panel === 'range') writeRange();
  clearTimeout(changed.timer);
  changed.timer = setTimeout(() => {
    const parts = [`from=${Math.round(view.from)}`, `to=${Math.round(view.to)}`];
    if (state.selected !== null) {
      parts.push(`run=${runs.indexOf(state.selected.run)}`, `slice=${state.selected.slice}`);
    }
    if (state.critical !== null) parts.push('critical');
    try { history.replaceState(null, '', '#' + parts.join('&')); } catch { /* not everywhere */ }
  }, 300);
}

function restore() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (wanted.has('theme')) setTheme(wanted.get('theme') === 'dark');
  const from = Number(wanted.get('from')), to = Number(wanted.get('to'));
  if (to > from) show(from, to); else fit();
  const run = runs[Number(wanted.get('run'))];
  const slice = Number(wanted.get('slice'));
  if (wanted.has('slice') && run !== undefined && slice >= 0 && slice < run.count) select(run, slice);
  if (wanted.has('critical')) toggleCritical();
}

// --- Selection ------------------------------------------------------------------------------

function clearMarks() { for (const run of runs) run.marks = null; }

function showPanel(kind) {
  state.panel = kind;  // what #why holds: 'chain', 'critical', 'range' or nothing
  element('why').hidden = kind === null;
}

function mark(run, chain) {
  run.marks = new Uint8Array(run.count);
  for (const {slice, member} of chain) {
    run.marks[slice] = 1;
    for (const m of isMessage(run, slice) ? membersOf(run, slice) : [member]) run.marks[m] = 1;
  }
}

function select(run, slice) {
  deselect();
  const chain = chainOf(run, slice, false);
  state.selected = {run, slice, chain};
  mark(run, chain);
  writeChain();
  changed();
}

function deselect() {
  state.selected = state.critical = state.found = null;
  clearMarks();
  showPanel(null);
  element('critical').classList.remove('on');
  element('range').classList.remove('on');
  element('matches').textContent = '';
  changed();
}

function toggleCritical() {
  const on = state.critical === null;
  deselect();
  if (!on) return;
  state.critical = runs.map(criticalPath);
  runs.forEach((run, index) => mark(run, state.critical[index]));
  element('critical').classList.add('on');
  writeCritical();
}

function reveal(run, slice) {
  const length = Math.max(run.end[slice] - run.begin[slice], longest * 1e-6);
  show(run.begin[slice] - 8 * length, run.end[slice] + 8 * length);
}

function writeChain() {
  const {run, slice, chain} = state.selected;
  const why = element('why');
  why.replaceChildren();
  make(why, 'h2', '', `Why ${nameOf(run, slice)} on ${rankText(run, rankOf(run, slice))} began at ${
      timeText(run.begin[slice])}`);
  const table = make(why, 'table');
  for (const {slice: i} of chain) {
    const row = make(table, 'tr');
    row.dataset.slice = i;
    row.onclick = () => { select(run, i); reveal(run, i); };
    make(row, 'td', '', rankText(run, rankOf(run, i)));
    make(row, 'td', '', nameOf(run, i));
    make(row, 'td', '', 'begin ' + timeText(run.begin[i]));
    make(row, 'td', '', 'took ' + timeText(run.end[i] - run.begin[i]));
    const idle = isPass(run, i) && wasIdle(run, i);
    make(row, 'td', 'waited', idle ? 'idle ' + timeText(idleBefore(run, i)) : '');
    make(row, 'td', 'reason', reasonOf(run, i));
  }
  showPanel('chain');
}

/**
 * Shares of the critical path by kind of slice; time in which the next one could have begun and had not
 * (the host was elsewhere); what is left is waiting that no slice explains.
 */
function writeCritical() {
  const why = element('why');
  why.replaceChildren();
  make(why, 'h2', '', 'Critical path, by kind');
  runs.forEach((run, index) => {
    const line = make(why, 'div', 'shares');
    if (runs.length > 1) make(line, 'b', '', run.title);
    const sums = new Array(kKinds.length).fill(0);
    let left = run.makespan, late = 0, until = Infinity;
    for (const {slice: i} of state.critical[index]) {
      const begin = Math.min(until, neededFrom(run, i));
      const length = Math.max(0, Math.min(until, run.end[i]) - begin);
      const gap = until === Infinity ? 0 : Math.max(0, until - run.end[i]);
      until = begin;
      sums[run.kinds[run.name[i]]] += length;
      late += gap;
      left -= length + gap;
    }
    const shares = sums.map((sum, kind) => ({sum, text: kKinds[kind].text, colour: kKinds[kind].colour}));
    shares.push({sum: late, text: 'could have begun', colour: null});
    shares.push({sum: left, text: 'not explained', colour: null});
    shares.sort((a, b) => b.sum - a.sum);
    for (const {sum, text, colour} of shares) {
      if (sum <= 0) continue;
      const entry = make(line, 'span');
      if (colour !== null) chip(entry, colour);
      entry.append(`${text} ${timeText(sum)} (${percent(sum / run.makespan)})`);
    }
  });
  showPanel('critical');
}

// --- Hover ----------------------------------------------------------------------------------

function rowAt(y) {
  const inside = y - kAxis + view.top;
  if (y < kAxis || !painter.layout) return null;
  return painter.layout.rows.find((row) => inside >= row.y && inside <= row.y + row.height) || null;
}

function hit(x, y) {
  const row = rowAt(y);
  if (row === null || x < kGutter || !row.track) return null;
  const tolerance = 2 / (sizeNow().width - kGutter) * (view.to - view.from);
  const slice = sliceAt(row.run, row.track, timeAt(x), tolerance);
  return slice < 0 ? null : {run: row.run, slice};
}

function describe({run, slice: i}, tip) {
  const head = make(tip, 'div', 'name');
  chip(head, kKinds[run.kinds[run.name[i]]].colour);
  make(head, 'span', '', nameOf(run, i));
  make(head, 'span', 'soft', rankText(run, rankOf(run, i)));
  const cpu = run.cpu !== null && isPass(run, i) ? `, CPU ${timeText(run.cpu[i])}` : '';
  make(tip, 'div', '', `begin ${timeText(run.begin[i])}, duration ${
      timeText(run.end[i] - run.begin[i])}${cpu}`);
  if (run.cpu !== null && isPass(run, i) && cpuShare(run, i) <= 0.98) {
    make(tip, 'div', 'soft', `without a core for ${
        percent(1 - cpuShare(run, i))} of its time, which is grey`);
  }
  if (isPass(run, i) && wasIdle(run, i)) {
    make(tip, 'div', 'waited', `the rank was idle for ${timeText(idleBefore(run, i))}`);
  }
  make(tip, 'div', 'soft', reasonOf(run, i));
  const {slice: cause} = causeOf(run, i);
  if (cause >= 0 && isMessage(run, cause)) {
    make(tip, 'div', 'soft', `${nameOf(run, cause)} ran ${timeText(run.begin[cause])} to ${
        timeText(run.end[cause])}; it ${reasonOf(run, cause)}`);
  }
}

function describeMemory(row, time, tip) {
  const memory = row.run.memory[row.rank];
  const i = firstAbove(memory.times, time, 0, memory.times.length) - 1;
  make(tip, 'div', 'name', `${rankText(row.run, row.rank)}: ${bytesText(i < 0 ? 0 : memory.total[i])} alive`);
  make(tip, 'div', 'soft', `at ${timeText(time)}; peak ${bytesText(memory.peak)} at ${
      timeText(memory.times[memory.peakAt] || 0)}`);
  if (i < 0 || row.run.purposes.length < 2) return;
  row.run.purposes.forEach((name, p) => {
    if (memory.by[p][i] <= 0) return;
    const line = make(tip, 'div');
    chip(line, palette.purposes[p % palette.purposes.length]);
    line.append(` ${name} ${bytesText(memory.by[p][i])}`);
  });
}

/** What the figure before a row is of. */
function describeRow({run, rank}, tip) {
  make(tip, 'div', 'name', rankText(run, rank));
  const share = (time) => percent(run.makespan > 0 ? time / run.makespan : 0);
  if (run.cpu === null) {
    make(tip, 'div', '', `busy ${timeText(run.busy[rank])}, ${share(run.busy[rank])} of the makespan`);
    return;
  }
  const clock = busyOf(run, rank, 0, run.makespan).busy;
  make(tip, 'div', '', `CPU time of its passes ${timeText(run.busy[rank])}, ${
      share(run.busy[rank])} of the makespan`);
  make(tip, 'div', 'soft', `by the clock its passes take ${timeText(clock)}, ${share(clock)}`);
}

function hover(event) {
  const {offsetX: x, offsetY: y} = event;
  const tip = element('tip');
  const found = hit(x, y);
  const row = rowAt(y);
  const before = state.hover;
  state.hover = found;
  if ((before && before.slice) !== (found && found.slice) ||
      (before && before.run) !== (found && found.run)) redraw();
  tip.replaceChildren();
  if (found !== null) describe(found, tip);
  else if (row !== null && row.type === 'memory' && x >= kGutter) describeMemory(row, timeAt(x), tip);
  else if (row !== null && row.type === 'track' && x < kGutter) describeRow(row, tip);
  tip.hidden = tip.childElementCount === 0;
  if (tip.hidden) return;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + 'px';
  const below = event.clientY + 18;
  tip.style.top =
      (below + box.height < innerHeight ? below : Math.max(4, event.clientY - box.height - 12)) + 'px';
}

function leave() {
  element('tip').hidden = true;
  state.hover = null;
  redraw();
}
