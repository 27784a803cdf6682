// SPDX-License-Identifier: Apache-2.0
// node page_test.js PAGE: prints as JSON what the scripts of a plan's page make of its rows, for
// page_test.cpp. Only the part that needs no document.
'use strict';
const fs = require('fs');
const vm = require('vm');

const page = fs.readFileSync(process.argv[2], 'utf8');
const elements = {};
for (const [, attributes, data] of page.matchAll(/<script type="application\/json" ([^>]*)>(.*)<\/script>/g)) {
  const id = /id="([^"]*)"/.exec(attributes);
  if (id) elements[id[1]] = {textContent: data};
}
const script = page.slice(page.lastIndexOf('<script>') + 8, page.lastIndexOf('</script>'));
globalThis.document = {getElementById: (id) => elements[id]};
const {plan, filterOf, rowColumns, frontierOf, axisOf, nameOf, spareText, tickText, adviceOf} = vm.runInThisContext(
    '(() => {' + script.slice(0, script.indexOf('// The row that is selected')) +
    '; return {plan, filterOf, rowColumns, frontierOf, axisOf, nameOf, spareText, tickText, adviceOf}; })()');

const counts = {};
for (const words of ['zb-v', 'ZB one_barrier', 'schedule=1f1b', 'p=4', 'p<4', 'peak>=0', 'peak<0', 'zb-v p=1',
                     'spare>0', 'b=2', 'C=1', 'C>1', '']) {
  counts[words] = plan.rows.filter(filterOf(rowColumns, words)).length;
}
const row = (memory, seconds) => ({worst_rank: {total_bytes: memory * 2 ** 30}, step_ns: seconds * 1e9});
const places = (rows) => rows.map((r) => [r.worst_rank.total_bytes / 2 ** 30, r.step_ns / 1e9]);
const linear = axisOf([20, 60], 100, 500), log = axisOf([1, 100], 0, 1);
console.log(JSON.stringify({
  counts,
  names: plan.rows.map(nameOf),
  spare: plan.rows.map(spareText),
  frontier: places(frontierOf([row(5, 3), row(4, 4), row(4, 5), row(6, 3), row(7, 2), row(8, 9), row(4, 4)])),
  ofPlan: frontierOf(plan.rows).map((r) => r.index),
  linear: {ticks: linear.ticks, middle: linear.at(40), low: linear.at(20) > 100, high: linear.at(60) < 500},
  log: {ticks: log.ticks.map(tickText), middle: log.at(10)},
  advice: [adviceOf({rows: plan.rows}), adviceOf({rows: plan.rows, remedies: [
    {flags: '--gpus 8', step_ns: 5e6, fits: true, spare_bytes: 2 ** 30},
    {flags: '--micro-batch-size 1', step_ns: 7.5e6, fits: false, spare_bytes: -(2 ** 31)}]}),
    adviceOf({rows: plan.rows, vocabulary: {with_row: 1, without_row: 0, step_ratio: 0.875, memory_ratio: 1.02}})],
  one: axisOf([7, 7], 0, 1).at(7),
}));
