#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces of torch.profiler from runs of torch.distributed.pipelining on gloo, one file of every rank.

    make_torch_traces.py VOCABPIPE FOLDER [--runs gpipe-2,1f1b-2,...] [--steps 2] [--width 512] [--rows 32]

VOCABPIPE is the program that prints the schedules. The files keep the events that imports read, and what the traces
say about rank, host and clock; everything else of them is left out. The files in data/ were made this way. Needs the
package torch (PyPI), no GPU.
"""
import argparse
import gzip
import json
import os
import re
import socket
import subprocess

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

MICROBATCHES = 8
WARM_UP_STEPS = 3
STAGES_PER_RANK = {"interleaved": 2, "interleaved-zb": 2}
KEPT = re.compile(r"PP:\d+([FBIW]|RECV_[FB]|SEND_[FB])\d+$|(Forward|Backward) \d+$|gloo:recv$|c10d::send$")


def listed(program, name, ranks):
    """The schedule as PyTorch's CSV; none for its own GPipe."""
    if name == "gpipe":
        return None
    chunks = ["--chunks", str(STAGES_PER_RANK[name])] if name in STAGES_PER_RANK else []
    return subprocess.run([program, "schedule", "show", name, "--pp", str(ranks), "--microbatches",
                           str(MICROBATCHES), "--format", "csv", *chunks], check=True, capture_output=True,
                          text=True).stdout


def mean_square(output, target):
    return ((output - target) ** 2).mean()


def run_rank(rank, ranks, port, name, csv, folder, options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    count = ranks * STAGES_PER_RANK.get(name, 1)
    own = range(rank, count, ranks)
    torch.manual_seed(1)
    width = options.width
    modules = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width))
               for _ in range(count)]
    stages = [PipelineStage(modules[stage], stage, count, torch.device("cpu")) for stage in own]
    if csv is None:
        schedule = ScheduleGPipe(stages[0], MICROBATCHES, loss_fn=mean_square)
    else:
        schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=mean_square)
        schedule._load_csv(csv, format="compute_only")
    inputs, target = (torch.randn(options.rows * MICROBATCHES, width) for _ in range(2))

    def step():
        last = count - 1 in own
        schedule.step(*([inputs] if 0 in own else []), **({"target": target, "losses": []} if last else {}))
        dist.barrier()

    for _ in range(WARM_UP_STEPS):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(options.steps):
            step()
    whole = os.path.join(folder, f"{name}-{ranks}-rank{rank}.whole.json")
    profiler.export_chrome_trace(whole)
    with open(whole, encoding="utf-8") as file:
        trace = json.load(file)
    os.remove(whole)
    events = [{key: event[key] for key in ("ph", "cat", "name", "ts", "dur")}
              for event in trace["traceEvents"] if event.get("ph") == "X" and KEPT.match(event["name"])]
    kept = {"distributedInfo": {"rank": rank, "world_size": ranks}, "host_name": trace["host_name"],
            "baseTimeNanoseconds": trace["baseTimeNanoseconds"], "traceEvents": events}
    with gzip.GzipFile(os.path.join(folder, f"{name}-{ranks}-rank{rank}.json.gz"), "wb", mtime=0) as file:
        file.write(json.dumps(kept).encode())
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="VOCABPIPE")
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--runs", default="gpipe-2,1f1b-2,interleaved-2,1f1b-4,zb-h1-4,interleaved-zb-4",
                        help="schedules and their ranks, separated by commas")
    parser.add_argument("--steps", type=int, default=2, help="steps to record")
    parser.add_argument("--width", type=int, default=512, help="columns of the model's layers")
    parser.add_argument("--rows", type=int, default=32, help="rows of a microbatch")
    options = parser.parse_args()
    for run in options.runs.split(","):
        name, ranks = run.rsplit("-", 1)
        csv = listed(options.program, name, int(ranks))
        path = None
        if csv is not None:
            path = os.path.join(options.folder, f"{run}.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write(csv)
        multiprocessing.spawn(run_rank, (int(ranks), free_port(), name, path, options.folder, options), int(ranks))
        if path is not None:
            os.remove(path)


if __name__ == "__main__":
    main()
