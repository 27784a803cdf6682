#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far replays of recorded steps are from what was measured.

    replay_errors.py VOCABPIPE FILE... [--replicas N] [--microbatches N]

VOCABPIPE explains every step of a run (files of one run, as `vocabpipe explain` takes them). Prints the median and the
largest absolute error in percent: with the time of every pass and of the gap before it, with the mean of each kind of
pass, and without the gaps.
"""
import argparse
import re
import statistics
import subprocess

PATTERNS = {"own": r"\(([-+][0-9.]+) %\) with the time of every pass",
            "mean": r"\(([-+][0-9.]+) %\) with the mean of each kind",
            "no gaps": r"without these gaps: [^(]*\(([-+][0-9.]+) %\)"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="VOCABPIPE")
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--replicas", type=int, default=1, help="replicas of the run to take")
    parser.add_argument("--microbatches", help="of a step, where the files do not say it")
    options = parser.parse_args()
    microbatches = ["--microbatches", options.microbatches] if options.microbatches else []
    errors = {name: [] for name in PATTERNS}
    for replica in range(options.replicas):
        step, steps = 0, 1
        while step < steps:
            text = " ".join(subprocess.run(
                [options.program, "explain", *options.files, "--step", str(step), "--replica", str(replica),
                 *microbatches],
                check=True, capture_output=True, text=True).stdout.split())
            steps = int(re.search(r"step \d+ of (\d+)", text)[1])
            for name, pattern in PATTERNS.items():
                errors[name].append(abs(float(re.search(pattern, text)[1])))
            step += 1
    cells = [f"{name} {statistics.median(values):.1f} % (largest {max(values):.1f})" for name, values in errors.items()]
    print(f"{len(errors['own'])} steps: {', '.join(cells)}")


if __name__ == "__main__":
    main()
