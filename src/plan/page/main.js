// SPDX-License-Identifier: Apache-2.0
// Puts the parts of the page together: what is under the pointer in the chart is marked in the table
// and the other way round, and a click selects a row in both.

text('title', `${plan.model.name} on ${plan.gpus} x ${plan.device ? plan.device.name : plan.profile.device}`);
text('head', `${(plan.model.parameters / 1e9).toFixed(2)} B parameters, V ${plan.model.vocab_size}. ` +
  `${plan.global_batch_size} sequences of ${plan.seq_length} tokens. ${plan.memory_gib.toFixed(2)} GiB per GPU. ` +
  (plan.device ? `MFU of ${plan.device.peak_tflops.value} TFLOP/s (dense). ` : '') +
  (plan.model.num_experts
    ? `Of ranks that share experts the fullest has ${plan.moe_imbalance} times the mean rows (assumed). ` : '') +
  `Times by ${plan.evaluation.replace('_', ' ')}. Click a heading to sort, and a row or a point for its details.`);
const best = plan.rows[0];
byId('best').className = best.fits ? '' : 'bad';
text('best', (best.fits ? 'Fastest that fits: ' : 'Nothing fits. Nearest: ') +
  `${nameOf(best)}, ${(best.step_ns / 1e6).toFixed(1)} ms per step, ${spareText(best)}.`);
text('advice', adviceOf(plan));
for (const [name, colour] of purposes) {
  const key = make(byId('keys'), 'span', 'key');
  make(key, 'i').style.background = colour;
  key.append(name);
}
make(byId('keys'), 'span', '', `| a GPU's ${plan.memory_gib.toFixed(1)} GiB`);

const elements = new Map();  // of the table's rows, by index of row
let points = new Map();
let selected = null;
let wantedRows = plan.rows;

function mark(row, name, is) {
  for (const of of [elements, points]) {
    const element = of.get(row.index);
    if (element) element.classList.toggle(name, is);
  }
}

function showTip(row, event) {
  const tip = byId('tip');
  tip.replaceChildren();
  make(tip, 'b', '', nameOf(row));
  make(tip, 'div', '', `${(row.step_ns / 1e6).toFixed(1)} ms, ${peakOf(row).toFixed(1)} GiB, ${spareText(row)}`);
  tip.hidden = false;
  const right = innerWidth - tip.offsetWidth - 8, below = event.clientY + 18;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, right)) + 'px';
  tip.style.top = (below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : below) + 'px';
}

/** Scrolls within the table alone: the page stays where it is. */
function scrollToRow(row) {
  rowTable.reveal(row);
  const element = elements.get(row.index), box = byId('scroll');
  if (!element) return;
  const top = element.offsetTop - byId('rows').tHead.offsetHeight;
  if (top < box.scrollTop || top + 2 * element.offsetHeight > box.scrollTop + box.clientHeight) {
    box.scrollTop = top - box.clientHeight / 3;
  }
}

function select(row, from) {
  if (selected) mark(selected, 'on', false);
  selected = row;
  if (from === 'chart') scrollToRow(row);
  showSelected();
  showDetail(row);
}

/** Marks the selected row, and draws its point above the others. */
function showSelected() {
  mark(selected, 'on', true);
  const point = points.get(selected.index);
  if (point) point.parentNode.append(point);
}

function redrawChart() {
  points = drawChart(wantedRows, {
    hover: (row, event) => { mark(row, 'marked', true); showTip(row, event); },
    leave: () => {
      byId('tip').hidden = true;
      for (const row of wantedRows) mark(row, 'marked', false);
    },
    select: (row) => select(row, 'chart'),
  });
  if (selected && points.has(selected.index)) showSelected();
}

const rowTable = table('rows', rowColumns, plan.rows, (r) => r.fits ? '' : 'short', (row, tr) => {
  elements.set(row.index, tr);
  if (timelineOf(row) !== null) timelineButton(row, tr.cells[0]);
  tr.classList.toggle('on', row === selected);
  tr.addEventListener('pointerenter', () => mark(row, 'marked', true));
  tr.addEventListener('pointerleave', () => mark(row, 'marked', false));
  tr.addEventListener('click', () => select(row, 'table'));
});
chartLegend();
buildFilters((rows) => {
  wantedRows = rows;
  elements.clear();
  rowTable.show(rows);
  redrawChart();
  if (rows.length > 0 && !rows.includes(selected)) select(rows[0], 'filter');
});
let drawnNarrow = byId('chart').clientWidth < 520;
addEventListener('resize', () => {
  const narrow = byId('chart').clientWidth < 520;
  if (narrow !== drawnNarrow) redrawChart();
  drawnNarrow = narrow;
});

table('sensitivity', [
  ['efficiency', (s) => s.figure, null, true],
  ['basis', (s) => s.basis, null, true],
  number('factor', (s) => s.factor, 2),
  number('step of the best row, change %', (s) => 100 * (s.step_ns / best.step_ns - 1), 2),
  ['winner', (s) => s.best_row === 0 ? 'same' : nameOf(plan.rows[s.best_row]), null, true],
], plan.sensitivity.concat(plan.imbalance));

table('figures', [
  ['figure', (f) => f.key, null, true],
  number('value', (f) => f.value, 3),
  ['basis', (f) => f.basis, null, true],
  ['source', (f) => f.source, null, true],
], Object.entries(plan.device ?? {}).filter(([key]) => key !== 'name').map(([key, f]) => ({key, ...f})));

table('skipped', [
  ['candidate', nameOf, null, true],
  ['reason', (s) => s.reason, null, true],
], plan.skipped);
