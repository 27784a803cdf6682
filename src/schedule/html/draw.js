// SPDX-License-Identifier: Apache-2.0
// Drawing: slices and memory go into a buffer of pixels, whose cost does not depend on how many
// slices there are to a pixel; text and lines are put on top.

// In the order of the kinds that html_timeline.cpp writes.
const kKinds = [
  {text: 'F forward', colour: [72, 120, 208]},
  {text: 'B backward', colour: [238, 133, 74]},
  {text: 'I input gradient', colour: [245, 176, 90]},
  {text: 'W weight gradient', colour: [106, 168, 79]},
  {text: 'R recompute', colour: [196, 160, 122]},
  {text: 'E embedding', colour: [52, 160, 164]},
  {text: 'G embedding gradient', colour: [126, 203, 196]},
  {text: 'S output layer forward', colour: [149, 108, 200]},
  {text: 'T output layer backward', colour: [214, 103, 163]},
  {text: 'end of step', colour: [140, 97, 60]},
  {text: 'combine_softmax, ordered_sum', colour: [214, 188, 60]},
  {text: 'communication', colour: [130, 142, 160]},
  {text: 'beyond the CPU time of the pass: it waited for a core', colour: [168, 173, 181]},
];
const kBeyond = kKinds.length - 1;  // of measured runs
const kPurposeColours = [[114, 147, 203], [225, 151, 76], [177, 126, 200], [132, 186, 91],
                         [211, 94, 96], [128, 133, 133], [171, 104, 87]];
const kGutter = runs.some((run) => run.rows.length > 0) ? 148 : 104;  // places in a mesh are long
const kAxis = 24, kTitle = 24, kThin = 5, kHeading = 16;
const kWide = 2;      // slices narrower than this many pixels share columns
const kSmooth = 24;   // slices that a column should hold where all are narrow: fewer flicker

const pack = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));
const css = (colour) => `rgb(${colour.join(' ')})`;

function paletteOf(dark) {
  const back = dark ? [20, 23, 29] : [255, 255, 255];
  const ink = dark ? [230, 234, 241] : [28, 35, 48];
  const shades = (colour) => ({
    even: pack(colour), odd: pack(mix(colour, [0, 0, 0], 0.09)), edge: pack(mix(colour, back, 0.45)),
    dim: pack(mix(colour, back, 0.78)), dimEdge: pack(mix(colour, back, 0.9)),
    ink: colour[0] * 0.3 + colour[1] * 0.59 + colour[2] * 0.11 > 150 ? '#1c2330' : '#ffffff',
  });
  return {
    back, ink: css(ink), soft: css(mix(ink, back, 0.4)), line: css(mix(ink, back, 0.82)),
    backPixel: pack(back), lanePixel: pack(mix(back, ink, dark ? 0.07 : 0.05)),
    gridPixel: pack(mix(back, ink, dark ? 0.14 : 0.12)), titlePixel: pack(mix(back, ink, 0.06)),
    accent: dark ? '#79a8ff' : '#2f6bd8', wait: dark ? '#ff6b6b' : '#d43c3c',
    kinds: kKinds.map((kind) => shades(kind.colour)),
    purposes: kPurposeColours.map((colour) => mix(colour, back, 0.25)),
  };
}

/** Rows from top to bottom, in CSS pixels from the top of the first: what is drawn and hit. */
function layoutOf(runs, view, height) {
  const blocks = [];
  let fixed = 0, lanes = 0;
  for (const run of runs) {
    const present = new Set(run.tracks.map((track) => track.lane));
    const thin = view.lanes ? [4, 1, 2, 3].filter((lane) => present.has(lane)) : [];
    const memory = view.memory && run.peak > 0;
    blocks.push({run, thin, memory});
    fixed += run.headings.filter((text) => text !== '').length * (kHeading + 1);
    fixed += kTitle + 8 + run.ranks * (thin.length * (kThin + 1) + (memory ? 3 : 0) + 6);
    lanes += run.ranks * (memory ? 1.9 : 1);
  }
  const fit = Math.max(13, Math.min(30, (height - kAxis - fixed - 4) / Math.max(lanes, 1)));
  const lane = Math.max(4, Math.round(fit * view.laneScale));
  const rows = [];
  let y = 0;
  for (const {run, thin, memory} of blocks) {
    const of = new Map(run.tracks.map((track) => [track.rank * 8 + track.lane, track]));
    rows.push({type: 'title', run, y, height: kTitle});
    y += kTitle;
    for (let rank = 0; rank < run.ranks; ++rank) {
      const row = (type, h, lane) => {
        rows.push({type, run, rank, y, height: h, track: of.get(rank * 8 + lane) || null});
        y += h + 1;
      };
      if (run.headings[rank]) row('heading', kHeading, -1);
      row('track', lane, kCompute);
      for (const l of thin) row('thin', kThin, l);
      if (memory) { y += 2; row('memory', Math.max(12, Math.round(lane * 0.9)), -1); }
      y += 5;
    }
    y += 8;
  }
  return {rows, height: y, rowOf: new Map(rows.map((row) => [row.track, row]))};
}

const kDigit = 0.62;      // width of a digit in font sizes
const kManyTexts = 1500;  // of which small ones would take longer than all the rest

/**
 * What fits on a pass of `width` pixels: its name, else the microbatch alone, as small as numbers of so
 * many `digits` must be: numbers do not end with 9, and all of a run are alike.
 */
function labelOf(name, number, width, highest, digits) {
  if (name.length * kDigit * highest <= width - 3) return {text: name, size: highest};
  const text = number < 0 ? '' : '' + number;
  const size = Math.min(highest, Math.floor(2 * (width - 1.5) / (kDigit * digits)) / 2);
  return size < 5 ? {text: '', size} : {text, size};
}

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d', {alpha: false});
  }

  /** Draws everything; `size` is {width, height, ratio} of the canvas in CSS pixels. */
  draw(runs, view, size, palette) {
    const {ratio} = size;
    this.size = size;
    this.ratio = ratio;
    this.view = view;
    this.palette = palette;
    this.width = Math.round(size.width * ratio);
    this.height = Math.round(size.height * ratio);
    if (this.canvas.width !== this.width || this.canvas.height !== this.height || !this.image) {
      this.canvas.width = this.width;
      this.canvas.height = this.height;
      this.image = this.context.createImageData(this.width, this.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.left = Math.round(kGutter * ratio);
    this.top = Math.round(kAxis * ratio);
    this.plot = this.width - this.left;
    this.perTime = this.plot / (view.to - view.from);
    this.shares = new Float32Array(this.plot * kKinds.length);
    this.inColumn = new Float32Array(kKinds.length);
    this.texts = [];
    this.layout = layoutOf(runs, view, size.height);
    this.pixels.fill(palette.backPixel);
    this.ticks();
    const peak = Math.max(1, ...runs.map((run) => run.peak));
    const names = [];
    for (const row of this.layout.rows) {
      const y0 = this.top + Math.round((row.y - view.top) * ratio);
      const y1 = y0 + Math.max(1, Math.round(row.height * ratio));
      if (y1 < this.top || y0 > this.height) continue;
      if (row.type === 'title') {
        this.fill(0, y0, this.width, y1 - Math.round(4 * ratio), palette.titlePixel);
      } else if (row.type === 'memory') {
        this.memory(row.run, row.run.memory[row.rank], y0, y1, peak);
      } else if (row.type !== 'heading') {
        this.track(row, y0, y1);
      }
      if (row.type !== 'thin') names.push([row, y0, y1]);
    }
    this.context.putImageData(this.image, 0, 0);
    this.labels();
    for (const [row, y0, y1] of names) this.rowName(row, y0, y1);
    this.axis();
  }

  x(time) { return this.left + (time - this.view.from) * this.perTime; }

  /** A rectangle of the plot, clipped, in device pixels. */
  fill(x0, y0, x1, y1, pixel) {
    x0 = Math.max(x0, 0);
    x1 = Math.min(x1, this.width);
    y0 = Math.max(y0, this.top);
    y1 = Math.min(y1, this.height);
    if (x1 <= x0) return;
    for (let y = y0; y < y1; ++y) this.pixels.fill(pixel, y * this.width + x0, y * this.width + x1);
  }

  ticks() {
    const {from, to} = this.view;
    const unit = page.ticks || 1;
    this.step = unit * niceStep((to - from) * 100 * this.ratio / this.plot / unit);
    this.tickTimes = [];
    for (let n = Math.ceil(from / this.step); n * this.step <= to; ++n) {
      this.tickTimes.push(n * this.step + 0);  // + 0: not -0
      const x = Math.round(this.x(n * this.step));
      this.fill(x, this.top, x + 1, this.height, this.palette.gridPixel);
    }
  }

  track(row, y0, y1) {
    const {run, track} = row;
    const {from, to} = this.view;
    const end = this.x(run.makespan);
    this.fill(Math.max(this.left, Math.round(this.x(0))), y0, Math.round(end), y1,
              this.palette.lanePixel);
    if (track === null) return;
    const kinds = kKinds.length;
    const wide = kWide * this.ratio;
    const gap = Math.max(1, Math.round(this.ratio * 0.75));
    let firstColumn = this.plot, lastColumn = -1, narrow = 0;
    for (let i = firstVisible(run, track, from); i < track.last && run.begin[i] < to; ++i) {
      const a = (run.begin[i] - from) * this.perTime;
      const b = (run.end[i] - from) * this.perTime;
      const kind = run.kinds[run.name[i]];
      const marked = run.marks === null || run.marks[i] === 1;
      if (b - a >= wide || (marked && run.marks !== null)) {
        const x0 = Math.max(this.left, this.left + Math.round(a));
        const x1 = Math.max(x0 + 1, Math.min(this.width, this.left + Math.round(b)));
        const shade = this.palette.kinds[kind];
        const odd = (run.number[i] & 1) === 1;
        this.fill(x0, y0, x1, y1, marked ? (odd ? shade.odd : shade.even) : shade.dim);
        this.beyond(run, i, x0, x1, y0, y1, a);
        if (b - a >= 4 * this.ratio && b <= this.plot) {
          this.fill(x1 - gap, y0, x1, y1, marked ? shade.edge : shade.dimEdge);
        }
        if (row.type === 'track' && x1 - x0 > 5 * this.ratio) {
          const under = cpuShare(run, i) < 0.5 ? this.palette.kinds[kBeyond] : shade;
          this.texts.push([run, i, x0, x1, y0, y1, marked ? under.ink : this.palette.soft]);
        }
        continue;
      }
      const column0 = Math.max(0, Math.floor(a));
      const column1 = Math.min(this.plot - 1, Math.floor(b));
      if (column1 < column0) continue;
      ++narrow;
      firstColumn = Math.min(firstColumn, column0);
      lastColumn = Math.max(lastColumn, column1);
      const used = cpuShare(run, i);
      for (let c = column0; c <= column1; ++c) {
        const width = Math.min(b, c + 1) - Math.max(a, c);
        this.shares[c * kinds + kind] += width * used;
        if (used < 1) this.shares[c * kinds + kBeyond] += width * (1 - used);
      }
    }
    const perColumn = narrow / (lastColumn - firstColumn + 1);
    const width = perColumn < 0.7 ? 1 : Math.ceil(Math.min(kSmooth / perColumn, 6 * this.ratio));
    for (let c = firstColumn; c <= lastColumn; c += width) this.column(run, c, width, y0, y1);
  }

  /** Grey over the part of a measured pass that is longer than its CPU time. */
  beyond(run, i, x0, x1, y0, y1, a) {
    const used = cpuShare(run, i);
    if (used > 0.98) return;  // clocks of threads and of the wall differ a little
    const from = this.left + Math.round(a + used * (run.end[i] - run.begin[i]) * this.perTime);
    const shade = this.palette.kinds[kBeyond];
    const marked = run.marks === null || run.marks[i] === 1;
    this.fill(Math.max(x0, from), y0, x1, y1, marked ? shade.even : shade.dim);
  }

  /** A column that several slices share: kinds one above the other, by their part of the time. */
  column(run, first, width, y0, y1) {
    const kinds = kKinds.length;
    const shade = run.marks === null ? 'even' : 'dim';
    const last = Math.min(first + width, this.plot);
    const shares = this.inColumn.fill(0);
    let sum = 0;
    for (let i = first * kinds; i < last * kinds; ++i) {
      if (this.shares[i] === 0) continue;
      shares[i % kinds] += this.shares[i];
      sum += this.shares[i];
      this.shares[i] = 0;
    }
    if (sum === 0) return;
    const scale = (y1 - y0) / Math.max(last - first, sum);
    let level = y1;
    let exact = y1;
    for (let k = 0; k < kinds; ++k) {
      if (shares[k] === 0) continue;
      exact -= shares[k] * scale;
      const next = Math.round(exact);
      this.fill(this.left + first, next, this.left + last, level, this.palette.kinds[k][shade]);
      level = next;
    }
  }

  /** Bytes alive, stacked by purpose; a column shows its largest total. */
  memory(run, memory, y0, y1, peak) {
    const {from, to} = this.view;
    const {times, total, by} = memory;
    if (times.length === 0) return;
    const scale = (y1 - y0) / peak;
    const colours = this.palette.purposes.map(pack);
    let i = firstAbove(times, from, 0, times.length) - 1;
    const firstColumn = Math.max(0, Math.floor((times[0] - from) * this.perTime));
    for (let c = firstColumn; c < this.plot; ++c) {
      const until = from + (c + 1) / this.perTime;
      let best = Math.max(i, 0);
      while (i + 1 < times.length && times[i + 1] < until) {
        ++i;
        if (total[i] > total[best]) best = i;
      }
      if (i < 0) continue;
      let exact = y1, level = y1;
      for (let p = 0; p < by.length; ++p) {
        exact -= by[p][best] * scale;
        const next = Math.round(exact);
        if (next < level) {
          this.fill(this.left + c, next, this.left + c + 1, level, colours[p % colours.length]);
        }
        level = next;
      }
      if (i === times.length - 1 && total[i] === 0 && best === i) break;
      if (times[0] >= to) break;
    }
  }

  font(size, weight = '') {
    this.context.font = `${weight} ${size * this.ratio}px system-ui, "Segoe UI", "DejaVu Sans", sans-serif`;
  }

  labels() {
    const {context, ratio} = this;
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    const bySize = new Map();  // to change a font costs more than to draw a number
    for (const [run, i, x0, x1, y0, y1, ink] of this.texts) {
      const highest = Math.min(11, (y1 - y0) / ratio - 2);
      if (highest < 7) continue;
      const {text, size} =
          labelOf(nameOf(run, i), run.number[i], (x1 - x0) / ratio, highest, run.digits);
      if (text === '' || (size < highest && this.texts.length > kManyTexts)) continue;
      const label = [text, ink, (x0 + x1) / 2, (y0 + y1) / 2 + 0.5 * ratio];
      if (bySize.has(size)) bySize.get(size).push(label); else bySize.set(size, [label]);
    }
    for (const [size, labels] of bySize) {
      this.font(size);
      for (const [text, ink, x, y] of labels) {
        context.fillStyle = ink;
        context.fillText(text, x, y);
      }
    }
  }

  rowName(row, y0, y1) {
    const {context, ratio, palette} = this;
    if (y1 <= this.top) return;
    const {run, rank} = row;
    const middle = (y0 + y1) / 2;
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    if (row.type === 'title') {
      this.font(12, '600');
      context.fillStyle = palette.ink;
      context.fillText(run.title, 10 * ratio, middle - 2 * ratio);
      return;
    }
    if (row.type === 'heading') {
      this.font(11);
      context.fillStyle = palette.soft;
      context.fillText(run.headings[rank], 10 * ratio, middle);
      return;
    }
    const size = Math.min(12, (y1 - y0) / ratio);
    if (size < 7) return;
    if (row.type === 'memory') {
      this.font(Math.min(10, size));
      context.fillStyle = palette.soft;
      context.textAlign = 'right';
      context.fillText('≤ ' + bytesText(run.memory[rank].peak), this.left - 8 * ratio, middle);
      return;
    }
    this.font(size);
    context.fillStyle = palette.ink;
    context.fillText(run.rows[rank] || 'rank ' + rank, 10 * ratio, middle);
    if (run.makespan > 0) {
      this.font(Math.min(10, size));
      context.fillStyle = palette.soft;
      context.textAlign = 'right';
      const share = 100 * (run.busy[rank] || 0) / run.makespan;
      context.fillText(share.toFixed(share < 99.95 ? 1 : 0) + ' %', this.left - 8 * ratio, middle);
    }
  }

  axis() {
    const {context, ratio, palette} = this;
    context.fillStyle = css(palette.back);
    context.fillRect(0, 0, this.width, this.top);
    context.fillStyle = palette.line;
    context.fillRect(0, this.top - ratio, this.width, ratio);
    const {by, unit} = timeScale(Math.max(Math.abs(this.view.to), this.step));
    const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(this.step / by) + 1e-9)));
    this.font(11);
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    context.fillStyle = palette.soft;
    for (const time of this.tickTimes) {
      const x = Math.round(this.x(time));
      context.fillRect(x, this.top - 6 * ratio, 1, 6 * ratio);
      const text = (time / by).toLocaleString(
          'en', {minimumFractionDigits: digits, maximumFractionDigits: digits});
      const label = text + (unit ? ' ' + unit : '');
      if (x + 4 * ratio + context.measureText(label).width > this.width) continue;
      context.fillText(label, x + 4 * ratio, this.top / 2);
    }
    context.fillText(page.ticks > 0 ? 'units' : 'time', 10 * ratio, this.top / 2);
    context.textAlign = 'right';
    context.fillText(measured ? 'CPU busy' : 'busy', this.left - 8 * ratio, this.top / 2);
  }

  /** Top and bottom of the row of slice i in device pixels; null where its lane is not shown. */
  rowOf(run, i) {
    const track = trackOf(run, i);
    const row = this.layout.rowOf.get(track);
    if (row === undefined) return null;
    const y0 = this.top + (row.y - this.view.top) * this.ratio;
    return [y0, y0 + row.height * this.ratio];
  }

  clipped(paint) {
    const {context} = this;
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.plot, this.height - this.top);
    context.clip();
    paint(context);
    context.restore();
  }

  outline(run, i, colour, width) {
    const row = this.rowOf(run, i);
    if (row === null) return;
    this.clipped((context) => {
      const x0 = this.x(run.begin[i]), x1 = this.x(run.end[i]);
      context.strokeStyle = colour;
      context.lineWidth = width * this.ratio;
      context.strokeRect(x0, row[0], Math.max(x1 - x0, this.ratio), row[1] - row[0]);
    });
  }

  /** Everything that the run does for a microbatch: frames, at least two pixels wide. */
  microbatch(run, number, colour) {
    this.clipped((context) => {
      context.strokeStyle = colour;
      context.lineWidth = 1.5 * this.ratio;
      context.beginPath();
      for (const i of microbatchOf(run, number)) {
        if (run.end[i] < this.view.from || run.begin[i] > this.view.to) continue;
        const row = this.rowOf(run, i);
        if (row === null || row[1] < this.top || row[0] > this.height) continue;
        const x0 = this.x(run.begin[i]), x1 = this.x(run.end[i]);
        context.rect(x0, row[0], Math.max(x1 - x0, 2 * this.ratio), row[1] - row[0]);
      }
      context.stroke();
    });
  }

  /** The idle time before a pass. */
  waiting(run, i) {
    const row = this.rowOf(run, i);
    if (row === null || !isPass(run, i) || !wasIdle(run, i)) return;
    const idle = idleBefore(run, i);
    this.clipped((context) => {
      const x0 = this.x(run.begin[i] - idle), x1 = this.x(run.begin[i]);
      const middle = (row[0] + row[1]) / 2;
      context.globalAlpha = 0.18;
      context.fillStyle = this.palette.wait;
      context.fillRect(x0, row[0], x1 - x0, row[1] - row[0]);
      context.globalAlpha = 1;
      context.fillRect(x0, middle - this.ratio / 2, x1 - x0, this.ratio);
    });
  }

  /** A line through a chain of causes, from effect to cause. */
  path(run, chain, colour) {
    this.clipped((context) => {
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = 1.5 * this.ratio;
      context.beginPath();
      let first = true;
      for (const {slice, member} of chain) {
        for (const part of member === slice ? [slice] : [slice, member]) {
          const row = this.rowOf(run, part);
          if (row === null) continue;
          // Below the text of a pass, in the midst of a thin lane.
          const y = Math.max((row[0] + row[1]) / 2, row[1] - 2.5 * this.ratio);
          const x0 = Math.max(-1e4, Math.min(2e4, this.x(run.begin[part])));
          const x1 = Math.max(-1e4, Math.min(2e4, this.x(run.end[part])));
          if (first) context.moveTo(x1, y); else context.lineTo(x1, y);
          context.lineTo(x0, y);
          first = false;
        }
      }
      context.stroke();
    });
  }
}
