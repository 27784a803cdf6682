// SPDX-License-Identifier: Apache-2.0
// node step_form.js PAGE TEXT: what the generators inside a timeline page make for the lines of TEXT,
// each "family mode p m chunks layers F,B,V latency" ("-": without costs), is what `vocabpipe timeline` wrote of the same
// steps as the runs of PAGE. Or, with a line that begins with "refused", that they refuse it.
'use strict';
const fs = require('fs');
const vm = require('vm');

const [page, list] = process.argv.slice(2).map((file) => fs.readFileSync(file, 'utf8'));
const script = page.slice(page.lastIndexOf('<script>') + 8, page.lastIndexOf('</script>'));
// The part of form.js that needs no document.
const begin = script.indexOf('/** The generators, from gzip');
const end = script.indexOf('// --- The form itself');
const runs = [...page.matchAll(/<script type="application\/json" class="run">(.*)<\/script>/g)].map(
    (match) => match[1].replaceAll('\\u003c', '<'));
const base64 = page.split('id="generators">')[1].split('</script>')[0];

async function main() {
  const work = vm.runInThisContext('(() => {' + script.slice(begin, end) +
      '; return {generatorsOf, stepOf, askGenerators}; })()');
  const module = await work.generatorsOf(base64);
  const families = work.askGenerators(module, (exports) => exports.families()).trim().split('\n');
  const lines = list.trim().split('\n');
  let same = 0, refused = 0;
  for (const line of lines) {
    const words = line.split(' ');
    const refusal = words[0] === 'refused' && words.shift();
    const [family, mode, pp, microbatches, chunks, layers, costs, latency] = words;
    const asked = {family, mode, pp: Number(pp), microbatches: Number(microbatches),
                   chunks: Number(chunks), layers: Number(layers), costs: costs.replace('-', ''), latency: Number(latency)};
    let made = null;
    try {
      made = work.stepOf(module, asked);
    } catch (error) {
      if (!refusal) throw new Error(line + ': ' + error.message);
      console.log(line + ': ' + error.message);
      ++refused;
      continue;
    }
    if (refusal) throw new Error(line + ': was not refused');
    const written = runs[same++];
    if (made !== written) {
      let at = 0;
      while (made[at] === written[at]) ++at;
      throw new Error(`${line}: differs from the tool at ${at}:\n${made.slice(at - 60, at + 60)}\n${
          written.slice(at - 60, at + 60)}`);
    }
  }
  if (same !== runs.length) throw new Error(`${runs.length} runs, but ${same} lines`);
  console.log(`${same} steps as the tool makes them, ${refused} refused, ${families.length} families`);
  console.log(families.join(' '));
}
main().catch((error) => { console.error(error.message); process.exit(1); });
