// SPDX-License-Identifier: Apache-2.0
// Mouse, fingers and keys, and the beginning of the page.

let drag = null;
const fingers = new Map();  // pointer id -> place; two of them pinch
let pinch = null;           // {times under the two fingers, top and middle when it began}

canvas.addEventListener('wheel', (event) => {
  event.preventDefault();
  const amount = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
  if (event.offsetX < kGutter) {
    view.top += amount;
    redraw();
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    pan((event.deltaX || amount) / 1000);
  } else {
    zoom(Math.exp(Math.max(-200, Math.min(200, amount)) * 0.003), event.offsetX);
  }
}, {passive: false});

/** Events that a test or a script makes have no pointer to capture. */
function capture(pointer) { try { canvas.setPointerCapture(pointer); } catch { /* as said */ } }

function beginPinch() {
  const [a, b] = [...fingers.values()];
  drag = state.band = null;
  element('tip').hidden = true;
  pinch = {from: timeAt(a.x), to: timeAt(b.x), top: view.top, middle: (a.y + b.y) / 2};
}

/** What was under each finger stays there. */
function movePinch() {
  const [a, b] = [...fingers.values()];
  const apart = b.x - a.x;
  view.top = pinch.top - ((a.y + b.y) / 2 - pinch.middle);
  if (Math.abs(apart) < 12 || (pinch.to - pinch.from) / apart <= 0) { changed(); return; }
  const perPixel = (pinch.to - pinch.from) / apart;
  const from = pinch.from - (a.x - kGutter) * perPixel;
  show(from, from + (sizeNow().width - kGutter) * perPixel);
}

canvas.addEventListener('pointerdown', (event) => {
  if (event.button !== 0) return;
  canvas.focus();
  capture(event.pointerId);
  fingers.set(event.pointerId, {x: event.offsetX, y: event.offsetY});
  if (fingers.size === 2) { beginPinch(); return; }
  drag = {x: event.offsetX, y: event.offsetY, from: view.from, to: view.to, top: view.top,
          range: event.shiftKey || event.offsetY < kAxis, moved: false};
});

canvas.addEventListener('pointermove', (event) => {
  if (fingers.has(event.pointerId)) {
    fingers.set(event.pointerId, {x: event.offsetX, y: event.offsetY});
  }
  if (pinch !== null) { if (fingers.size === 2) movePinch(); return; }
  if (drag === null) { hover(event); return; }
  const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
  if (!drag.moved && Math.hypot(dx, dy) < 4) return;
  drag.moved = true;
  element('tip').hidden = true;
  if (drag.range) {
    state.band = [drag.x, event.offsetX];
    redraw();
    return;
  }
  const by = dx / (sizeNow().width - kGutter) * (drag.to - drag.from);
  view.top = drag.top - dy;
  show(drag.from - by, drag.to - by);
});

canvas.addEventListener('pointerup', (event) => {
  fingers.delete(event.pointerId);
  if (fingers.size === 0) pinch = null;  // the second finger up is no click
  if (drag === null) return;
  const ended = drag;
  drag = null;
  if (state.band !== null) {
    const [from, to] = state.band.map((x) => timeAt(Math.max(x, kGutter)));
    state.band = null;
    show(Math.min(from, to), Math.max(from, to));
  } else if (!ended.moved) {
    const found = hit(event.offsetX, event.offsetY);
    if (found !== null) select(found.run, found.slice); else deselect();
  }
});
canvas.addEventListener('pointercancel', () => {
  fingers.clear();
  drag = pinch = state.band = null;
  redraw();
});
canvas.addEventListener('pointerleave', leave);
canvas.addEventListener('dblclick', (event) => {
  const found = hit(event.offsetX, event.offsetY);
  if (found !== null) reveal(found.run, found.slice);
});

function toggle(name) {
  view[name] = !view[name];
  element(name).classList.toggle('on', view[name]);
  memoryLegend();
  changed();
}

function step(by) {
  if (state.selected === null) return;
  const {run, slice} = state.selected;
  const track = trackOf(run, slice);
  select(run, Math.max(track.first, Math.min(track.last - 1, slice + by)));
  const at = run.begin[state.selected.slice];
  const span = view.to - view.from;
  if (at < view.from || at > view.to) show(at - span / 2, at + span / 2);
}

const middle = () => kGutter + (sizeNow().width - kGutter) / 2;
const kKeys = {
  '+': () => zoom(1 / 1.4, middle()), '=': () => zoom(1 / 1.4, middle()), 'w': () => zoom(1 / 1.4, middle()),
  '-': () => zoom(1.4, middle()), 's': () => zoom(1.4, middle()),
  'a': () => pan(-0.2), 'd': () => pan(0.2), 'ArrowLeft': () => pan(-0.1), 'ArrowRight': () => pan(0.1),
  'ArrowUp': () => { view.top -= 60; redraw(); }, 'ArrowDown': () => { view.top += 60; redraw(); },
  '[': () => { view.laneScale = Math.max(0.3, view.laneScale / 1.2); redraw(); },
  ']': () => { view.laneScale = Math.min(5, view.laneScale * 1.2); redraw(); },
  '0': fit, 'Home': fit, 'Escape': () => { element('keys').hidden = true; deselect(); fit(); },
  'r': toggleRange, '/': () => element('find').focus(), 'e': toggleForm,
  'c': toggleCritical, 'l': () => toggle('lanes'), 'm': () => toggle('memory'),
  't': () => { setTheme(!state.dark); redraw(); }, 'n': () => step(1), 'p': () => step(-1),
  '?': () => { element('keys').hidden = !element('keys').hidden; },
};
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement ||
      event.target instanceof HTMLSelectElement) return;
  const action = kKeys[event.key] || kKeys[event.key.toLowerCase()];
  if (action === undefined) return;
  event.preventDefault();
  action();
});
for (const [id, key] of [['fit', '0'], ['critical', 'c'], ['range', 'r'], ['edit', 'e'], ['lanes', 'l'], ['memory', 'm'],
                         ['theme', 't'], ['help', '?']]) {
  element(id).onclick = () => { kKeys[key](); canvas.focus(); };
}

// On paper everything is light, in its whole height, with two dots to a pixel.
addEventListener('beforeprint', () => {
  state.screen = {dark: state.dark, top: view.top};
  setTheme(false);
  view.top = 0;
  state.size = {width: 1500, height: Math.max(600, kAxis + layoutOf(runs, view, 900).height), ratio: 2};
  canvas.style.aspectRatio = `${state.size.width} / ${state.size.height}`;
  drawNow();
});
addEventListener('afterprint', () => {
  state.size = null;
  canvas.style.aspectRatio = '';
  setTheme(state.screen.dark);
  view.top = state.screen.top;
  redraw();
});

setTheme(state.dark);
writeHeader();
element('lanes').classList.toggle('on', view.lanes);
element('memory').classList.toggle('on', view.memory);
restore();
drawNow();
new ResizeObserver(redraw).observe(canvas.parentElement);
