// SPDX-License-Identifier: Apache-2.0
// The row that is selected: its figures, memory of its ranks, its command and its timeline.

const timelineParts = JSON.parse(byId('timeline').textContent);
const timelineOf = (row) => document.querySelector(`script.row-timeline[data-row="${row.index}"]`);

/** The page of `vocabpipe timeline` for this row. */
function timelinePage(row) {
  return timelineParts.before + JSON.parse(timelineOf(row).textContent) + timelineParts.after;
}

function openTimeline(row) {
  const view = byId('timeline-view');
  for (const old of view.querySelectorAll('iframe')) old.remove();
  text('timeline-name', nameOf(row));
  const frame = make(view, 'iframe');
  frame.title = 'Timeline of ' + nameOf(row);
  frame.srcdoc = timelinePage(row);
  view.showModal();
}

/** A small button with three bars, for tables. */
function timelineButton(row, parent) {
  const button = make(parent, 'button', 'icon');
  button.type = 'button';
  button.title = 'Timeline';
  button.setAttribute('aria-label', 'Timeline of ' + nameOf(row));
  const svg = makeSvg(button, 'svg', {viewBox: '0 0 14 12', width: 14, height: 12});
  for (const [x, y, width] of [[0, 0, 9], [2, 4.5, 9], [4, 9, 10]]) makeSvg(svg, 'rect', {x, y, width, height: 3, rx: 1});
  button.addEventListener('click', () => openTimeline(row));
}

/** Copies the text, also where a page of a file may not use the clipboard. */
async function copy(content, button) {
  try {
    await navigator.clipboard.writeText(content);
  } catch {
    const area = make(button.parentElement, 'textarea');
    area.value = content;
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = 'Copy command'; }, 1500);
}

function showDetail(row) {
  const panel = byId('detail');
  panel.replaceChildren();
  make(panel, 'h3', '', nameOf(row));
  const facts = make(panel, 'dl');
  const fact = (name, value, className) => {
    const entry = make(facts, 'div', value.length > 24 ? 'long' : '');
    make(entry, 'dt', '', name);
    make(entry, 'dd', className, value);
  };
  fact('step', (row.step_ns / 1e6).toFixed(1) + ' ms');
  fact('tokens/s', Math.round(row.tokens_per_second).toLocaleString('en'));
  if (row.mfu !== null) fact('MFU', (100 * row.mfu).toFixed(2) + ' %');
  fact('bubble', (100 * row.bubble).toFixed(2) + ' %');
  fact('fullest rank', peakOf(row).toFixed(2) + ' GiB');
  fact('memory', spareText(row), row.fits ? '' : 'bad');
  if (row.evaluation) fact('time by', row.evaluation.replace('_', ' '));
  fact('microbatches', String(row.microbatches));
  fact('stages x layers', layers(row.layers_per_stage));
  fact('axes over the network', network(row));
  const actions = make(panel, 'div', 'actions');
  const timeline = make(actions, 'button', '', 'Timeline');
  timeline.type = 'button';
  timeline.addEventListener('click', () => openTimeline(row));
  if (timelineOf(row) === null) {
    timeline.disabled = true;
    make(actions, 'span', 'soft', row.index < timelineParts.rows
      ? `a step of more than ${timelineParts.most_passes.toLocaleString('en')} passes is too long for this page`
      : `the page has those of the best ${timelineParts.rows} rows`);
  }
  if (row.command) {
    const button = make(actions, 'button', '', 'Copy command');
    button.type = 'button';
    button.addEventListener('click', () => copy(row.command, button));
    make(panel, 'pre', 'command', row.command);
  }
  const ranks = make(panel, 'div', 'ranks');
  for (const memory of row.ranks) {
    const line = make(ranks, 'div', 'rank bar');
    make(line, 'span', 'soft', 'rank ' + memory.rank);
    line.append(bar(memory));
    make(line, 'span', '', gib(memory.total_bytes).toFixed(1) + ' GiB');
  }
}

byId('timeline-close').addEventListener('click', () => byId('timeline-view').close());
