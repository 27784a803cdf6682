#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vocabpipe select run beside other programs on the same instances: objective and seconds.

    pip install numpy apricot-select submodlib-py
    python3 benchmarks/compare_selectors.py [--program build/bin/vocabpipe] [--samples 2000]

The others have no utilities, but the graph cut: the utility of a sample is then the sum of its
similarities, and a pair of chosen samples counts twice against them (--beta 2). All choose greedily:
apricot (lazy) and submodlib (LazyGreedy) in one piece, GreeDi (Mirzasoleiman et al. 2013) in 16 random
parts whose choices are merged on one machine, the best part if that is better. Seconds are of one
thread and the choice alone; those of vocabpipe are of the whole program, files included.
"""
import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import submodlib
from apricot import GraphCutSelection

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = 16


def instance(seed, n, dimensions=8, clusters=40, neighbours=10):
    """Points in clusters; s[v, w] of the nearest neighbours of each, both ways."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(clusters, dimensions))
    points = centres[random.integers(clusters, size=n)] + 0.3 * random.normal(size=(n, dimensions))
    squares = ((points[:, None] - points[None]) ** 2).sum(2)
    np.fill_diagonal(squares, np.inf)
    similarities = np.zeros((n, n))
    rows = np.repeat(np.arange(n), neighbours)
    nearest = np.argpartition(squares, neighbours, axis=1)[:, :neighbours].ravel()
    # Multiples of 2^-20 are what vocabpipe holds.
    values = np.round(2**20 / (1 + np.sqrt(squares[rows, nearest]))) / 2**20
    similarities[rows, nearest] = similarities[nearest, rows] = values
    return similarities


def objective(similarities, weight, chosen):
    """f of the graph cut, from its definition."""
    return weight * similarities[:, chosen].sum() - similarities[np.ix_(chosen, chosen)].sum()


def greedy(similarities, weight, k, candidates):
    """The first k samples that lazy greedy chooses of the candidates."""
    gains = {v: weight * similarities[v].sum() for v in candidates}
    heap = [(-gain, v) for v, gain in gains.items()]
    heapq.heapify(heap)
    chosen = []
    while len(chosen) < min(k, len(candidates)):
        gain, v = heapq.heappop(heap)
        if -gain != gains[v]:
            heapq.heappush(heap, (-gains[v], v))
            continue
        chosen.append(v)
        del gains[v]
        for w in np.flatnonzero(similarities[v]):
            if w in gains:
                gains[w] -= 2 * similarities[v, w]
    return chosen


def greedi(similarities, weight, k, seed):
    """Every part chooses k; greedy chooses k of all of these."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(similarities)), PARTS)
    choices = [greedy(similarities, weight, k, [int(v) for v in part]) for part in parts]
    choices.append(greedy(similarities, weight, k, sorted(sum(choices, []))))
    return max(choices, key=lambda chosen: objective(similarities, weight, chosen) if len(chosen) == k else -np.inf)


class OurProgram:
    """vocabpipe select run in a folder with the files of an instance."""

    def __init__(self, program, folder, similarities):
        self.program, self.folder, self.samples = os.path.abspath(program), folder, len(similarities)
        ends = np.argwhere(np.triu(similarities))
        edges = np.column_stack([ends, similarities[ends[:, 0], ends[:, 1]]])
        np.save(folder + "/edges.npy", np.ascontiguousarray(edges))
        np.save(folder + "/utility.npy", similarities.sum(1))
        self.run("import", "--edges", "edges.npy", "--output", "graph", "--samples", self.samples)

    def run(self, *words):
        subprocess.run([self.program, "select", *map(str, words)], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def choose(self, weight, k, *flags):
        self.run("run", "--graph", "graph", "--utility", "utility.npy", "--subset-size", k, "--alpha", weight,
                 "--beta", 2, "--output", "subset", "--report", "report", *flags)
        if os.path.exists(self.folder + "/subset.npy"):
            os.remove(self.folder + "/subset.npy")
        self.run("export", "subset", "--output", "subset.npy")
        with open(self.folder + "/report") as file:
            self.seconds = sum(json.load(file)["seconds"].values())
        return np.load(self.folder + "/subset.npy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.path.join(HERE, "../build/bin/vocabpipe"))
    parser.add_argument("--samples", type=int, default=2000)
    options = parser.parse_args()
    similarities = instance(1, options.samples)
    n = len(similarities)
    # Compiles what apricot compiles at the first call.
    GraphCutSelection(2, metric="precomputed", alpha=2).fit(similarities[:8, :8])
    print("| weight | chosen | program | f / f of greedy | seconds |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ours = OurProgram(options.program, folder, similarities)
        wrong = 0
        for weight in (2, 4):
            for percent in (10, 50):
                k = n * percent // 100
                best = None

                def show(name, choose):
                    nonlocal best, wrong
                    begin = time.perf_counter()
                    chosen = np.asarray(choose(), dtype=int)
                    seconds = ours.seconds if name.startswith("vocabpipe") else time.perf_counter() - begin
                    wrong += len(set(chosen.tolist())) != k
                    value = objective(similarities, weight, chosen)
                    best = best or value
                    print(f"| {weight} | {percent} % | {name} | {value / best:.4f} | {seconds:.3f} |", flush=True)

                show("vocabpipe, 1 partition", lambda: ours.choose(weight, k))
                show("vocabpipe, 16 partitions, 8 rounds",
                     lambda: ours.choose(weight, k, "--partitions", PARTS, "--adaptive"))
                show("GreeDi, 16 parts", lambda: greedi(similarities, weight, k, 1))
                show("apricot, lazy", lambda: GraphCutSelection(
                    k, metric="precomputed", alpha=weight, optimizer="lazy").fit(similarities).ranking)
                cut = submodlib.GraphCutFunction(n, "dense", 1 / weight, ggsijs=similarities)
                show("submodlib, LazyGreedy", lambda: [v for v, _ in cut.maximize(
                    k, optimizer="LazyGreedy", show_progress=False)])
                show("at random", lambda: np.random.default_rng(2).permutation(n)[:k])
    print(f"choices that are not of k samples: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
