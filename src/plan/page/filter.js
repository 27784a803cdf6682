// SPDX-License-Identifier: Apache-2.0
// Which rows are shown: choices, and words or conditions.

// Whether a row has every word: a condition on a column ("p=4", "spare>10"), or a part of its text.
function filterOf(columns, words) {
  const tests = words.trim().split(/\s+/).filter((word) => word !== '').map((word) => {
    const condition = /^([^<>=]+)(<=|>=|=|<|>)(.+)$/.exec(word);
    const column = condition && columns.find(([heading]) =>
      heading.toLowerCase().split(' ')[0] === condition[1].toLowerCase());
    if (!column) {
      const part = word.toLowerCase();
      return (row) => columns.some(([, value, , isText]) =>
        isText && String(value(row)).toLowerCase().includes(part));
    }
    const [, , sign, wanted] = condition, [, value, cell] = column;
    return (row) => {
      const x = value(row);
      if (typeof x === 'string') return x.toLowerCase().includes(wanted.toLowerCase());
      if (x === null) return false;
      // As shown: 12.3 is the row that says 12.3.
      const shown = cell ? cell(row) : x, y = Number(wanted);
      return sign === '=' ? Number(shown) === y : sign === '<' ? x < y : sign === '>' ? x > y
        : sign === '<=' ? x <= y : x >= y;
    };
  });
  return (row) => tests.every((test) => test(row));
}

const kChoices = [
  ['fits', 'memory', (r) => r.fits ? 'fits' : 'does not fit'],
  ['schedule', 'schedule', (r) => r.schedule],
  ['mode', 'vocabulary mode', (r) => r.vocab_mode],
  ['p', 'p', (r) => r.pipeline],
  ['t', 't', (r) => r.tensor],
  ['C', 'C', (r) => r.context],
  ['d', 'd', (r) => r.data],
  ['e', 'e', (r) => r.expert],
  ['x', 'x', (r) => r.expert_tensor],
  ['b', 'micro batch', (r) => r.micro_batch_size],
  ['recompute', 'recompute', (r) => r.recompute],
  ['reshard', 'reshard', (r) => r.reshard_after || '-'],
];

// A choice for everything in which rows differ. Calls changed() with the rows that are wanted.
function buildFilters(changed) {
  const form = byId('filters'), words = byId('filter');
  const choices = [];
  for (const [id, name, value] of kChoices) {
    const values = [...new Set(plan.rows.map(value))];
    if (values.length < 2) continue;
    if (typeof values[0] === 'number') values.sort((a, b) => a - b);
    const label = document.createElement('label');
    label.append(name);
    form.insertBefore(label, words.parentElement);
    const select = make(label, 'select');
    select.id = 'choose-' + id;
    make(select, 'option', '', 'all').value = '';
    for (const one of values) make(select, 'option', '', String(one)).value = String(one);
    choices.push([select, value]);
  }
  const apply = () => {
    const passes = filterOf(rowColumns, words.value);
    const rows = plan.rows.filter((row) => passes(row) && choices.every(([select, value]) =>
      select.value === '' || String(value(row)) === select.value));
    const all = rows.length === plan.rows.length;
    text('shown', all ? `${rows.length} ${rows.length === 1 ? 'row' : 'rows'}`
      : `${rows.length} of ${plan.rows.length} rows`);
    byId('reset').hidden = all;
    changed(rows);
  };
  form.addEventListener('input', apply);
  form.addEventListener('submit', (event) => event.preventDefault());
  byId('reset').addEventListener('click', () => { form.reset(); apply(); });
  apply();
}
