#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Inputs of benchmarks/reproduce.sh, each made to the folder that is named:

    reproduce_inputs.py samples FOLDER    50,000 samples in 100 classes: x.npy, u.npy
    reproduce_inputs.py text FOLDER       300 KB of made-up words: text.txt
    reproduce_inputs.py graphs FOLDER     25 graphs of 14 samples, for brute force
    reproduce_inputs.py models FOLDER     config.json of the vocabulary paper's models
    reproduce_inputs.py schedule FOLDER   a schedule of one's own for two ranks, as CSV
    reproduce_inputs.py jaxpp FOLDER      JaxPP's schedules by their rules

Chance is seeded: the same files on every machine.
"""
import json
import pathlib
import random
import struct
import sys

SIZES = [(2, 4), (3, 6), (4, 8), (4, 12), (8, 16)]  # ranks, microbatches


def write_npy(path, shape, dtype, rows):
    """rows: bytes of the elements, in order."""
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (dtype, shape)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(row)


def make_samples(folder):
    """As many samples, columns and classes as the paper's CIFAR-100: normal numbers around the
    centre of a class; utilities are uniform."""
    source = random.Random(1)
    samples, columns, classes = 50000, 64, 100
    centres = [[source.gauss(0, 1) for _ in range(columns)] for _ in range(classes)]
    write_npy(folder / "x.npy", (samples, columns), "<f4",
              (struct.pack("<64f", *(c + source.gauss(0, 1) for c in centres[i % classes]))
               for i in range(samples)))
    write_npy(folder / "u.npy", (samples,), "<f8",
              (struct.pack("<d", source.random()) for _ in range(samples)))


def make_text(folder):
    """Words of syllables, short ones often; a word is mostly followed by one of its four."""
    source = random.Random(3)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(source.choices(syllables, k=1 + i // 150)) for i in range(600)]
    weights = [1 / (i + 1) for i in range(len(words))]
    followers = {w: source.choices(words, weights, k=4) for w in words}
    word, text = words[0], []
    for _ in range(80000):
        word = source.choice(followers[word]) if source.random() < 0.7 else \
            source.choices(words, weights)[0]
        text.append(word + (".\n" if source.random() < 0.1 else " "))
    (folder / "text.txt").write_text("".join(text))


def make_graphs(folder):
    """Utilities and weights are multiples of 2^-20, as the tool has them: sums are exact."""
    unit = 2**20
    source = random.Random(2)
    for number in range(25):
        samples = 14
        utilities = [source.randrange(1, unit) for _ in range(samples)]
        edges = [(a, b, source.randrange(1, unit)) for a in range(samples) for b in range(a)
                 if source.random() < 0.35]
        write_npy(folder / f"u{number}.npy", (samples,), "<f8",
                  (struct.pack("<d", u / unit) for u in utilities))
        write_npy(folder / f"edges{number}.npy", (len(edges), 3), "<f8",
                  (struct.pack("<3d", a, b, w / unit) for a, b, w in edges))
        (folder / f"graph{number}.json").write_text(
            json.dumps({"utilities": utilities, "edges": edges}))


def make_models(folder):
    for name, layers, hidden, heads, tokens in (("4b", 32, 3072, 24, 4096),
                                                ("21b", 64, 5120, 40, 2048)):
        (folder / f"{name}.json").write_text(json.dumps({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": layers,
            "n_embd": hidden, "n_head": heads, "n_positions": tokens, "vocab_size": 256000,
            "tie_word_embeddings": False, "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5}))


def make_schedule(folder):
    """Backwards in halves; up to two W wait, and fill the end of the step. No built-in family."""
    ranks, microbatches = 2, 8
    with open(folder / "own.csv", "w") as file:
        for rank in range(ranks):
            row, waiting, forwards = [], [], 0
            for _ in range(ranks - rank):
                row.append(f"{rank}F{forwards}")
                forwards += 1
            for j in range(microbatches):
                row.append(f"{rank}I{j}")
                waiting.append(f"{rank}W{j}")
                if forwards == microbatches or len(waiting) > 2:
                    row.append(waiting.pop(0))
                if forwards < microbatches:
                    row.append(f"{rank}F{forwards}")
                    forwards += 1
            file.write(",".join(row + waiting) + "\n")


def take_turns(first, second):
    """One of the first, one of the second, and so on; then the rest."""
    result = []
    for i in range(max(len(first), len(second))):
        result += first[i:i + 1] + second[i:i + 1]
    return result


def jaxpp_rank(name, p, m, r):
    """The passes of a rank by the rules of JaxPP's schedules.py, such as 0F3."""
    forwards = [f"{r}F{i}" for i in range(m)]
    backwards = [f"{r}B{i}" for i in range(m)]
    if name == "GPipe":
        return forwards + backwards
    if name in ("Std1F1B", "Eager1F1B"):
        ahead = min(m, p - r if name == "Std1F1B" else 2 * (p - r) - 1)
        return forwards[:ahead] + take_turns(backwards, forwards[ahead:])
    if name == "ZeroBubble":  # I, W, F in turn; what has run out is left out
        inputs = [f"{r}I{i}" for i in range(m)]
        weights = [f"{r}W{i}" for i in range(m)]
        row, forwards = forwards[:p - r], forwards[p - r:]
        row += take_turns(inputs[:r], forwards[:r])
        inputs, forwards = inputs[r:], forwards[r:]
        while inputs or weights or forwards:
            for queue in (inputs, weights, forwards):
                if queue:
                    row.append(queue.pop(0))
        return row
    # Interleaved1F1B with two stages per rank: groups of p microbatches.
    groups = [range(g, g + p) for g in range(0, m, p)]
    forwards = [f"{r + c * p}F{i}" for group in groups for c in (0, 1) for i in group]
    backwards = [f"{r + c * p}B{i}" for group in groups for c in (1, 0) for i in group]
    ahead = min(2 * m, p + 2 * (p - 1 - r))
    return forwards[:ahead] + take_turns(forwards[ahead:], backwards)


def make_jaxpp(folder):
    lists = {}
    for name in ("GPipe", "Std1F1B", "Eager1F1B", "Interleaved1F1B", "ZeroBubble"):
        for p, m in SIZES:
            lists[f"{name} {p} {m}"] = [jaxpp_rank(name, p, m, r) for r in range(p)]
    (folder / "jaxpp.json").write_text(json.dumps(lists))


def main():
    makers = {"samples": make_samples, "text": make_text, "graphs": make_graphs,
              "models": make_models, "schedule": make_schedule,
              "jaxpp": make_jaxpp}
    if len(sys.argv) != 3 or sys.argv[1] not in makers:
        sys.exit(f"reproduce_inputs.py: error: needs one of {', '.join(makers)}, and a folder")
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    makers[sys.argv[1]](folder)


main()
