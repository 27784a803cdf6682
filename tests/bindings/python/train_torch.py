#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model in torch.distributed.pipelining under schedules of the package vocabpipe, on gloo.

    train_torch.py [--ranks 2,4] [--steps 3]

For every schedule and number of ranks, prints the largest difference between the losses of all steps and those of
one process without a pipeline. Needs the packages vocabpipe and torch (PyPI), no GPU. Ends with 1 if a loss differs
by more than rounding.
"""
import argparse
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.pipelining import PipelineStage

import vocabpipe
import vocabpipe.torch

# Stages per rank of families with any number of them.
SCHEDULES = {"gpipe": 1, "1f1b": 1, "eager-1f1b": 1, "zb-h1": 1, "interleaved": 2, "interleaved-zb": 2, "v-half": 2,
             "zb-v": 2, "looped-bfs": 2, "dualpipe-v": 2}
MICROBATCHES = 8
ROWS = 16  # of a step
WIDTH = 24
TOLERANCE = 1e-12  # fp64; sums over microbatches have another order
TIMEOUT_S = 300


def layers(stages):
    """The model, one layer per stage."""
    torch.manual_seed(1)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double() for _ in range(stages)]


def batch(step):
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=generator) for _ in range(2)]


def mean_square(output, target):
    return ((output - target) ** 2).mean()


def losses_of_one_process(stages, steps):
    model = torch.nn.Sequential(*layers(stages))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    result = []
    for step in range(steps):
        inputs, target = batch(step)
        loss = mean_square(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


def losses_of_rank(rank, ranks, steps, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for name, chunks in SCHEDULES.items():
        made = vocabpipe.schedule(name, ranks, MICROBATCHES, chunks=chunks)
        own = [stage for stage in range(made.stages) if made.rank_of_stage[stage] == rank]
        modules = layers(made.stages)
        stages = [PipelineStage(modules[stage], stage, made.stages, torch.device("cpu")) for stage in own]
        runtime = vocabpipe.torch.schedule(made, stages, mean_square)
        optimizer = torch.optim.SGD([value for stage in own for value in modules[stage].parameters()], lr=0.1)
        for step in range(steps):
            inputs, target = batch(step)
            losses = []
            optimizer.zero_grad()
            runtime.step(*([inputs] if 0 in own else []),
                         **({"target": target, "losses": losses} if made.stages - 1 in own else {}))
            optimizer.step()
            if made.stages - 1 in own:
                results.put((name, torch.stack(losses).mean().item()))
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, separated by commas")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    wrong = 0
    print(f"{'ranks':>5}  {'schedule':16}  {'stages':>6}  {'last loss':>18}  {'difference':>10}")
    for ranks in [int(text) for text in options.ranks.split(",")]:
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        run = multiprocessing.spawn(losses_of_rank, (ranks, options.steps, free_port(), results), ranks, join=False)
        losses = {}
        for _ in range(len(SCHEDULES) * options.steps):
            name, loss = results.get(timeout=TIMEOUT_S)
            losses.setdefault(name, []).append(loss)
        for _ in range(ranks):
            run.join(TIMEOUT_S)
        for name, chunks in SCHEDULES.items():
            stages = vocabpipe.schedule(name, ranks, MICROBATCHES, chunks=chunks).stages
            expected = losses_of_one_process(stages, options.steps)
            difference = max(abs(a - b) for a, b in zip(losses[name], expected, strict=True))
            wrong += difference > TOLERANCE
            print(f"{ranks:5}  {name:16}  {stages:6}  {expected[-1]:18.15f}  {difference:10.1e}")
    print(f"#wrong {wrong}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
