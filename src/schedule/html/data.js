// SPDX-License-Identifier: Apache-2.0
// The runs: columns of integers, one entry per slice, sorted by rank, lane and begin; and how times
// and bytes are written.
'use strict';

const kLanes = ['compute', 'forward', 'backward', 'collective', 'local'];
const kCompute = 0, kCombine = 4;

function decodeRun(raw) {
  const count = raw.begin.length;
  const run = {
    title: raw.title, costs: raw.costs || '', ranks: raw.ranks, makespan: raw.makespan, largestSpan: raw.largest_span,
    bubble: raw.bubble, busy: raw.busy || [],
    headings: raw.headings || [], rows: raw.rows || [], places: raw.places || [],  // of a mesh
    names: raw.names, kinds: raw.kinds || [],
    purposes: raw.purposes, count,
    begin: new Float64Array(count), end: new Float64Array(count),
    reach: new Float64Array(count),  // latest end in the track up to here: ascending
    cpu: raw.cpu || null, name: Uint32Array.from(raw.name), number: Int32Array.from(raw.number),
    order: Int32Array.from(raw.order),
    cause: new Int32Array(count), member: new Int32Array(count),  // src/schedule/slice_causes.hpp
    track: new Uint32Array(count), tracks: [], marks: null, members: null, microbatches: null,
  };
  let i = 0;
  for (const [rank, lane, length] of raw.tracks) {
    const track = {rank, lane, first: i, last: i + length};
    let begin = 0, reach = -Infinity;
    for (; i < track.last; ++i) {
      begin += raw.begin[i];
      run.begin[i] = begin;
      run.end[i] = begin + raw.duration[i];
      run.reach[i] = reach = Math.max(reach, run.end[i]);
      run.cause[i] = raw.cause[i] === 0 ? -1 : i - raw.cause[i];
      run.member[i] = i - raw.member[i];
      run.track[i] = run.tracks.length;
    }
    run.tracks.push(track);
  }
  run.memory = raw.memory.map((changes) => decodeMemory(changes, raw.bytes, run.purposes.length));
  run.peak = Math.max(0, ...run.memory.map((memory) => memory.peak));
  run.digits = String(run.number.reduce((most, number) => Math.max(most, number), 0)).length;
  run.passes = run.tracks.reduce(
      (sum, track) => sum + (track.lane === kCompute ? track.last - track.first : 0), 0);
  return run;
}

/** A rank with its place in the mesh, where it has one. */
const rankText = (run, rank) => run.places[rank] || 'rank ' + rank;

/** Steps of the bytes alive: time, total and, per purpose, the value from that time on. */
function decodeMemory(changes, unit, purposes) {
  const times = [], total = [], by = Array.from({length: purposes}, () => []);
  const now = new Array(purposes).fill(0);
  let time = 0, sum = 0, peak = 0, peakAt = 0;
  for (let i = 0; i < changes.length; i += 3) {
    time += changes[i];
    now[changes[i + 1]] += changes[i + 2] * unit;
    sum += changes[i + 2] * unit;
    if (i + 3 < changes.length && changes[i + 3] === 0) continue;  // more at the same time
    if (sum > peak) { peak = sum; peakAt = times.length; }
    times.push(time);
    total.push(sum);
    for (let p = 0; p < purposes; ++p) by[p].push(now[p]);
  }
  return {times: Float64Array.from(times), total: Float64Array.from(total),
          by: by.map((values) => Float32Array.from(values)), peak, peakAt};
}

/** First index in [first, last) whose value is above `limit`; values ascend. */
function firstAbove(values, limit, first, last) {
  while (first < last) {
    const middle = (first + last) >> 1;
    if (values[middle] > limit) last = middle; else first = middle + 1;
  }
  return first;
}

/** First slice of the track that is not over at `time`. */
function firstVisible(run, track, time) {
  return firstAbove(run.reach, time, track.first, track.last);
}

/** The slice of the track at `time`, the nearest one within `tolerance`, or -1. */
function sliceAt(run, track, time, tolerance) {
  const after = firstAbove(run.begin, time, track.first, track.last);
  const from = firstVisible(run, track, time);
  for (let i = after - 1; i >= from; --i) if (run.end[i] > time) return i;
  const before = after > track.first && time - run.end[after - 1] <= tolerance ? after - 1 : -1;
  const next = after < track.last && run.begin[after] - time <= tolerance ? after : -1;
  if (before < 0 || next < 0) return Math.max(before, next);
  return time - run.end[before] < run.begin[next] - time ? before : next;
}

const trackOf = (run, i) => run.tracks[run.track[i]];
const rankOf = (run, i) => trackOf(run, i).rank;
const laneOf = (run, i) => trackOf(run, i).lane;
const nameOf = (run, i) => run.names[run.name[i]] + (run.number[i] < 0 ? '' : run.number[i]);
const isPass = (run, i) => laneOf(run, i) === kCompute;
const isMessage = (run, i) => run.order[i] >= 0;

/** The slices of one communication on all ranks. */
function membersOf(run, i) {
  if (run.members === null) {
    run.members = new Map();
    for (let j = 0; j < run.count; ++j) {
      if (run.order[j] < 0) continue;
      const members = run.members.get(run.order[j]);
      if (members === undefined) run.members.set(run.order[j], [j]); else members.push(j);
    }
  }
  return run.members.get(run.order[i]);
}

/** The letter of a pass, without its stage; of communication, "". */
const letterOf = (run, i) => isPass(run, i) ? run.names[run.name[i]].replace(/^\d+/, '') : '';

/** Whether the number of slice i is that of a microbatch. */
const ofMicrobatch = (run, i) =>
    run.number[i] >= 0 && (isPass(run, i) || run.names[run.name[i]].endsWith('microbatch '));

/** The slices of a microbatch on all ranks. */
function microbatchOf(run, number) {
  if (run.microbatches === null) {
    run.microbatches = new Map();
    for (let i = 0; i < run.count; ++i) {
      if (!ofMicrobatch(run, i)) continue;
      const slices = run.microbatches.get(run.number[i]);
      if (slices === undefined) run.microbatches.set(run.number[i], [i]); else slices.push(i);
    }
  }
  return run.microbatches.get(number) || [];
}

/** The part of a pass in which its thread had a core; 1 for what was simulated. */
function cpuShare(run, i) {
  const length = run.end[i] - run.begin[i];
  if (run.cpu === null || !isPass(run, i) || length <= 0) return 1;
  return Math.max(0, Math.min(1, run.cpu[i] / length));
}

/** Time without a pass on the rank before the pass i. */
function idleBefore(run, i) {
  const track = trackOf(run, i);
  return run.begin[i] - (i > track.first ? run.end[i - 1] : 0);
}

/** Gaps that count: clocks of measured runs show a little time between any two passes. */
const wasIdle = (run, i) => idleBefore(run, i) > (run.cpu === null ? 0 : run.makespan / 1000);

/** What let slice i begin: {slice, member}; a communication begins when its last member is ready. */
const causeOf = (run, i) => ({slice: run.cause[i], member: run.member[i]});

/** When what came after slice i began to wait for it: a communication's last member was ready. */
const neededFrom = (run, i) => run.begin[run.member[i]];

/**
 * Slices from i back to what caused it: to the first pass that began right after another one of its
 * rank, or, `whole`, to the beginning of the step. Entries are {slice, member}: the communication on
 * the rank that was last to join it.
 */
function chainOf(run, i, whole) {
  const chain = [];
  const seen = new Set();
  while (i >= 0 && !seen.has(i)) {
    seen.add(i);
    const cause = causeOf(run, i);
    chain.push({slice: i, member: cause.member});
    if (!whole && chain.length > 1 && isPass(run, i) && !wasIdle(run, i)) break;
    i = cause.slice;
  }
  return chain;
}

function criticalPath(run) {
  let last = -1;
  for (let i = 0; i < run.count; ++i) {
    if (isPass(run, i) && (last < 0 || run.end[i] > run.end[last])) last = i;
  }
  return last < 0 ? [] : chainOf(run, last, true);
}

/** Why slice i began when it did, in words. */
function reasonOf(run, i) {
  const {slice, member} = causeOf(run, i);
  if (slice < 0) return 'waited for nothing';
  const name = nameOf(run, slice);
  if (isMessage(run, i)) {
    return 'began when ' + (member === i ? 'this rank' : 'rank ' + rankOf(run, member)) +
        ' was ready: after ' + name;
  }
  if (isMessage(run, slice)) return 'waited for ' + name;
  if (isPass(run, slice) && isPass(run, i) && slice === i - 1) {
    return (wasIdle(run, i) ? 'began after ' : 'right after ') + name;
  }
  return 'waited for ' + name + (isPass(run, i) && isPass(run, slice) ? ' (its result or its memory)' : '');
}

// --- Numbers as text ------------------------------------------------------------------------

function niceStep(atLeast) {
  const power = 10 ** Math.floor(Math.log10(Math.max(atLeast, 1e-9)));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => step >= atLeast);
}

function timeScale(size) {
  if (page.ticks > 0) return {by: page.ticks, unit: ''};
  for (const [by, unit] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']]) if (size >= by) return {by, unit};
  return {by: 1, unit: 'ns'};
}

/** A time with about four digits; "12.34 ms". */
function timeText(time) {
  const {by, unit} = timeScale(Math.abs(time));
  const value = time / by;
  if (unit === '') {
    const text = value.toLocaleString('en', {maximumFractionDigits: 2});
    return text + (text === '1' ? ' unit' : ' units');
  }
  const digits = by === 1 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.max(Math.abs(value), 1))));
  return value.toFixed(digits) + (unit ? ' ' + unit : '');
}

function bytesText(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; ++unit; }
  return bytes.toFixed(unit === 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2) + ' ' +
      ['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit];
}

const page = JSON.parse(document.getElementById('page').textContent);
const runs = Array.from(document.querySelectorAll('script.run'),
                        (script) => decodeRun(JSON.parse(script.textContent)));
let longest = 1;  // with the runs, which the form exchanges
let measured = false;
const measure = () => {
  longest = Math.max(1, ...runs.map((run) => run.makespan));
  measured = runs.some((run) => run.cpu !== null);
};
measure();
const ranks = runs.reduce((sum, run) => sum + run.ranks, 0);
