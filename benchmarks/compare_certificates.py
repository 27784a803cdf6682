#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How close the certificate of vocabpipe select run comes, by the number of its steps: the bound as a
multiple of the objective, beside that of the linear relaxation, which no number of steps gets below.

    python3 benchmarks/compare_certificates.py [PROGRAM]

The graph is that of tests/select/data (1500 samples in 40 clusters, 10 nearest neighbors). Needs
numpy and scipy.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../tests/select/data"))
import subset_oracles  # noqa: E402

STEPS = (1, 2, 4, 8, 16, 32)


def relaxed(problem, k):
    """max alpha u x - beta s y over 0 <= x <= 1, sum x = k, y >= 0, y >= x_v + x_w - 1."""
    n, m = problem.n, len(problem.edges)
    ends = np.array([edge[:2] for edge in problem.edges])
    rows = np.repeat(np.arange(m), 3)
    columns = np.column_stack([ends, n + np.arange(m)]).ravel()
    inside = coo_matrix((np.tile([1.0, 1.0, -1.0], m), (rows, columns)), shape=(m, n + m))
    count = coo_matrix((np.ones(n), (np.zeros(n, int), np.arange(n))), shape=(1, n + m))
    costs = np.concatenate([-problem.alpha * np.array(problem.u, float),
                            problem.beta * np.array([edge[2] for edge in problem.edges], float)])
    found = linprog(costs / subset_oracles.ONE, A_ub=inside.tocsr(), b_ub=np.ones(m),
                    A_eq=count.tocsr(), b_eq=[k], bounds=[(0, 1)] * n + [(0, None)] * m)
    return -found.fun * subset_oracles.ONE


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../build/bin/vocabpipe")
    program = os.path.abspath(program)
    print("| alpha, beta | chosen | objective |", " | ".join(map(str, STEPS)), "| relaxation |")
    print("|---" * (len(STEPS) + 4) + "|")
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            subprocess.run([program, "select", *map(str, words)], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for alpha, beta in ((9, 1), (1, 1)):
            problem = subset_oracles.generate(2024, 1500, 4, 40, 10, alpha, beta)
            edges = np.array(problem.edges, float)
            edges[:, 2] /= subset_oracles.ONE
            np.save(folder + "/edges.npy", edges)
            np.save(folder + "/u.npy", np.array(problem.u) / subset_oracles.ONE)
            run("import", "--edges", "edges.npy", "--output", "graph", "--samples", problem.n)
            for percent in (10, 50, 80):
                k = problem.n * percent // 100
                shares = []
                for steps in STEPS:
                    run("run", "--graph", "graph", "--utility", "u.npy", "--subset-size", k, "--alpha", alpha,
                        "--beta", beta, "--bounding", "off", "--certificate-steps", steps,
                        "--output", "subset", "--report", "report")
                    with open(folder + "/report") as file:
                        report = json.load(file)
                    shares.append(report["certificate"]["bound"] / abs(report["objective"]))
                shares.append(relaxed(problem, k) / abs(report["objective"]))
                print(f"| {alpha}, {beta} | {percent} % | {report['objective'] / subset_oracles.ONE:.0f} |",
                      " | ".join(f"{share:.3f}" for share in shares), "|")


if __name__ == "__main__":
    main()
