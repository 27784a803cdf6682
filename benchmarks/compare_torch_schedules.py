#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""VocabPipe's schedule files against those of torch.distributed.pipelining.

    compare_torch_schedules.py [--vocabpipe build/bin/vocabpipe] [--write FOLDER]

Needs PyTorch (`pip install torch`), no GPU. PyTorch's own generators make schedules over ranks,
microbatches and stages per rank; PyTorch writes them as compute and as lowered files, with its
lowering's defaults and with other options; `vocabpipe schedule convert` reads every one. The other
way round, PyTorch reads what `vocabpipe schedule show` and `convert` write, lowers it, and its
simulator runs it. Columns of the table:

cases    schedules
passes   of them those whose compute file is read and written again with the same passes
lowered  whose lowered file, made by VocabPipe from the compute file, is PyTorch's cell by cell
options  lowered files with other options that are read with the same passes, of how many
back     that PyTorch reads from VocabPipe's compute and lowered file; its simulator ends
list     for which `vocabpipe schedule show` makes the same list

Ends with 1 if anything but `list` is less than it could be. --write keeps the smallest lowered file
of every family, for tests/schedule/files/data.
"""
import argparse
import csv
import os
import subprocess
import sys
import tempfile

import torch
from torch.distributed.pipelining import schedules as torch_schedules

RUNTIME = torch_schedules._PipelineScheduleRuntime
COMPUTE = "compute_only"
LOWERED = "compute_comms"
# Of the lowering: each must leave the passes as they are.
OTHER_OPTIONS = [
    {"defer_pp_recv": True},
    {"max_active_stages": 2},
    {"unshard_lookahead": "auto"},
    {"defer_reduce_grad_wait": True},
    {"max_outstanding_sends": 2},
    {"defer_pp_recv": True, "max_outstanding_sends": 4},
]
# Our name, PyTorch's class, stages per rank, the microbatches per rank that it takes.
FAMILIES = [
    ("gpipe", torch_schedules.ScheduleGPipe, [1], 1),
    ("looped-bfs", torch_schedules.ScheduleLoopedBFS, [2, 3], 1),
    ("interleaved", torch_schedules.ScheduleInterleaved1F1B, [2, 3], 1),
    ("interleaved-zb", torch_schedules.ScheduleInterleavedZeroBubble, [2, 3], 1),
    ("zb-v", torch_schedules.ScheduleZBVZeroBubble, [2], 2),
    ("dualpipe-v", torch_schedules.ScheduleDualPipeV, [2], 2),
]
# Families of which PyTorch makes no list that it takes itself (of 1F1B the last rank's begins a
# backward before its forward; its executor runs other code), with their stages per rank.
OURS = [("1f1b", 1), ("eager-1f1b", 1), ("zb-h1", 1), ("zb-h2", 1), ("group-interleaved", 2), ("v-half", 2),
        ("v-min", 2), ("v-1f1b", 2), ("v-search", 2)]


class Stage:
    """What the constructors of schedules ask of a stage."""

    def __init__(self, rank, index, ranks, stages):
        self.group_rank = rank
        self.group_size = ranks
        self.stage_index = index
        self.num_stages = stages
        self.is_first = index == 0
        self.is_last = index == stages - 1
        self.has_backward = True
        self.submod = torch.nn.Identity()
        self.stage_index_to_group_rank = None


def stages_of_rank_0(ranks, chunks):
    return [Stage(0, chunk * ranks, ranks, ranks * chunks) for chunk in range(chunks)]


def runtime(ranks, chunks, microbatches, **options):
    return RUNTIME(stages_of_rank_0(ranks, chunks), microbatches, **options)


def lists_by_torch(generator, ranks, chunks, microbatches):
    """Passes and idle steps of every rank, as PyTorch's generator makes them."""
    if issubclass(generator, torch_schedules.PipelineScheduleSingle):
        made = generator(stages_of_rank_0(ranks, 1)[0], microbatches)
        order = made._get_pipeline_order()
    else:
        order = generator(stages_of_rank_0(ranks, chunks), microbatches).pipeline_order
    return {rank: [a for a in actions if a is None or a.is_compute_op]
            for rank, actions in order.items()}


def lowered_by_torch(lists, ranks, chunks, microbatches, **options):
    made = runtime(ranks, chunks, microbatches, **options)
    made.pipeline_order = {rank: list(actions) for rank, actions in lists.items()}
    made._prepare_schedule_with_comms(made.pipeline_order)
    return made


def rows_of(path):
    with open(path, newline="") as file:
        return [[cell for cell in row if cell] for row in csv.reader(file)]


class Tool:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments):
        done = subprocess.run([self.program, "schedule", *map(str, arguments)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            print("#", " ".join(map(str, arguments)), done.stderr.strip(), file=sys.stderr)
        return done.stdout if done.returncode == 0 else None

    def convert(self, source, target, *options):
        return self.run("convert", source, target, *options) is not None


def torch_runs(path, ranks, chunks, microbatches):
    """Whether PyTorch reads a lowered file cell by cell, and its simulator ends. The simulator knows
    neither weights' cells nor pairs."""
    made = runtime(ranks, chunks, microbatches)
    made._load_csv(path, format=LOWERED)
    for rank, row in enumerate(rows_of(path)):
        if [str(action) for action in made.pipeline_order_with_comms[rank]] != row:
            return False
    order = made.pipeline_order_with_comms
    if any(action.sub_actions for actions in order.values() for action in actions):
        return True
    weights = ("UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD")
    made.pipeline_order_with_comms = {
        rank: [a for a in actions if a.computation_type.value not in weights]
        for rank, actions in order.items()}
    made._simulate()
    return True


class Counts:
    def __init__(self):
        self.cases = self.passes = self.lowered = self.back = self.list = 0
        self.options = self.all_options = 0

    def complete(self):
        return (self.passes == self.lowered == self.back == self.cases
                and self.options == self.all_options)


def compare_lowered(tool, folder, made, lists, size, counts, keep=None):
    """Both ways for one schedule: `made` is PyTorch's lowering with the defaults, `lists` its
    passes."""
    ranks, chunks, microbatches = size
    compute, lowered = os.path.join(folder, "compute.csv"), os.path.join(folder, "lowered.csv")
    again, ours = os.path.join(folder, "again.csv"), os.path.join(folder, "ours.csv")
    passes = [[str(action) for action in lists[rank] if action] for rank in range(ranks)]
    made._dump_csv(compute, format=COMPUTE)
    made._dump_csv(lowered, format=LOWERED)
    counts.cases += 1
    counts.passes += tool.convert(compute, again) and rows_of(again) == passes
    if tool.convert(compute, ours, "--output-dialect", "lowered"):
        with open(ours, "rb") as a, open(lowered, "rb") as b:
            counts.lowered += a.read() == b.read()
        read = runtime(ranks, chunks, microbatches)
        read._load_csv(again, format=COMPUTE)
        same = read.pipeline_order_with_comms == made.pipeline_order_with_comms
        counts.back += same and torch_runs(ours, ranks, chunks, microbatches)
    if keep:
        os.makedirs(os.path.dirname(keep), exist_ok=True)
        with open(lowered, "rb") as source, open(keep, "wb") as target:
            target.write(source.read())
    for options in [{}] + OTHER_OPTIONS:
        try:
            other = lowered_by_torch(lists, ranks, chunks, microbatches, **options)
        except ValueError:  # PyTorch refuses the option for this schedule
            continue
        other._dump_csv(lowered, format=LOWERED)
        counts.all_options += 1
        counts.options += tool.convert(lowered, again) and rows_of(again) == passes


def torch_family(tool, folder, family, write):
    name, generator, all_chunks, per_rank = family
    counts = Counts()
    for ranks in (2, 3, 4, 8):
        for microbatches in (per_rank * ranks, 2 * per_rank * ranks, 3 * per_rank * ranks):
            for chunks in all_chunks:
                size = (ranks, chunks, microbatches)
                lists = lists_by_torch(generator, *size)
                made = lowered_by_torch(lists, *size)
                keep = None
                if write and counts.cases == 0:
                    keep = os.path.join(write, "torch_%s.csv" % name.replace("-", "_"))
                compare_lowered(tool, folder, made, lists, size, counts, keep)
                options = ["--chunks", chunks] if len(all_chunks) > 1 else []
                text = tool.run("show", name, "--pp", ranks, "--microbatches", microbatches,
                                "--format", "csv", *options)
                passes = [",".join(str(a) for a in lists[r] if a) for r in range(ranks)]
                counts.list += text is not None and text.split() == passes
    return counts


def our_family(tool, folder, name, chunks):
    counts = Counts()
    for ranks in (2, 4, 8):
        for microbatches in (ranks, 2 * ranks, 3 * ranks + 1):
            if name == "group-interleaved" and microbatches % ranks:
                continue
            size = (ranks, chunks, microbatches)
            path = os.path.join(folder, "shown.csv")
            with open(path, "w", newline="") as file:
                file.write(tool.run("show", name, "--pp", ranks, "--microbatches", microbatches,
                                    "--format", "csv") or "")
            made = runtime(*size)
            made._load_csv(path, format=COMPUTE)
            lists = made.pipeline_order
            compare_lowered(tool, folder, made, lists, size, counts)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocabpipe", default="build/bin/vocabpipe", help="the program")
    parser.add_argument("--write", help="folder for the smallest lowered file of every family")
    arguments = parser.parse_args()
    tool = Tool(arguments.vocabpipe)
    print("PyTorch", torch.__version__.split("+")[0])
    print("| family | cases | passes | lowered | options | back | list |")
    print("|---|---|---|---|---|---|---|")
    complete = True
    with tempfile.TemporaryDirectory() as folder:
        rows = [(family[0], torch_family(tool, folder, family, arguments.write))
                for family in FAMILIES]
        rows += [(name + " (ours)", our_family(tool, folder, name, chunks))
                 for name, chunks in OURS]
    for name, counts in rows:
        mine = name.endswith("(ours)")
        complete = complete and counts.complete()
        print("| %s | %d | %d | %d | %d of %d | %d | %s |" % (
            name, counts.cases, counts.passes, counts.lowered, counts.options, counts.all_options,
            counts.back, "-" if mine else counts.list))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
