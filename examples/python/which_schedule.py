#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which schedule for my pass times? F, B, W of a stage and S of a vocabulary share, measured in your own trainer."""
import vocabpipe

RANKS, MICROBATCHES = 8, 32
FORWARD, BACKWARD, VOCABULARY = 1800, 3900, 900  # us, of a rank's layers, and of S, and T, of 1 / RANKS of the rows
costs = vocabpipe.Costs(FORWARD, BACKWARD, VOCABULARY, latency=10, hop=120, num_layers=32)

steps = []
for family in vocabpipe.families():
    for mode in ("none", "one_barrier", "two_barriers"):
        made = vocabpipe.schedule(family["name"], RANKS, MICROBATCHES, vocab_mode=mode, costs=costs)
        steps.append(vocabpipe.simulate(made, costs))
steps.sort(key=lambda step: step.step)
for step in steps[:10]:
    peak = step.rank_table()["peak_bytes"].max() / 2**30
    print(f"{step.step / 1000:7.1f} ms  {100 * step.bubble:5.1f} %  {peak:6.1f} GiB  {step.title}")
plain = next(step for step in steps if step.title.startswith("1f1b none"))
vocabpipe.to_svg([plain, steps[0]], "which_schedule.svg", "1F1B, and the fastest", critical_path=True)
