#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pass times for vocabpipe --pass-times from traces of torch.profiler, one of every rank, in order:

    pass_times_from_torch.py TRACE... >times.csv

The schedules of torch.distributed.pipelining with several stages per rank, and those that run a
CSV file, name every pass in the trace: "PP:2F0" is F of microbatch 0 on stage 2. The time of a pass
is the median of what its kernels took on the GPU. Without a GPU it is the shortest time on the CPU,
because the others contain waiting for what the pass receives.
"""
import collections
import json
import re
import statistics
import sys

PASS = re.compile(r"PP:(\d+)(F|B|I|W)\d+$")


def times_of(events, category):
    times = collections.defaultdict(list)
    for event in events:
        found = PASS.match(event.get("name", ""))
        if found and event.get("cat") == category and "dur" in event:
            times[int(found[1]), found[2]].append(event["dur"] * 1000)  # us
    return times


def main():
    if len(sys.argv) < 2:
        sys.exit("pass_times_from_torch.py: needs a trace of every rank; use TRACE...")
    rows = []
    for rank, path in enumerate(sys.argv[1:]):
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        on_gpu = times_of(events, "gpu_user_annotation")
        times = on_gpu or times_of(events, "user_annotation")
        if not times:
            sys.exit(f"{path}: has no pass such as PP:0F0; use a schedule of several stages per rank, or of a CSV file")
        typical = statistics.median if on_gpu else min
        for (stage, op), values in sorted(times.items()):
            rows.append(f"{rank},{op},{stage},{max(1, round(typical(values)))}")
    print("rank,op,stage,ns", *rows, sep="\n")


if __name__ == "__main__":
    main()
