// SPDX-License-Identifier: Apache-2.0
// The plan, and what rows are called.

const byId = (id) => document.getElementById(id);
const text = (id, value) => { byId(id).textContent = value; };
function make(parent, tag, className, content) {
  const node = parent.appendChild(document.createElement(tag));
  if (className) node.className = className;
  if (content !== undefined) node.append(content);
  return node;
}
function makeSvg(parent, tag, attributes) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

const plan = JSON.parse(byId('plan').textContent);
plan.rows.forEach((row, index) => { row.index = index; });
const gib = (bytes) => bytes / 2 ** 30;
const purposes = [['weights', '#4e79a7'], ['gradients', '#a0cbe8'], ['optimizer', '#f28e2b'],
  ['activations', '#59a14f'], ['vocabulary', '#e15759'], ['communication', '#b07aa1'], ['reserve', '#bab0ac']];

function layers(list) {
  const out = [];
  for (let i = 0; i < list.length;) {
    let end = i;
    while (end < list.length && list[end] === list[i]) ++end;
    out.push(`${end - i}x${list[i]}`);
    i = end;
  }
  return out.join(' ');
}

const schedule = (r) => r.schedule + (r.memory_limit ? ` k=${r.memory_limit}` : '') +
    (r.overlap_pairs ? ' pairs' : '');
const network = (r) =>
  Object.entries(r.links).filter(([, link]) => link === 'network').map(([axis]) => axis).join(' ') || '-';
const ranksOf = (r) =>
  `p=${r.pipeline} t=${r.tensor}${r.context > 1 ? ` C=${r.context}` : ''} d=${r.data} e=${r.expert}` +
  `${r.expert_tensor > 1 ? ` x=${r.expert_tensor}` : ''}`;
const shared = (r) => r.reshard_after ? ` reshard=${r.reshard_after}` : '';
const mesh = (r) => `${ranksOf(r)} b=${r.micro_batch_size} ${r.recompute}${shared(r)}`;
// The redistributed split has the same name as its vocabulary mode.
const split = (r) => r.split === r.vocab_mode ? '' : ` ${r.split}`;
const nameOf = (r) => (r.schedule ? `${schedule(r)} ${r.vocab_mode}${split(r)} v=${r.chunks} ` : '') + mesh(r);
const fixed = (value, digits) => (row) => value(row) === null ? '-' : value(row).toFixed(digits);
const number = (heading, value, digits, wide) => [heading, value, fixed(value, digits), false, wide];
const spareText = (row) => row.fits ? `${gib(row.spare_bytes).toFixed(1)} GiB spare${row.tight ? ', tight' : ''}`
  : `${gib(-row.spare_bytes).toFixed(1)} GiB too much`;

// "12.3 % faster"; ratio: new over old.
const change = (ratio, less, more) => `${(100 * Math.abs(ratio - 1)).toFixed(1)} % ${ratio <= 1 ? less : more}`;

/** What would make a plan fit in which nothing does, and what sharding the vocabulary layers changes. */
function adviceOf({rows, remedies = [], vocabulary = null}) {
  const remedy = ({flags, step_ns, ...row}) => `with ${flags}: ${spareText(row)}, ${(step_ns / 1e6).toFixed(1)} ms`;
  const told = remedies.map(remedy);
  const advice = told.length > 0 ? [`The nearest row ${told.join('; ')}.`] : [];
  if (vocabulary) {
    const {with_row: shared, without_row: whole, step_ratio: step, memory_ratio: memory} = vocabulary;
    advice.push(`Sharded vocabulary layers: the best row with them (${nameOf(rows[shared])}) is ` +
      `${change(step, 'faster', 'slower')} and needs ${change(memory, 'less', 'more')} memory than the best one ` +
      `without (${nameOf(rows[whole])}).`);
  }
  return advice.join(' ');
}

// A bar of memory by purpose, in which a GPU's memory has the same length everywhere. What is longer
// than the bar is cut, with a mark.
const kBarScale = 1.25;  // of a GPU's memory
function bar(memory) {
  const width = 320, longest = kBarScale * plan.memory_gib;
  const svg = makeSvg(null, 'svg', {viewBox: `0 0 ${width} 16`, preserveAspectRatio: 'none', role: 'img'});
  let at = 0;
  const tip = [];
  for (const [name, colour] of purposes) {
    const size = gib(memory[name + '_bytes']);
    const x = Math.min(at / longest, 1), w = Math.min((at + size) / longest, 1) - x;
    makeSvg(svg, 'rect', {x: x * width, width: w * width, height: 16, fill: colour});
    tip.push(`${name} ${size.toFixed(2)} GiB`);
    at += size;
  }
  if (at > longest) makeSvg(svg, 'path', {d: `M${width - 16} -1l8 9l-8 9m7 -18l8 9l-8 9`, class: 'cut'});
  makeSvg(svg, 'rect', {x: width / kBarScale - 1, width: 2, height: 16, class: 'limit'});
  makeSvg(svg, 'title', {}).textContent =
    `rank ${memory.rank}: ${tip.join(', ')}; of ${plan.memory_gib.toFixed(2)} GiB`;
  return svg;
}

// Columns: heading, value to sort by, cell (text or node), whether it is text, whether a narrow
// window leaves it out.
const rowColumns = [
  ['schedule', (r) => schedule(r), null, true],
  ['vocab mode', (r) => r.vocab_mode, null, true],
  ['v', (r) => r.chunks, null, false, true],
  ['p', (r) => r.pipeline, null, false],
  ['t', (r) => r.tensor, null, false],
  ['C', (r) => r.context, null, false, true],
  ['d', (r) => r.data, null, false],
  ['e', (r) => r.expert, null, false, true],
  ['x', (r) => r.expert_tensor, null, false, true],
  ['b', (r) => r.micro_batch_size, null, false],
  ['m', (r) => r.microbatches, null, false, true],
  ['recompute', (r) => r.recompute, null, true, true],
  ['reshard', (r) => r.reshard_after ? `${r.reshard_after} ${r.gather_ahead}` : '-', null, true, true],
  ['network', (r) => network(r), null, true, true],
  ['layers', (r) => layers(r.layers_per_stage), null, true, true],
  number('step ms', (r) => r.step_ns / 1e6, 1),
  number('tokens/s', (r) => r.tokens_per_second, 0, true),
  number('MFU %', (r) => r.mfu === null ? null : 100 * r.mfu, 2, true),
  number('bubble %', (r) => 100 * r.bubble, 2, true),
  number('peak GiB', (r) => gib(r.worst_rank.total_bytes), 2, true),
  number('spare GiB', (r) => gib(r.spare_bytes), 2),
  ['memory of the fullest rank', (r) => r.worst_rank.total_bytes, (r) => bar(r.worst_rank), true, true],
];
