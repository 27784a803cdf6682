#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of benchmarks/reproduce.sh: published figures beside ours.

    reproduce_page.py FOLDER    reads FOLDER/NAME/*, writes FOLDER/index.html; prints the table

Published figures come from benchmarks/data/published_*.csv alone.
"""
import base64
import csv
import datetime
import html
import itertools
import json
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks/data"
PAPERS = {
    "2411.05288": "Balancing Pipeline Parallelism with Vocabulary Parallelism",
    "2502.19811": "COMET",
    "2503.20313": "TileLink",
    "2402.16442": "Distributed subset selection with pairwise submodular functions",
    "2412.14374": "JaxPP",
}
MODES = ("none", "redistributed", "interlaced", "two_barriers", "one_barrier")
PREDICTED = "predicted by a model"
SIMULATED = "simulated"
VIRTUAL = "computed in virtual time"
MEASURED = "measured on this machine's CPU"
MODELLED = "measured on this machine's CPU, link modelled"
EXECUTED = "computed on this machine's CPU"
COUNTED = "counted"


def rows_of(path):
    """Of a CSV file whose first lines may be comments."""
    with open(path) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


CLAIMS = {row["key"]: row for row in rows_of(DATA / "published_claims.csv")}


def claim(key):
    return float(CLAIMS[key]["value"])


def cell(key):
    """A published figure with its unit and place."""
    row = CLAIMS[key]
    place = row["place"].split(":")[0].replace(" (adaptive)", "")
    unit = "" if row["unit"] in ("score", "samples") else f" {row['unit']}"
    return f"{row['value']}{unit} ({place})"


def apart(distance):
    return "equal" if distance == 0 else f"at most {distance:.1e} apart"


def span(values, pattern="{:.3f}"):
    return f"{pattern.format(min(values))} to {pattern.format(max(values))}"


# ------------------------------------------------------------------- pictures

def escaped(text):
    return html.escape(str(text))


def ticks(low, high):
    """Three to six round numbers from low to high."""
    for step in (s * 10**e for e in range(-3, 4) for s in (1, 2, 2.5, 5)):
        first = -(-low // step)
        marks = [step * i for i in range(int(first), int(high // step) + 1)]
        if len(marks) <= 6:
            return marks
    return [low, high]


def number(value):
    return f"{value:g}"


class Panel:
    """Axes of one chart, as a group of an SVG."""

    def __init__(self, x, y, width, height, title, low, high, unit=""):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.low, self.high = low, high
        self.parts = []
        if title:
            self.text(0, -8, title, "start", "title")
        for mark in ticks(low, high):
            at = self.of(mark)
            self.parts.append(f'<line class="grid" x1="{x}" x2="{x + width}" y1="{at:.1f}" '
                              f'y2="{at:.1f}"/>')
            self.parts.append(f'<text x="{x - 6}" y="{at + 4:.1f}" text-anchor="end">'
                              f'{number(mark)}{unit}</text>')

    def of(self, value):
        share = (value - self.low) / (self.high - self.low)
        return self.y + self.height * (1 - share)

    def text(self, dx, dy, text, anchor="middle", kind=""):
        self.parts.append(f'<text class="{kind}" x="{self.x + dx:.1f}" y="{self.y + dy:.1f}" '
                          f'text-anchor="{anchor}">{escaped(text)}</text>')

    def line(self, points, colour, dashed=False):
        """points: share of the width, value."""
        where = " ".join(f"{self.x + self.width * a:.1f},{self.of(b):.1f}" for a, b in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8"{dash} '
                          f'points="{where}"/>')

    def dots(self, points, colour, hollow=False, said=""):
        fill = "var(--back)" if hollow else colour
        for a, b in points:
            self.parts.append(f'<circle cx="{self.x + self.width * a:.1f}" cy="{self.of(b):.1f}" '
                              f'r="{4 if hollow else 2.6}" fill="{fill}" stroke="{colour}" '
                              f'stroke-width="1.6"><title>{escaped(said)} {b:g}</title></circle>')


def svg(width, height, parts):
    return (f'<svg viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img">'
            + "".join(parts) + "</svg>")


def legend(x, y, entries):
    """entries: text, colour, hollow."""
    parts = []
    for text, colour, hollow in entries:
        fill = "var(--back)" if hollow else colour
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{fill}" stroke="{colour}" '
                     f'stroke-width="1.6"/><text x="{x + 9}" y="{y}">{escaped(text)}</text>')
        x += 30 + 6.6 * len(text)
    return parts


OURS, PAPER, OTHER = "var(--ours)", "var(--paper)", "var(--other)"


def bars(groups, kinds, unit="", low=0, width=760, height=230, digits=1):
    """groups: label, a value or None for each of the kinds (name, colour)."""
    values = [v for _, row in groups for v in row if v is not None]
    top = max(values) * 1.12
    below = 14 * max(label.count("\n") for label, _ in groups)
    panel = Panel(54, 34, width - 64, height - 62 - below, "", min(low, *values), top, unit)
    step = panel.width / len(groups)
    thick = min(34, 0.8 * step / len(kinds))
    for i, (label, row) in enumerate(groups):
        left = panel.x + step * (i + 0.5) - thick * len(kinds) / 2
        for j, value in enumerate(row):
            if value is None:
                continue
            at, base = panel.of(value), panel.of(max(panel.low, 0))
            panel.parts.append(
                f'<rect x="{left + thick * j + 1:.1f}" y="{min(at, base):.1f}" '
                f'width="{thick - 2:.1f}" height="{abs(base - at):.1f}" fill="{kinds[j][1]}"/>'
                f'<text x="{left + thick * (j + .5):.1f}" y="{min(at, base) - 4:.1f}" '
                f'text-anchor="middle" class="small">{value:.{digits}f}</text>')
        for k, part in enumerate(label.split("\n")):
            panel.text(step * (i + 0.5), panel.height + 17 + 14 * k, part)
    return svg(width, height, legend(60, 16, [(n, c, False) for n, c in kinds]) + panel.parts)


def colour_of(mode):
    return f"var(--{mode})"


# ---------------------------------------------------------------- experiments
# Each returns: kind, claim, headline (published, ours), rows (what, published, ours), pictures
# (SVG, caption), notes.

PUBLISHED_ROW = re.compile(
    r"^(?:fitted|others) (\d+) (\S+) (\d+) (\d+) +\S+ (\S+) .*? +"
    r"([\d.]+|no memory) +([\d.]+) +[\d.-]+ +([\d.]+) GiB")


def predicted_rows(folder):
    steps = {(r["gpus"], r["schedule"], r["seq"], r["vocab"], r["vocab_mode"]): r
             for r in rows_of(DATA / "published_steps.csv")}
    result = []
    for line in (folder / "rows.txt").read_text().splitlines():
        match = PUBLISHED_ROW.match(line)
        if not match or match[6] == "no memory":
            continue
        gpus, schedule, seq, vocab, mode = match.groups()[:5]
        row = steps[gpus, schedule, seq, vocab, mode]
        seconds, ours = float(row["iter_ms"]) / 1e3, float(match[7])
        mfu = float(row["mfu_pct"])
        result.append({"gpus": int(gpus), "schedule": schedule, "seq": int(seq),
                       "vocab": int(vocab), "mode": mode, "published": seconds, "ours": ours,
                       "mfu": mfu, "our_mfu": mfu * seconds / ours,
                       "gib": float(row["peak_mem_gib"]), "our_gib": float(match[8])})
    return result


def panels_of(rows, published, ours, what):
    """A panel per schedule and number of GPUs: circles published, lines ours."""
    sizes = sorted({(r["schedule"], r["gpus"]) for r in rows})
    vocabularies = sorted({r["vocab"] for r in rows})
    parts = legend(20, 16, [(m, colour_of(m), False) for m in MODES]
                   + [("published", PAPER, True)])
    for i, (schedule, gpus) in enumerate(sizes):
        here = [r for r in rows if (r["schedule"], r["gpus"]) == (schedule, gpus)]
        values = [r[k] for r in here for k in (published, ours)]
        low, high = min(values), max(values)
        pad = 0.06 * (high - low)
        panel = Panel(52 + 330 * (i % 3), 58 + 215 * (i // 3), 265, 140,
                      f"{schedule}, {gpus} GPUs: {what}", low - pad, high + pad)
        for mode in MODES:
            line = sorted((r["vocab"], r[published], r[ours]) for r in here if r["mode"] == mode)
            at = [(vocabularies.index(v) + .25) / (len(vocabularies) - .5) for v, _, _ in line]
            panel.line([(a, o) for a, (_, _, o) in zip(at, line)], colour_of(mode))
            panel.dots([(a, p) for a, (_, p, _) in zip(at, line)], colour_of(mode), True,
                       f"{mode}, published")
        for j, vocabulary in enumerate(vocabularies):
            panel.text(panel.width * (j + .25) / (len(vocabularies) - .5), panel.height + 17,
                       f"{vocabulary // 1000}k")
        parts += panel.parts
    return svg(1000, 215 * ((len(sizes) + 2) // 3) + 15, parts)


def tables(folder):
    rows = predicted_rows(folder)
    sharded = [r for r in rows if r["mode"] not in ("none", "redistributed")]
    whole = [r for r in rows if r["mode"] in ("none", "redistributed")]

    def ratio(which, over, under):
        return span([r[over] / r[under] for r in which])

    gains = {"published": [], "ours": []}
    for size in {(r["gpus"], r["seq"], r["vocab"]) for r in rows if r["schedule"] == "1f1b"}:
        here = {r["mode"]: r for r in rows
                if r["schedule"] == "1f1b" and (r["gpus"], r["seq"], r["vocab"]) == size}
        for whose, gain in gains.items():
            best = min(here["one_barrier"][whose], here["two_barriers"][whose])
            naive = min(here["none"][whose], here["redistributed"][whose])
            gain.append(100 * (naive / best - 1))
    of_2048 = [r for r in rows if r["seq"] == 2048]
    return {
        "kind": PREDICTED,
        "claim": "Sharding the vocabulary layers over all pipeline ranks keeps MFU flat where "
                 "the vocabulary grows, with 1F1B and with V-Half, and evens out memory.",
        "headline": (f"step times of {len(rows)} runs",
                     f"{ratio(sharded, 'ours', 'published')} of them where sharded, "
                     f"{ratio(whole, 'ours', 'published')} where whole"),
        "rows": [
            *((f"{what}, ours / published, {kind} layers", "1", ratio(which, over, under))
              for what, over, under in (("step time", "ours", "published"),
                                        ("peak memory", "our_gib", "gib"))
              for kind, which in (("sharded", sharded), ("whole", whole))),
            ("throughput of the better barrier mode over the better whole one, 1F1B",
             f"{span(gains['published'], '{:.1f}')} % in table 5; "
             f"{claim('gain_least'):g} to {claim('gain_most'):g} % (abstract)",
             f"{span(gains['ours'], '{:.1f}')} %"),
        ],
        "pictures": [
            (panels_of(of_2048, "mfu", "our_mfu", "MFU, % of 320 TFLOP/s"),
             "Sequences of 2048 tokens, over the rows of the vocabulary. Circles are published, "
             "lines are ours."),
            (panels_of(of_2048, "gib", "our_gib", "peak memory, GiB"), "The same runs."),
        ],
        "notes": ["From sizes alone. Constants of the A100 were fitted to every other row, among "
                  "other published runs (docs/planning-accuracy.md)."],
    }


def passes(folder):
    pattern = re.compile(r"^(\S+) +(\d+) +([\d.]+) +([\d.]+) ([\d.]+)")
    names = {"baseline": "none", "redis": "redistributed", "vocab-1": "two_barriers",
             "vocab-2": "one_barrier", "interlaced": "interlaced"}
    rows = [m.groups() for m in map(pattern.match, (folder / "rows.txt").read_text().splitlines())
            if m]
    ratios = [float(r[4]) for r in rows]
    groups = []
    for mode in MODES:
        for vocabulary in (32000, 256000):
            row = next(r for r in rows if names[r[0]] == mode and int(r[1]) == vocabulary)
            groups.append((f"{mode}\n{vocabulary // 1000}k",
                           [float(row[2]) / 1e3, float(row[3]) / 1e3]))
    return {
        "kind": SIMULATED,
        "claim": "The order of the passes explains the step: pass times of the artifact's runs, "
                 "put in our schedules, give its step times.",
        "headline": (f"step times of {len(rows)} runs", f"{span(ratios)} of them"),
        "rows": [("simulated / measured step", "1", span(ratios))],
        "pictures": [(bars(groups, [("published, s", PAPER), ("simulated, s", OURS)], width=1000,
                           digits=2), "Seconds per step of 128 microbatches on 8 GPUs.")],
        "notes": ["No constant is fitted. What is missing is the optimizer and other costs of a "
                  "step, which the pass times do not contain."],
    }


def plan_rows(path):
    return json.loads(path.read_text())["rows"]


def model_flop(layers, hidden, tokens, vocabulary):
    """As the paper counts them: attention in full, per sequence."""
    layer = 8 * tokens * hidden**2 + 4 * tokens**2 * hidden + 16 * tokens * hidden**2
    return 3 * (2 * tokens * hidden * vocabulary + layers * layer)


def artifact(folder):
    flop = 128 * model_flop(32, 3072, 4096, 256000)
    ours = {r["vocab_mode"]: 100 * flop / 8 / (r["step_ns"] * 1e-9) / 312e12
            for r in plan_rows(folder / "plan.json")}
    table = {r["vocab_mode"]: float(r["mfu_pct"]) * 320 / 312
             for r in rows_of(DATA / "published_steps.csv")
             if (r["gpus"], r["schedule"], r["seq"], r["vocab"]) == ("8", "1f1b", "4096", "256000")}
    rerun = {mode: claim(f"rerun_{mode}") for mode in MODES}
    return {
        "kind": PREDICTED,
        "claim": "The artifact's experiment: 8 A100, sequences of 4096 tokens, V = 256,000.",
        "headline": (f"MFU {table['none']:.1f} % (none), {table['one_barrier']:.1f} % (one "
                     "barrier)", f"{ours['none']:.1f} %, {ours['one_barrier']:.1f} %"),
        "rows": [(f"MFU, {mode}", f"{table[mode]:.1f} % (table 5), {rerun[mode]:.1f} % (rerun of "
                  "the artifact)", f"{ours[mode]:.1f} %") for mode in MODES],
        "pictures": [(bars([(m, [table[m], rerun[m], ours[m]]) for m in MODES],
                           [("table 5", PAPER), ("the artifact's rerun", OTHER), ("ours", OURS)]),
                      "MFU, % of 312 TFLOP/s, FLOPs counted as the paper does (attention in "
                      "full).")],
        "notes": [],
    }


def ablation(folder):
    times = {name: {r["vocab_mode"]: r["step_ns"] for r in plan_rows(folder / f"{name}.json")}
             for name in ("plan", "free")}
    saved = {m: 100 * (1 - times["free"][m] / times["plan"][m]) for m in MODES}
    published = claim("ablation_interlaced")
    return {
        "kind": PREDICTED,
        "claim": "Without its synchronous all-reduces, interlaced is 10.95 % faster on 32 GPUs "
                 "(21B, V = 256,000): only interlaced waits for its communication.",
        "headline": (f"{published:g} % (appendix B.2)", f"{saved['interlaced']:.1f} %"),
        "rows": [(f"shorter step with free collectives of vocabulary passes, {mode}",
                  cell("ablation_interlaced") if mode == "interlaced" else "not published",
                  f"{saved[mode]:.1f} %") for mode in MODES],
        "pictures": [(bars([(m, [published if m == "interlaced" else None, saved[m]])
                            for m in MODES], [("published", PAPER), ("ours", OURS)],
                           digits=2),
                      "Share of the step that collectives of vocabulary passes cost, %.")],
        "notes": ["With free collectives ranks still wait for the last of them. The rate of the "
                  "network was fitted to half of the rows of tables 5 and 6, interlaced ones among "
                  "them: this is a consistency check more than evidence."],
    }


def alive(path):
    """Most activations alive on each rank, in chunks: from F to B, or to W."""
    result = []
    for passes_of_rank in json.loads(path.read_text())["passes"]:
        halves = any(re.match(r"\d+W", p) for p in passes_of_rank)
        count = most = 0
        for name in passes_of_rank:
            if re.match(r"\d+F", name):
                count += 1
                most = max(most, count)
            elif re.match(r"\d+W" if halves else r"\d+B", name):
                count -= 1
        result.append(most)
    return result


def memory(folder):
    ranks = (4, 8, 16, 32)
    chosen = ("none", "one_barrier", "two_barriers", "interlaced")

    def expected(mode, p):
        return 3 * p // 2 if mode == "interlaced" else p + int(claim(f"alive_{mode}"))

    counts = {m: [max(alive(folder / f"1f1b-{m}-{p}.schedule")) for p in ranks] for m in chosen}
    rows = [(f"microbatches alive on the fullest rank, 1F1B {mode}, p = 4, 8, 16, 32",
             ", ".join(str(expected(mode, p)) for p in ranks)
             + (" (1.5 p)" if mode == "interlaced" else
                       " (p)" if mode == "none" else f" (p + {claim(f'alive_{mode}'):g})"),
             ", ".join(map(str, counts[mode]))) for mode in chosen]
    same = all(counts[m] == [expected(m, p) for p in ranks] for m in chosen)
    for mode in ("none", "one_barrier", "two_barriers"):
        halves = alive(folder / f"v-half-{mode}-8.schedule")
        peak = [r["peak_bytes"] / 2**30 for r in json.loads(
            (folder / f"v-half-{mode}.json").read_text())["by_rank"]]
        want = 2 * (4 + int(claim(f"vhalf_{mode}")))
        same = same and set(halves) == {want}
        rows.append((f"half stages alive by rank, V-Half {mode}, p = 8", f"{want} on every rank",
                     " ".join(map(str, halves))
                     + f"; peak of activations {span(peak, '{:.2f}')} GiB"))
    idle = {}
    for name in [f"1f1b-{m}" for m in MODES] + [f"v-half-{m}" for m in
                                                ("none", "one_barrier", "two_barriers")]:
        idle[name] = json.loads((folder / f"{name}.json").read_text())["bubble"]
    for family, title in (("1f1b", "1F1B"), ("v-half", "V-Half")):
        modes = [m for m in MODES if f"{family}-{m}" in idle]
        rows.append((f"bubble of {title}, p = 8, m = 32, V = 256,000: {', '.join(modes)}",
                     "not published", ", ".join(f"{100 * idle[f'{family}-{m}']:.1f}"
                                                for m in modes) + " %"))
    steps = {(r["gpus"], r["vocab_mode"]): float(r["peak_mem_gib"])
             for r in rows_of(DATA / "published_steps.csv")
             if (r["schedule"], r["seq"], r["vocab"]) == ("1f1b", "2048", "32000")}
    one = json.loads((folder / "1f1b-none.json").read_text())["by_rank"][0]
    rows.append(("one microbatch in flight, 8 GPUs, V = 32k: published memory of two barriers less "
                 "that of one; activations in our arena",
                 f"{steps['8', 'two_barriers'] - steps['8', 'one_barrier']:.2f} GiB (table 5)",
                 f"{one['largest_bytes']['activations'] / 8 / 2**30:.2f} GiB"))
    parts = legend(60, 16, [(m, colour_of(m), False) for m in MODES] + [("published", PAPER, True)])
    panel = Panel(54, 52, 380, 180, "microbatches alive on the fullest rank", 0, 52)
    parts_of_bubbles = Panel(520, 52, 440, 180, "bubble, %", 0, 65)
    for mode in chosen:
        at = [p / 34 for p in ranks]
        panel.line(list(zip(at, counts[mode])), colour_of(mode))
        panel.dots([(a, expected(mode, p)) for a, p in zip(at, ranks)], colour_of(mode), True, mode)
    for p in ranks:
        panel.text(panel.width * p / 34, 197, f"p = {p}" if p > 4 else "4")
    step = parts_of_bubbles.width / len(idle)
    for i, (name, bubble) in enumerate(idle.items()):
        mode = next(m for m in MODES if name.endswith(m))
        at, base = parts_of_bubbles.of(100 * bubble), parts_of_bubbles.of(0)
        parts_of_bubbles.parts.append(
            f'<rect x="{parts_of_bubbles.x + step * i + 8:.1f}" y="{at:.1f}" '
            f'width="{step - 16:.1f}" height="{base - at:.1f}" fill="{colour_of(mode)}"/>')
        parts_of_bubbles.text(step * (i + .5), at - parts_of_bubbles.y - 4, f"{100 * bubble:.1f}",
                              "middle", "small")
        parts_of_bubbles.text(step * (i + .5), 197, "V-Half" if name[0] == "v" else "1F1B")
    return {
        "kind": SIMULATED,
        "claim": "A barrier costs one microbatch of activations on every rank, whatever the "
                 "number of ranks (Vocab-2: p + 1, Vocab-1: p + 2), where interlaced has 1.5 p; "
                 "V-Half with sharded layers has the same memory on every rank.",
        "headline": ("p, p + 1, p + 2, 1.5 p; V-Half: the same on all ranks",
                     "equal" if same else "not equal, see below"),
        "rows": rows,
        "pictures": [
            (svg(1000, 262, parts + panel.parts + parts_of_bubbles.parts),
             "Left: circles are the paper's rule, lines are counted in our schedules. Right: "
             "simulated without the cost of communication."),
            (picture(folder / "timeline.svg"),
             "A step of 1F1B in four modes, and of V-Half with one barrier: p = 4, m = 8."),
        ],
        "notes": [],
    }


def picture(path):
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="timeline" src="data:image/svg+xml;base64,{data}">'


def losses_of(path):
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()
            if '"loss"' in line]


def loss_chart(curves, top):
    """Curves lie on each other, so each gets its own offset of the picture's."""
    low = min(min(c) for _, c in curves)
    high = max(max(c) for _, c in curves)
    panel = Panel(54, 40, 640, 190, top, low - .1, high + .1)
    colours = ("#7a5195", "#b3822d", "#d45087", "#2f6bd8", "#1f9a86", "#c23b2e", "#5b6779",
               "#8ab833", "#e08a2e", "#444")
    parts = []
    for i, (name, curve) in enumerate(curves):
        colour = colours[i % len(colours)]
        panel.line([(j / (len(curve) - 1), v) for j, v in enumerate(curve)], colour, i > 0)
        panel.dots([(j / (len(curve) - 1), v) for j, v in enumerate(curve)
                    if j % 20 == 2 * i], colour, False, name)
        parts += legend(720, 54 + 18 * i, [(name, colour, False)])
    panel.text(0, 207, "step 1", "start")
    panel.text(panel.width, 207, f"step {len(curves[0][1])}", "end")
    return svg(1000, 260, panel.parts + parts)


def furthest(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def losses(folder):
    curves = [(p.stem, losses_of(p)) for p in sorted(folder.glob("*.jsonl"))]
    reference = dict(curves)["1-none"]
    sharded = [c for name, c in curves if name[0] == "2" and "barrier" in name
               or name == "2-interlaced"]
    distance = max(furthest(reference, c) for _, c in curves)
    equal = sum(c == sharded[0] for c in sharded)
    rows = [(f"{name.replace('-', ' ranks, ', 1).replace('1 ranks', '1 rank')}",
             "coincide (appendix E)", f"{curve[0]:.6f} to {curve[-1]:.6f}; with one rank's "
             + apart(furthest(reference, curve))) for name, curve in curves]
    return {
        "kind": EXECUTED,
        "claim": "Sharding changes no result: losses of all modes are those of the model that is "
                 "not sharded. The paper shows 1000 steps of 4B on 8 GPUs; this is a small model "
                 "in fp32.",
        "headline": ("curves coincide (appendix E)",
                     f"{len(curves)} runs of {len(reference)} steps within {distance:.1e}; "
                     f"{equal} of {len(sharded)} sharded ones on 2 ranks have equal bits"),
        "rows": rows,
        "pictures": [(loss_chart(curves, "loss"), "All curves lie on each other.")],
        "notes": [],
    }


OVERLAP_ROW = re.compile(r"^(\w+) +([\d.]+) +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +"
                         r"([\d.]+) +(-?[\d.]+)%(?: +([\d.-]+)% +([\d.-]+)%$)?")
NAMES = {"all_gather_gemm": "all-gather + GEMM", "gemm_reduce_scatter": "GEMM + reduce-scatter",
         "dispatch_gemm": "dispatch + GEMMs", "gemm_combine": "GEMMs + combine"}


def overlap_rows(folder, file="rows.txt"):
    """[operation, ratio, pieces]: hidden %, blocking / overlapped, two more shares (of experts in
    virtual time: FasterMoE's and Tutel's chunks), the line."""
    rows = {}
    for line in (folder / file).read_text().splitlines():
        match = OVERLAP_ROW.match(line)
        if match:
            others = [float(share) for share in match.groups()[9:] if share]
            rows[match[1], float(match[2]), int(match[3])] = (
                float(match[9]), float(match[7]) / float(match[8]), others, line)
    return rows


def write_csv(path, head, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def hidden(folder):
    rows = overlap_rows(folder)
    pieces = (1, 2, 4, 8)
    groups = [("published\nfigure 11", [claim("hidden_fastermoe"), claim("hidden_tutel"),
                                        claim("hidden_comet")])]
    for op in ("dispatch_gemm", "gemm_combine"):
        for k in pieces:
            share, _, chunks, _ = rows[op, 1.0, k]
            groups.append((f"{NAMES[op].split()[0 if op[0] == 'd' else 2]}\nK = {k}",
                           [chunks[0] if k == 1 else None, chunks[1] if k == 1 else None, share]))
    both = (rows["dispatch_gemm", 1.0, 8][0] + rows["gemm_combine", 1.0, 8][0]) / 2
    chunks, adaptive = rows["dispatch_gemm", 1.0, 1][2]
    table = [("COMET (ours: K = 8, mean of dispatch and combine, link = compute)",
              cell("hidden_comet"), f"{both:.1f} %"),
             ("Tutel (ours: the best of 1, 2, 4, 8 chunks)", cell("hidden_tutel"),
              f"{adaptive:.1f} %"),
             ("FasterMoE (ours: two chunks of tokens)", cell("hidden_fastermoe"),
              f"{chunks:.1f} %"),
             ("one MoE layer, speed-up", cell("layer_comet"), "not without GPUs")]
    for op, name in NAMES.items():
        table.append((f"{name}, K = 1, 2, 4, 8; link / compute 0.5, 1, 2",
                      "not published", "; ".join(
                          ", ".join(f"{rows[op, ratio, k][0]:.0f}" for k in pieces)
                          for ratio in (0.5, 1.0, 2.0)) + " %"))
    return {
        "kind": VIRTUAL,
        "claim": "Tiles that are computed in the order in which they arrive hide most of the "
                 "communication of an MoE layer; chunks hide less.",
        "headline": (f"{claim('hidden_comet'):g} % COMET, {claim('hidden_fastermoe'):g} % "
                     "FasterMoE (figure 11)", f"{both:.1f} %, chunks {chunks:.0f} %"),
        "rows": table,
        "pictures": [(bars(groups, [("two chunks (FasterMoE)", OTHER),
                                    ("best of 1 to 8 chunks (Tutel)", "var(--off)"),
                                    ("tiles (COMET; ours)", OURS)], width=1000),
                      "Hidden share of communication, %, 8 members, a link as slow as computing.")],
        "notes": ["Launches cost nothing and all experts have equally many tokens here. The "
                  "paper's figures are of 8 H800 with 16,384 tokens, 8 experts, 2 per token."],
    }


def ratios(folder):
    marks, pieces = (0.25, 0.5, 1.0, 2.0, 4.0), (1, 2, 4, 8)
    panels, entries, lines, table = [], [], [], []
    for i, (file, price, what) in enumerate((("rows.txt", 0, "products cost their rows alone"),
                                             ("launches.txt", 20, "each product 2 % more"))):
        rows = overlap_rows(folder, file)

        def share(ratio, k=None, other=None):
            """Of dispatch and combine together; both have as long a link."""
            found = [rows[op, ratio, k or 1] for op in ("dispatch_gemm", "gemm_combine")]
            return sum(row[0] if other is None else row[2][other] for row in found) / 2

        curves = [(f"tiles, K = {k} (COMET)", "var(--ours)", [share(r, k=k) for r in marks])
                  for k in pieces]
        best = [sum(max(rows[op, r, k][0] for k in pieces)
                    for op in ("dispatch_gemm", "gemm_combine")) / 2 for r in marks]
        curves += [("tiles, the best K of each (COMET)", "var(--ours)", best),
                   ("two chunks (FasterMoE)", OTHER, [share(r, other=0) for r in marks]),
                   ("best of 1 to 8 chunks (Tutel)", "var(--off)",
                    [share(r, other=1) for r in marks])]
        panel = Panel(50 + 420 * i, 62, 360, 210, what, 0, 100, " %")
        for name, colour, values in curves:
            points = [(j / (len(marks) - 1), v) for j, v in enumerate(values)]
            panel.line(points, colour, "K =" in name)
            panel.dots(points, colour, False, name)
            lines += [(price, name, r, f"{v:.1f}") for r, v in zip(marks, values)]
            table.append((f"{name}; {what}; link / computing 0.25 to 4", "not published",
                          ", ".join(f"{v:.0f}" for v in values) + " %"))
        for j, ratio in enumerate(marks):
            panel.text(panel.width * j / (len(marks) - 1), panel.height + 17, number(ratio))
        for key in ("hidden_comet", "hidden_tutel", "hidden_fastermoe"):
            panel.line([(0, claim(key)), (1, claim(key))], PAPER, True)
        panels += panel.parts
    entries = legend(60, 16, [("tiles, the best K; dashed K = 1 to 8", OURS, False),
                              ("two chunks (FasterMoE)", OTHER, False),
                              ("best of 1 to 8 chunks (Tutel)", "var(--off)", False),
                              ("published (figure 11)", PAPER, False)])
    write_csv(folder / "shares.csv", ("piece_us", "cut", "link_over_compute", "hidden_pct"), lines)
    of = {name: float(v) for price, name, r, v in lines if price == 20 and r == 1}
    ours = [of["tiles, the best K of each (COMET)"], of["best of 1 to 8 chunks (Tutel)"],
            of["two chunks (FasterMoE)"]]
    return {
        "kind": VIRTUAL,
        "claim": "Tiles hide more than whole chunks: own tokens need not arrive. Where products "
                 "cost more than their rows, their number has to be chosen by the ratio, as COMET "
                 "does, and on a fast link a few chunks hide as much.",
        "headline": (" / ".join(f"{claim(k):g}" for k in ("hidden_comet", "hidden_tutel",
                                                          "hidden_fastermoe"))
                     + " % COMET, Tutel, FasterMoE (figure 11)",
                     " / ".join(f"{v:.1f}" for v in ours) + " % where each product costs 2 % more"),
        "rows": [(name, cell(key), f"{v:.1f} %") for name, key, v in
                 zip(("COMET (the best K of each, link = computing, each product 2 % more)",
                      "Tutel", "FasterMoE"),
                     ("hidden_comet", "hidden_tutel", "hidden_fastermoe"), ours)] + table,
        "pictures": [(svg(900, 310, entries + panels),
                      "Hidden share of dispatch and combine over link time / computing time, 8 "
                      "members; figures in shares.csv.")],
        "notes": ["FasterMoE's form here: all tokens in two chunks, one of which is computed while "
                  "the next travels. Tutel's: whichever of 1, 2, 4 and 8 such chunks takes the "
                  "least time, which Tutel finds by measuring. The paper's ratio of link to "
                  "computing is not published, so its figures are lines."],
    }


LOADS = re.compile(r"^(dispatch_gemm|gemm_combine) +[\d.]+ +(\d+) +\d+ +[\d.]+ +[\d.]+ +"
                   r"([\d.]+) +([\d.]+) +-?[\d.]+% +(\d+) +([\d.]+) +([\d.]+)$")


def imbalance(folder):
    layers, wrong = {}, 0  # [std]: fullest, ms blocking, ms with one piece, ms with four
    for line in (folder / "rows.txt").read_text().splitlines():
        match = LOADS.match(line)
        if not match:
            continue
        layer = layers.setdefault(float(match[6]), [float(match[7]), [], 0, 0])
        if match[2] == "1":
            layer[1].append(float(match[3]) * 1e-3)
        layer[2 if match[2] == "1" else 3] += float(match[4]) * 1e-3
        wrong += int(match[5])
    rows = [(std, fullest, sum(blocking), one, four)
            for std, (fullest, blocking, one, four) in sorted(layers.items())]
    write_csv(folder / "layers.csv",
              ("std", "fullest_over_mean", "blocking_ms", "one_piece_ms", "four_pieces_ms"),
              [(f"{s:.4f}", f"{f:.3f}", *(f"{ms:.2f}" for ms in times))
               for s, f, *times in rows])
    panel = Panel(50, 40, 560, 210, "", 0, 1.1 * max(max(row[2:]) for row in rows), " ms")
    names = ("blocking", "K = 1", "K = 4")
    colours = (OTHER, "var(--off)", OURS)
    for i, colour in enumerate(colours):
        points = [(row[0] / rows[-1][0], row[2 + i]) for row in rows]
        panel.line(points, colour)
        panel.dots(points, colour, False, names[i])
    for row in rows:
        panel.text(panel.width * row[0] / rows[-1][0], panel.height + 17, f"{row[0]:.3f}")
    first, last = rows[0], rows[-1]
    return {
        "kind": MODELLED,
        "claim": "With experts of uneven loads a layer takes as much longer as its fullest rank "
                 "has more rows, and overlap goes on to hide what travels.",
        "headline": ("not published as numbers (time over the deviation of loads)",
                     f"from {first[4]:.1f} to {last[4]:.1f} ms as the fullest rank has "
                     f"{first[1]:.2f} to {last[1]:.2f} times the mean; blocking {first[2]:.1f} to "
                     f"{last[2]:.1f}"),
        "rows": [(f"deviation {s:.4f}, fullest rank {f:.2f} times the mean", "not published",
                  f"blocking {b:.2f}, K = 1 {one:.2f}, K = 4 {four:.2f} ms")
                 for s, f, b, one, four in rows]
                + [("elements that differ from the blocking form", "0", str(wrong))],
        "pictures": [(svg(640, 290, legend(60, 16, [(n, c, False) for n, c in zip(names, colours)])
                          + panel.parts),
                      "Milliseconds of dispatch, experts and combine over the standard deviation "
                      "of the experts' shares of all rows; figures in layers.csv.")],
        "notes": ["Two ranks with four experts each, two per token, 512 rows of 512 to 512 for a "
                  "rank on average, fp32, and a link that takes half of the products' time. "
                  "Shares rise evenly from the first expert to the last, so that ranks differ as "
                  "much as they can. With other work on the machine these figures scatter."],
    }


def link(folder):
    rows = overlap_rows(folder)
    best = {}
    for (op, _, k), (share, gain, _, line) in rows.items():
        best.setdefault(op, []).append((share, gain, k, line.split()[-1]))
    wrong = sum(int(row[3]) for found in best.values() for row in found)
    published = {"all_gather_gemm": "ag_gemm", "gemm_reduce_scatter": "gemm_rs",
                 "dispatch_gemm": "moe_part1", "gemm_combine": "moe_part2"}
    table, groups = [], []
    for op, found in best.items():
        share, gain, k, _ = max(found)
        hidden_by = "; ".join(f"{s:.0f} % ({p})" for s, _, p, _ in found)
        table.append((f"{NAMES[op]}: blocking / overlapped", cell(published[op]),
                      f"{gain:.2f} x (K = {k}); hidden by K: {hidden_by}"))
        groups.append((NAMES[op], [claim(published[op]), gain]))
    table.append(("a whole MLP", cell("mlp"), "not without GPUs"))
    table.append(("elements that differ from the blocking form", "0", str(wrong)))
    gains = [gain for _, (_, gain) in groups]
    return {
        "kind": MODELLED,
        "claim": "Products that begin with the first tiles hide the collectives beside them.",
        "headline": (f"{claim('gemm_rs'):g} to {claim('moe_part1'):g} x (figures 8, 9)",
                     f"{span(gains, '{:.2f}')} x on a link of half of computing, {wrong} wrong"),
        "rows": table,
        "pictures": [(bars(groups, [("published, 8 H800", PAPER),
                                    ("ours, 2 ranks, modelled link", OURS)], digits=2),
                      "Time of the blocking form over that of the overlapped one.")],
        "notes": ["Not comparable figure by figure: theirs are of fused kernels on 8 H800, ours "
                  "of 1024 x 1024 by 1024 x 1024 in fp32 on two ranks of this machine, whose link "
                  "is made to take half of the products' time. They show that the idea works, "
                  "and what it gives there, at most 1.5.",
                  "The published MoE figures are over vLLM's fused operators. With other work on "
                  "the machine these figures scatter."],
    }


def pieces(folder):
    table, same, distances = [], True, []
    for what, name in (("tensor", "MLP and attention on two tensor ranks"),
                       ("experts", "experts on two expert ranks")):
        curves = [losses_of(folder / f"{what}-{k}.jsonl") for k in (1, 2, 4)]
        reference = losses_of(folder / f"{what}-none.jsonl")
        equal = curves[0] == curves[1] == curves[2]
        same = same and equal
        distances.append(furthest(curves[0], reference))
        table.append((f"{name}, 1, 2 and 4 pieces, losses of 30 steps", "not published",
                      ("equal bits" if equal else "different bits") + "; from the run without: "
                      + apart(furthest(curves[0], reference))))
    return {
        "kind": EXECUTED,
        "claim": "Overlap changes no result: pieces alter when something is computed, not what.",
        "headline": ("not published", ("equal bits" if same else "different bits")
                     + "; from runs without teams {:.0e} (tensor), {:.0e} (experts)".format(
                         *distances)),
        "rows": table, "pictures": [],
        "notes": ["Teams add up in another order than one rank. Where that rounds otherwise, a "
                  "token between two experts may go to the other one."],
    }


def score_tables(folder):
    """fraction -> adaptive -> parts -> scores by rounds."""
    result, fraction, adaptive = {}, None, False
    for line in (folder / "rows.txt").read_text().splitlines():
        match = re.match(r"(\d+) of (\d+) samples", line)
        if match:
            fraction = round(100 * int(match[1]) / int(match[2]))
            result[fraction] = {False: {}, True: {}}
        elif line.startswith("| parts") or line.startswith("| adaptive"):
            adaptive = "adaptive" in line
        elif re.match(r"\| \d", line):
            parts, *scores = [int(c) for c in line.strip("| ").split("|")]
            result[fraction][adaptive][parts] = scores
    return result


def scores(folder):
    tables_of = score_tables(folder)
    rounds = (1, 2, 4, 8, 16, 32)
    shown = {2: "var(--one_barrier)", 8: "var(--two_barriers)", 16: "var(--redistributed)",
             32: "var(--interlaced)"}
    parts = legend(20, 16, [(f"{p} parts", c, False) for p, c in shown.items()]
                   + [("published", PAPER, True)])
    table, compared = [], []
    for i, (fraction, adaptive) in enumerate(itertools.product((10, 50), (False, True))):
        figure = f"fig{4 if adaptive else 3}_{fraction}_"
        panel = Panel(52 + 245 * i, 58, 195, 170, f"{fraction} %"
                      + (", adaptive parts" if adaptive else ", fixed parts"), 0, 104)
        for count, colour in shown.items():
            found = tables_of[fraction][adaptive][count]
            panel.line([(j / 5, s) for j, s in enumerate(found)], colour)
            for j, r in enumerate(rounds):
                key = f"{figure}{count}_{r}"
                if key in CLAIMS:
                    panel.dots([(j / 5, claim(key))], colour, True, f"{count} parts, published")
                    compared.append((key, found[j]))
                    table.append((f"{fraction} %, {count} {'adaptive ' if adaptive else ''}parts, "
                                  + (f"{r} rounds" if r > 1 else "1 round"), cell(key),
                                  str(found[j])))
        for j, r in enumerate(rounds):
            panel.text(panel.width * j / 5, 187, str(r))
        panel.text(panel.width / 2, 204, "rounds")
        parts += panel.parts
    distances = [abs(claim(key) - found) for key, found in compared]
    return {
        "kind": EXECUTED,
        "claim": "Greedy in parts comes close to greedy in one part with more rounds, and sooner "
                 "with adaptive parts; a large subset recovers less.",
        "headline": ("2 parts 80 to 98, adaptive 100; 32 parts 2 to 61, adaptive 89 (10 %)",
                     "2 parts {0[0]} to {0[5]}, adaptive {1[5]}; 32 parts {2[0]} to {2[5]}, "
                     "adaptive {3[5]}".format(tables_of[10][False][2], tables_of[10][True][2],
                                              tables_of[10][False][32], tables_of[10][True][32])),
        "rows": table,
        "pictures": [(svg(1020, 270, parts), "Score: 100 is greedy in one part, 0 the lowest of "
                      "a table. Circles are published for CIFAR-100, lines are ours.")],
        "notes": ["CIFAR-100 is not here: ours are 50,000 made-up samples in 100 classes with 64 "
                  "columns, as many as CIFAR-100 has in the paper, with uniform utilities. So "
                  f"only trends compare; the {len(distances)} cells are {max(distances):.0f} "
                  f"points apart at most, {sum(distances) / len(distances):.0f} on average."],
    }


def bounding(folder):
    def read(fraction, weights, rule):
        report = json.loads((folder / f"{fraction}-{weights}-{rule}.json").read_text())
        found = report.get("bounding", {})
        return found.get("selected", 0), found.get("discarded", 0), report["objective"]

    table, groups, elsewhere = [], [], {"exact": 0, "quota:0.3": 0, "bernoulli:0.3": 0}
    for fraction in ("0.1", "0.5", "0.8"):
        greedy = read(fraction, "9:1", "off")[2]
        decided = []
        for rule in ("exact", "quota:0.3", "bernoulli:0.3"):
            chosen, out, objective = read(fraction, "9:1", rule)
            key = f"bound_{'exact' if rule == 'exact' else 'uniform'}_{fraction}"
            what = re.search("selects|discards|decides", CLAIMS[key]["place"])[0]
            decided.append({"selects": chosen, "discards": out}.get(what, chosen + out) / 500)
            table.append((f"{100 * float(fraction):.0f} % at alpha 0.9: {rule} {what}, of 50,000",
                          cell(key) if rule != "bernoulli:0.3" else "not published",
                          f"{500 * decided[-1]:.0f} (selects {chosen}, discards {out}); "
                          f"f {objective / greedy:.4f} of greedy's"))
        groups.append((f"{100 * float(fraction):.0f} % chosen\n{what}",
                       [claim(f"bound_exact_{fraction}") / 500, decided[0],
                        claim(f"bound_uniform_{fraction}") / 500, decided[1], decided[2]]))
        for weights, rule in itertools.product(("1:1", "1:9"), elsewhere):
            elsewhere[rule] = max(elsewhere[rule], sum(read(fraction, weights, rule)[:2]))
    for rule, most in elsewhere.items():
        table.append((f"decided at alpha 0.5 and 0.1, the most of 6 runs, {rule}",
                      cell("bound_equal") if rule != "bernoulli:0.3" else "not published",
                      str(most)))
    sums = {line.split()[0] for line in (folder / "sums.txt").read_text().splitlines()}
    table.append(("different subsets of 1, 2 and 4 ranks", "not published", str(len(sums))))
    exact = read("0.1", "9:1", "exact")
    return {
        "kind": EXECUTED,
        "claim": "Bounding decides many samples before greedy where utility weighs most, more "
                 "with sampled neighbours, and none where similarity weighs as much.",
        "headline": (f"10 %: exact discards {claim('bound_exact_0.1'):.0f} of 50,000, sampled "
                     f"{claim('bound_uniform_0.1'):.0f}; none at alpha 0.5",
                     f"{exact[1]}, {read('0.1', '9:1', 'quota:0.3')[1]}; "
                     f"{max(elsewhere['exact'], elsewhere['quota:0.3'])} at alpha 0.5 and 0.1"),
        "rows": table,
        "pictures": [(bars(groups, [("published: exact", PAPER), ("ours: exact", OURS),
                                    ("published: 30 % sampled", "var(--off)"),
                                    ("ours: quota:0.3", "var(--two_barriers)"),
                                    ("ours: bernoulli:0.3", "var(--redistributed)")], width=900),
                      "Share of 50,000 samples at alpha 0.9, %: discarded, decided or selected, "
                      "whichever the paper has.")],
        "notes": ["The samples are the made-up ones of figures 3 and 4. The paper samples until "
                  "enough neighbours are counted, as `quota` does; `bernoulli` is the setting of "
                  "its theorem. Its weighted sampling, the worse one in its table, is not there."],
    }


def optimum(folder):
    ratios, decided = [], []
    for i in range(25):
        graph = json.loads((folder / f"graph{i}.json").read_text())
        report = json.loads((folder / f"report{i}.json").read_text())
        weights = {}
        for a, b, w in graph["edges"]:
            weights[a, b] = weights[b, a] = w
        best = max(3 * sum(graph["utilities"][v] for v in chosen)
                   - sum(weights.get(pair, 0) for pair in itertools.combinations(chosen, 2))
                   for chosen in itertools.combinations(range(14), 5))
        ratios.append(report["objective"] / best)
        decided.append(report["bounding"]["selected"] + report["bounding"]["discarded"])
    return {
        "kind": EXECUTED,
        "claim": "Exact bounding loses nothing, and greedy after it has at least half of the "
                 "optimum (theorem 4.6).",
        "headline": (f"at least {claim('guarantee'):g} of the optimum",
                     f"{min(ratios):.4f} to {max(ratios):.4f} on 25 graphs"),
        "rows": [("f of the choice over the best f of all 2002 subsets", cell("guarantee"),
                  f"{min(ratios):.4f} least, {sum(ratios) / 25:.4f} on average; "
                  f"{sum(r == 1 for r in ratios)} of 25 are optimal"),
                 ("samples of 14 that exact bounding decides", "not published",
                  f"{sum(decided) / 25:.1f} on average")],
        "pictures": [],
        "notes": ["5 of 14 samples, alpha 3, beta 1. Sums are of integers, so they are exact."],
    }


def lists(folder):
    theirs = json.loads((folder / "jaxpp.json").read_text())
    names = {"GPipe": "gpipe", "Std1F1B": "1f1b", "Eager1F1B": "eager-1f1b",
             "Interleaved1F1B": "interleaved", "ZeroBubble": "zb-h1"}
    table, equal = [], 0
    for name, family in names.items():
        same = []
        for key, rows in theirs.items():
            kind, p, m = key.split()
            if kind == name:
                ours = json.loads((folder / f"{family}-{p}-{m}.json").read_text())["passes"]
                transformer = [[q for q in row if re.match(r"\d+[FBIW]", q)] for row in ours]
                same.append(transformer == rows)
        equal += sum(same)
        table.append((f"{name} and `{family}`: sizes with equal lists", str(len(same)),
                      str(sum(same))))
    return {
        "kind": COUNTED,
        "claim": "Schedules are lists of tasks per rank: JaxPP's built-in ones.",
        "headline": (f"{len(theirs)} lists", f"{equal} equal, pass by pass"),
        "rows": table, "pictures": [],
        "notes": ["The rules were read in JaxPP's schedules.py; p, m = 2, 4; 3, 6; 4, 8; 4, 12; "
                  "8, 16. Its GPipe runs backwards in the order of the forwards."],
    }


def own(folder):
    table, worst = [], 0.0
    for mode in ("none", "two_barriers", "one_barrier"):
        built_in, mine = (losses_of(folder / f"{n}-{mode}.jsonl") for n in ("1f1b", "own"))
        worst = max(worst, furthest(built_in, mine))
        table.append((f"losses of {len(mine)} steps, {mode}: furthest from 1F1B's",
                      "equal (its claim)", apart(furthest(built_in, mine))))
    return {
        "kind": EXECUTED,
        "claim": "Users write the order of tasks; the system infers communication, and results "
                 "stay those of the program.",
        "headline": ("any schedule, same result", f"losses of file and 1F1B: {apart(worst)}"),
        "rows": table,
        "pictures": [(picture(folder / "timeline.svg"),
                      "1F1B, and the schedule of the file, on two ranks.")],
        "notes": ["The file has two lines of passes, one per rank (`own.csv` in the folder); "
                  "the vocabulary passes are added to it."],
    }


def gpt3(folder):
    gpus = (64, 128, 256, 512, 1024)
    names = {"interleaved": "interleaved 1F1B, v = 6", "1f1b": "1F1B",
             "gpipe": "circular GPipe, v = 6, full recomputation"}
    seconds = {n: [plan_rows(folder / f"{n}-{g}.json")[0]["step_ns"] * 1e-9 for g in gpus]
               for n in names}
    scaling = {n: 100 * s[0] / s[-1] for n, s in seconds.items()}
    table = [(f"step of 64 GPUs, {names[n]}", "not in the repository", f"{seconds[n][0]:.2f} s")
             for n in names]
    fsdp = plan_rows(folder / "fsdp-64.json")[0]["step_ns"] * 1e-9
    over_fsdp = fsdp / seconds["interleaved"][0]
    table.append(("step of 64 GPUs, FSDP (ZeRO-3 of 64 replicas, full recomputation)",
                  "not in the repository", f"{fsdp:.2f} s"))
    table.append(("FSDP / interleaved", f"{claim('spmd'):g} x over the best SPMD configuration "
                  "(abstract)", f"{over_fsdp:.2f} x"))
    table.append(("circular GPipe / interleaved", "not in the repository",
                  f"{seconds['gpipe'][0] / seconds['interleaved'][0]:.2f} x"))
    table += [(f"weak scaling from 64 to 1024 GPUs, {names[n]}", cell("weak_scaling"),
               f"{scaling[n]:.1f} %") for n in names]
    return {
        "kind": PREDICTED,
        "claim": "Interleaved 1F1B in an MPMD runtime beats what SPMD can express, and scales "
                 "weakly to 1024 GPUs.",
        "headline": (f"weak scaling {claim('weak_scaling'):g} %; {claim('spmd'):g} x over SPMD",
                     f"{scaling['1f1b']:.1f} % (1F1B), {scaling['interleaved']:.1f} % "
                     f"(interleaved); {over_fsdp:.2f} x over FSDP"),
        "rows": table,
        "pictures": [(bars([(f"{g} GPUs", [seconds[n][i] for n in names])
                            for i, g in enumerate(gpus)],
                           [(names["gpipe"], OTHER), (names["1f1b"], "var(--off)"),
                            (names["interleaved"], OURS)][::-1], width=900),
                      "Predicted seconds per step, p = 8, t = 8, 128 sequences of 2048 tokens per "
                      "64 H100.")],
        "notes": ["The paper's batch and absolute times are not among the references of this "
                  "repository, so only directions compare. Its SPMD configurations are not "
                  "either: FSDP over all ranks is ours, the fastest microbatch that fits."],
    }


# ------------------------------------------------------------------------ page

STYLE = """
:root { --back: #fff; --panel: #f4f5f7; --line: #dfe3e9; --text: #1c2330; --soft: #5b6779;
  --off: #a9b2c0; --ours: #2f6bd8; --paper: #6b7485; --other: #b3822d; --bad: #c23b2e;
  --none: #7a5195; --redistributed: #b3822d; --interlaced: #d45087; --one_barrier: #2f6bd8;
  --two_barriers: #1f9a86; color-scheme: light; }
* { box-sizing: border-box; }
body { font: 14px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; margin: 1.2em auto;
  padding: 0 1.2em; max-width: 1080px; color: var(--text); background: var(--back); }
h1 { font-size: 1.5em; margin: 0 0 .3em; }
h2 { font-size: 1.25em; margin: 2em 0 .2em; border-top: 1px solid var(--line); padding-top: 1em; }
h3 { font-size: 1.1em; margin: 1.8em 0 .2em; }
p { margin: .35em 0; max-width: 64em; }
a { color: var(--ours); }
table { border-collapse: collapse; margin: .6em 0; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25em .7em .25em 0;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
.figures td:nth-child(2) { min-width: 11em; }
.kind { display: inline-block; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; padding: 0 .5em; font-size: 12px; color: var(--soft); white-space: nowrap; }
.soft, figcaption { color: var(--soft); font-size: 13px; }
.bad { color: var(--bad); }
figure { margin: .8em 0; }
figure svg, figure img { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, "DejaVu Sans", sans-serif; }
svg text.title { fill: var(--text); font-weight: 600; }
svg text.small { font-size: 10.5px; fill: var(--text); }
.grid { stroke: var(--line); }
details { margin: .4em 0; }
pre { background: var(--panel); padding: .6em; overflow-x: auto; font-size: 12px; margin: .3em 0; }
"""


def marked(text):
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def table_of(head, rows):
    lines = ['<table class="figures"><tr>' + "".join(f"<th>{c}</th>" for c in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{marked(c)}</td>" for c in row) + "</tr>" for row in rows]
    return "\n".join(lines) + "</table>"


def section(name, about, folder, result):
    commands = (folder / "commands").read_text().splitlines() if (folder / "commands").exists() \
        else []
    seconds = (folder / "seconds").read_text().strip()
    lines = [f'<h3 id="{name}">{marked(about[0].upper() + about[1:])}</h3>']
    if "error" in result:
        lines.append(f'<p class="bad">Not run to its end: {marked(result["error"])}</p>')
    else:
        lines.append(f'<p>{marked(result["claim"])} <span class="kind">{result["kind"]}</span></p>')
        for drawing, caption in result["pictures"]:
            lines.append(f"<figure>{drawing}<figcaption>{marked(caption)}</figcaption></figure>")
        lines.append(table_of(("what", "published", "ours"), result["rows"]))
        lines += [f'<p class="soft">{marked(note)}</p>' for note in result["notes"]]
    shown = commands[:60]
    if len(commands) > len(shown):
        shown.append(f"# and {len(commands) - len(shown)} more: {name}/commands")
    count = f"{len(commands)} command" + ("s" if len(commands) != 1 else "")
    lines.append(f'<details><summary class="soft">{count}, {seconds} s; output: '
                 f'<a href="{name}/">{name}/</a></summary><pre>'
                 + escaped("\n".join(shown)) + "</pre></details>")
    return "\n".join(lines)


def said(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    cores = said(["nproc"])
    return f"{cores} cores of {model}"


def of_experiment(name, folder):
    try:
        return globals()[name](folder)
    except (OSError, LookupError, ValueError, StopIteration) as error:
        said_so = f"its output cannot be read: {type(error).__name__}: {error}"
        print(f"reproduce_page.py: error: {name}: {said_so}", file=sys.stderr)
        return {"error": said_so}


def main():
    if len(sys.argv) != 2:
        sys.exit("reproduce_page.py: error: needs the folder of benchmarks/reproduce.sh")
    folder = pathlib.Path(sys.argv[1])
    sections = {paper: [] for paper in PAPERS}
    summary, printed, total, failed = [], [], 0.0, False
    for line in (folder / "experiments.txt").read_text().splitlines():
        name, paper, about = line.split(None, 2)
        here = folder / name
        if not (here / "seconds").exists():
            continue
        total += float((here / "seconds").read_text())
        if (here / "failed").exists():
            result = {"error": (here / "failed").read_text().strip()}
        else:
            result = of_experiment(name, here)
        failed = failed or "error" in result
        row = ("-", "failed", "") if "error" in result else (*result["headline"], result["kind"])
        sections[paper].append(section(name, about, here, result))
        summary.append(f'<tr><td><a href="#{name}">{name}</a></td><td>{paper}</td>'
                       + "".join(f"<td>{marked(c)}</td>" for c in row) + "</tr>")
        printed.append((name, *row))
    body = ["<h1>Five papers, reproduced without a GPU</h1>",
            "<p>What VocabPipe makes of the experiments of five papers that need no GPU, beside "
            "what the papers published. Labels say where our figures come from: nothing here was "
            "measured on a GPU. <code>docs/papers.md</code> says what of each paper is in "
            "VocabPipe and what is not.</p>",
            f'<p class="soft">{escaped(machine())}; '
            f'{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}; commit '
            f'{escaped(said(["git", "rev-parse", "--short", "HEAD"]) or "unknown")}; '
            f'{total:.0f} s in all; made by <code>benchmarks/reproduce.sh</code></p>',
            "<table><tr><th>experiment</th><th>paper</th><th>published</th><th>ours</th>"
            "<th>ours is</th></tr>" + "\n".join(summary) + "</table>"]
    for paper, found in sections.items():
        if found:
            body.append(f"<h2>{PAPERS[paper]} (arXiv {paper})</h2>")
            body += found
    (folder / "index.html").write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Five papers, '
        'reproduced</title><meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n")
    for name, published, ours, _ in printed:
        print(f"{name:<9} published: {published}\n{'':<9} ours:      {ours}")
    sys.exit(1 if failed else 0)


main()
