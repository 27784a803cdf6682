// SPDX-License-Identifier: Apache-2.0
// Tables that sort by click.

const kFirstRows = 200;  // of a long table, until more are asked for

/**
 * Fills the table `id`. `style`: class of a row; `built`: called with each row and its element.
 * Returns {show(rows), reveal(row)}: which rows it has, and that this one must be among the first.
 */
function table(id, columns, rows, style, built) {
  const root = byId(id), body = root.tBodies[0], more = id === 'rows' ? byId('more') : null;
  let sorted = -1, down = false, shown = rows, limit = more ? kFirstRows : Infinity, order = rows;
  const fill = () => {
    order = shown;
    if (sorted >= 0) {
      const value = columns[sorted][1];
      order = [...shown].sort((a, b) => {
        const x = value(a), y = value(b), c = x < y ? -1 : x > y ? 1 : 0;
        return down ? -c : c;
      });
    }
    body.replaceChildren(...order.slice(0, limit).map((row) => {
      const tr = document.createElement('tr');
      if (style) tr.className = style(row);
      for (const [, value, cell, left, wide] of columns) {
        const td = make(tr, 'td');
        const content = cell ? cell(row) : String(value(row));
        td.append(content);
        td.className = (content instanceof Node ? 'bar' : left ? 'left' : '') + (wide ? ' wide' : '');
      }
      if (built) built(row, tr);
      return tr;
    }));
    if (more) {
      more.hidden = order.length <= limit;
      more.textContent = `Show all ${order.length} rows`;
    }
  };
  columns.forEach(([heading, , , left, wide], i) => {
    const th = make(root.tHead.rows[0], 'th', (left ? 'left' : '') + (wide ? ' wide' : ''));
    th.scope = 'col';
    const button = make(th, 'button', '', heading);
    button.type = 'button';
    button.addEventListener('click', () => {
      down = sorted === i ? !down : false;
      sorted = i;
      fill();
      for (const other of root.tHead.rows[0].cells) other.removeAttribute('aria-sort');
      th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    });
  });
  if (more) more.addEventListener('click', () => { limit = Infinity; fill(); });
  fill();
  return {
    show: (wanted) => { shown = wanted; fill(); },
    reveal: (row) => {
      if (order.indexOf(row) < limit) return;
      limit = Infinity;
      fill();
    },
  };
}
