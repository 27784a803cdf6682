// SPDX-License-Identifier: Apache-2.0
// The form: another schedule, made and simulated by the generators of vocabpipe in WebAssembly
// (src/tool/wasm), and drawn in place of the runs.

const kModes = ['none', 'redistributed', 'interlaced', 'one_barrier', 'two_barriers'];
const kTicks = 12;            // of a unit: kTicksPerUnit of src/tool/schedule/figure_costs.hpp
const kMostInForm = 50000;   // passes: they are made, in a few seconds, while the page waits

/** The generators, from gzip in base64. */
async function generatorsOf(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(plain).arrayBuffer());
}

/**
 * The text that `call(exports, text)` returns, where text(value) puts a string into the module's
 * memory. A new instance each time: an error leaves one half done. Throws Error with the message.
 */
function askGenerators(module, call) {
  let memory = null;
  const read = (at) => {
    const bytes = new Uint8Array(memory.buffer);
    return new TextDecoder().decode(bytes.subarray(at, bytes.indexOf(0, at)));
  };
  const imports = {};
  for (const {module: from, name} of WebAssembly.Module.imports(module)) {
    imports[from] = imports[from] || {};
    imports[from][name] = () => 52;  // WASI's ENOSYS: there are no files
  }
  imports.page.refused = (at) => { throw new Error(read(at)); };
  const {exports} = new WebAssembly.Instance(module, imports);
  memory = exports.memory;
  exports._initialize();
  const text = (value) => {
    const bytes = new TextEncoder().encode(value + '\0');
    const at = exports.room(bytes.length);
    new Uint8Array(memory.buffer).set(bytes, at);
    return at;
  };
  return read(call(exports, text));
}

/** The run of {family, mode, costs, pp, microbatches, chunks, layers, latency} as JSON. */
const stepOf = (module, asked) => askGenerators(module, (exports, text) => exports.draw(
    text(asked.family), text(asked.mode), text(asked.costs), asked.pp, asked.microbatches,
    asked.chunks, asked.layers, asked.latency));

// --- The form itself ------------------------------------------------------------------------

let generators = null;

/** What a run of the page was made of, as far as its title and costs tell. */
function askedOf(run) {
  const title = /^(\S+) (\w+), (\d+) ranks?, (\d+) microbatch/.exec(run ? run.title : '');
  const costs = /^F (\d+), B (\d+), V (\d+)(?![.\d ])/.exec(run ? run.costs : '');
  const latency = /latency (\d+)/.exec(run ? run.costs : '');
  return {family: title ? title[1] : '1f1b', mode: title ? title[2] : 'one_barrier',
          pp: title ? title[3] : 4, microbatches: title ? title[4] : 8, chunks: '', layers: '',
          F: costs ? costs[1] : '', B: costs ? costs[2] : '', V: costs ? costs[3] : '',
          latency: latency ? latency[1] : 0};
}

const kFields = [
  ['family', 'schedule', ''], ['mode', 'vocabulary mode', ''],
  ['pp', 'ranks p', 'Pipeline ranks'], ['microbatches', 'microbatches m', 'Microbatches per step'],
  ['chunks', 'stages per rank', "Empty: the schedule's own"],
  ['layers', 'layers', 'Of the model; empty: one per rank, which redistributed cannot divide, or 96 without costs'],
  ['F', 'cost F', 'Forward of the layers of a rank. All costs empty: FLOPs of GPT-3 175B, where a layer is 12'],
  ['B', 'cost B', 'Backward of the layers of a rank; I and W are halves of it'],
  ['V', 'cost S, T', 'Of an even share of the vocabulary; E and G are quarters of it; empty: F / 3'],
  ['latency', 'latency', 'Of a message'],
];

async function buildForm() {
  const form = element('form');
  generators = await generatorsOf(element('generators').textContent.trim());
  const asked = askedOf(runs[0]);
  const names = askGenerators(generators, (exports) => exports.families()).trim().split('\n');
  for (const [id, name, hint] of kFields) {
    const label = make(form, 'label', '', name);
    label.title = hint;
    const list = id === 'family' ? names : id === 'mode' ? kModes : null;
    const field = make(label, list === null ? 'input' : 'select');
    field.name = id;
    if (list === null) {
      field.type = 'number';
      field.min = id === 'V' || id === 'latency' ? 0 : 1;
      field.required = id === 'pp' || id === 'microbatches' || id === 'latency';
    } else {
      for (const value of list) make(field, 'option', '', value);
    }
    field.value = asked[id];
  }
  const beside = make(form, 'label', '', 'beside the others');
  make(beside, 'input').type = 'checkbox';
  beside.lastChild.name = 'beside';
  make(form, 'button', '', 'Draw').type = 'submit';
  make(form, 'span', '').id = 'refused';
  form.addEventListener('submit', (event) => { event.preventDefault(); drawForm(); });
  form.addEventListener('change', drawForm);
}

function drawForm() {
  const form = element('form');
  const value = (name) => form.elements[name].value;
  const refuse = (text) => { element('refused').textContent = text; };
  const costs = ['F', 'B', 'V'].map(value);
  const asked = {family: value('family'), mode: value('mode'),
                 costs: costs.filter((figure) => figure !== '').join(','), pp: Number(value('pp')),
                 microbatches: Number(value('microbatches')), chunks: Number(value('chunks')),
                 layers: Number(value('layers')), latency: Number(value('latency'))};
  refuse('');
  if (!form.reportValidity()) return;
  const passes = asked.pp * asked.microbatches * (3 * (asked.chunks || 1) + 4);
  if (passes > kMostInForm) {
    refuse(`about ${passes.toLocaleString('en')} passes: the page makes at most ${
        kMostInForm.toLocaleString('en')}; use vocabpipe simulate --html`);
    return;
  }
  let raw = null;
  try {
    raw = JSON.parse(stepOf(generators, asked));
  } catch (error) {
    refuse(error.message);
    return;
  }
  const run = decodeRun(raw);
  run.ofForm = true;
  const beside = form.elements.beside.checked && page.ticks === kTicks;
  const kept = beside ? runs.filter((other) => !other.ofForm) : [];
  page.ticks = kTicks;
  runs.splice(0, runs.length, ...kept, run);
  measure();
  deselect();
  state.hover = null;
  writeHeader();
  fit();
}

async function toggleForm() {
  const form = element('form');
  if (generators === null) await buildForm();
  form.hidden = !form.hidden;
  element('edit').classList.toggle('on', !form.hidden);
  redraw();
}
