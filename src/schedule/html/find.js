// SPDX-License-Identifier: Apache-2.0
// Search for passes, and where the time of a range goes.

/**
 * Whether a slice fits all words: "rank 2", "mb 7" (a microbatch), a pass such as "F", "2F", "F7" or
 * "2F7", or a part of another name, such as "receive". Null if there are no words.
 */
function wantedBy(text) {
  const tests = [];
  const words = text.trim().split(/\s+/).filter((word) => word !== '');
  for (let w = 0; w < words.length; ++w) {
    const word = words[w];
    const of = /^(rank|r|microbatch|mb|m)(\d*)$/i.exec(word);
    const digits = of === null ? '' : of[2] || (/^\d+$/.test(words[w + 1] || '') ? words[++w] : '');
    if (digits !== '') {
      const number = Number(digits);
      tests.push(of[1][0].toLowerCase() === 'r'
          ? (run, i) => rankOf(run, i) === number
          : (run, i) => ofMicrobatch(run, i) && run.number[i] === number);
      continue;
    }
    const pass = /^(\d*)([a-z])(\d*)$/i.exec(word);
    if (pass !== null) {
      const letter = pass[2].toUpperCase();
      tests.push((run, i) => letterOf(run, i) === letter &&
          (pass[1] === '' || parseInt(run.names[run.name[i]], 10) === Number(pass[1])) &&
          (pass[3] === '' || run.number[i] === Number(pass[3])));
      continue;
    }
    const part = word.toLowerCase();
    tests.push((run, i) => nameOf(run, i).toLowerCase().includes(part));
  }
  return tests.length === 0 ? null : (run, i) => tests.every((test) => test(run, i));
}

/** Marks what fits; of it, by run, then time, `state.at` is the one to go to next. */
function find(text) {
  deselect();
  const wanted = wantedBy(text);
  if (wanted === null) return;
  const found = [];
  for (const run of runs) {
    run.marks = new Uint8Array(run.count);
    const of = [];
    for (let i = 0; i < run.count; ++i) {
      if (!wanted(run, i)) continue;
      run.marks[i] = 1;
      of.push({run, slice: i});
    }
    of.sort((a, b) => run.begin[a.slice] - run.begin[b.slice]);
    found.push(...of);
  }
  state.found = found;
  state.at = -1;
  tellMatches();
}

function tellMatches() {
  const {found, at} = state;
  const which = at < 0 ? '' : `${(at + 1).toLocaleString('en')} of `;
  element('matches').textContent =
      found.length === 0 ? 'nothing found' : which + found.length.toLocaleString('en') + ' found';
}

function nextMatch(by) {
  if (state.found === null || state.found.length === 0) return;
  const {found} = state;
  state.at = ((state.at < 0 && by < 0 ? 0 : state.at) + by + found.length) % found.length;
  reveal(found[state.at].run, found[state.at].slice);
  state.hover = found[state.at];
  tellMatches();
}

element('find').addEventListener('input', () => find(element('find').value));
element('find').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') {
    event.preventDefault();
    nextMatch(event.shiftKey ? -1 : 1);
  } else if (event.key === 'Escape') {
    element('find').value = '';
    deselect();
    canvas.focus();
  }
});

// --- Statistics of a range ------------------------------------------------------------------

/** How long the passes of a rank take between two times, and how long each kind. */
function busyOf(run, rank, from, to) {
  const kinds = new Array(kKinds.length).fill(0);
  let busy = 0, cpu = 0;
  for (const track of run.tracks) {
    if (track.rank !== rank || track.lane !== kCompute) continue;
    for (let i = firstVisible(run, track, from); i < track.last && run.begin[i] < to; ++i) {
      const inside = Math.max(0, Math.min(run.end[i], to) - Math.max(run.begin[i], from));
      kinds[run.kinds[run.name[i]]] += inside;
      busy += inside;
      cpu += inside * cpuShare(run, i);
    }
  }
  return {busy, cpu, kinds};
}

/** A table by rank of what is in view, each run for itself. */
function writeRange() {
  const why = element('why');
  why.replaceChildren();
  const cut = (time) => Math.max(0, Math.min(time, longest));
  const from = cut(view.from), to = cut(view.to);
  make(why, 'h2', '', `From ${timeText(from)} to ${timeText(to)}: ${timeText(to - from)}`);
  for (const run of runs) {
    if (runs.length > 1) make(why, 'b', '', run.title);
    const rows = Array.from({length: run.ranks}, (_, rank) => busyOf(run, rank, from, to));
    const used = kKinds.map((_, kind) => kind).filter((k) => rows.some((row) => row.kinds[k] > 0));
    const table = make(why, 'table');
    const head = make(table, 'tr');
    for (const text of ['rank', 'busy', ...(run.cpu === null ? [] : ['CPU time']), 'idle']) {
      make(head, 'th', '', text);
    }
    for (const kind of used) {
      const cell = make(head, 'th');
      chip(cell, kKinds[kind].colour);
      cell.append(' ' + kKinds[kind].text);
    }
    rows.forEach((row, rank) => {
      const line = make(table, 'tr');
      make(line, 'td', '', rankText(run, rank));
      const cell = (time) =>
          make(line, 'td', '', `${timeText(time)} (${percent(to > from ? time / (to - from) : 0)})`);
      cell(row.busy);
      if (run.cpu !== null) cell(row.cpu);
      cell(Math.max(0, to - from - row.busy));
      for (const kind of used) cell(row.kinds[kind]);
    });
  }
  showPanel('range');
}

function toggleRange() {
  const on = state.panel !== 'range';
  if (state.panel !== null || state.critical !== null) deselect();
  if (!on) return;
  writeRange();
  element('range').classList.add('on');
  redraw();
}
