#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Timers and spans of Megatron-Core's pipelines on gloo: what Megatron-LM logs, and the same ranges as OTLP JSON.

    make_megatron_runs.py FOLDER [--ranks 2,4] [--steps 4] [--width 512] [--rows 32]

Megatron-Core's own schedule, messages and timers run on the CPU; only the device is replaced. A range of a timer is
also a span of OpenTelemetry's SDK, written by its exporter of files. The files in data/ were made this way. Needs the
packages torch, megatron-core and opentelemetry-exporter-otlp-json-file (PyPI), no GPU.
"""
import argparse
import gzip
import logging
import os
import socket
import tempfile
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from megatron.core import parallel_state
from megatron.core import timers as megatron_timers
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel.schedules import forward_backward_pipelining_without_interleaving
from megatron.core.transformer import TransformerConfig
from opentelemetry import trace
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

MICROBATCHES = 8
WARM_UP_STEPS = 3
LOGGED = ["forward-compute", "backward-compute", "forward-recv", "forward-send", "backward-recv", "backward-send",
          "forward-send-backward-recv", "backward-send-forward-recv", "forward-backward"]


class Stage(torch.nn.Module):
    """Two layers; Megatron-Core hands over its input by set_input_tensor()."""

    def __init__(self, config, first):
        super().__init__()
        self.config, self.first, self.received = config, first, None
        self.model_type = ModelType.encoder_or_decoder
        width = config.hidden_size
        self.layers = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width))

    def set_input_tensor(self, tensors):
        self.received = tensors[0]

    def forward(self, batch):
        return self.layers(batch if self.first else self.received)


class SpannedTimer(megatron_timers.Timer):
    """A timer of Megatron-Core whose ranges are spans, too."""

    def start(self, barrier=False):
        super().start(barrier)
        self.span = trace.get_tracer("megatron").start_span(self.name)

    def stop(self, barrier=False):
        self.span.end()
        super().stop(barrier)


def on_cpu(function):
    """The same, whatever device was asked for."""
    return lambda *sizes, **named: function(*sizes, **{**named, "device": "cpu"})


def run_rank(rank, ranks, meeting, folder, options):
    torch.set_num_threads(1)
    with mock.patch("torch.cuda.current_device", lambda: torch.device("cpu")), \
            mock.patch("torch.cuda.synchronize", lambda: None), mock.patch("torch.zeros", on_cpu(torch.zeros)), \
            mock.patch.object(megatron_timers, "Timer", SpannedTimer):
        dist.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=ranks)
        parallel_state.initialize_model_parallel(pipeline_model_parallel_size=ranks)
        train(rank, ranks, folder, options)
        dist.barrier()
        dist.destroy_process_group()


def train(rank, ranks, folder, options):
    config = TransformerConfig(num_layers=ranks, num_attention_heads=1, hidden_size=options.width,
                               pipeline_model_parallel_size=ranks, pipeline_dtype=torch.float32)
    stage = Stage(config, rank == 0)
    batch = torch.randn(options.rows, 1, options.width)

    def forward_step(_, model):
        return model(batch), lambda output: (((output - batch) ** 2).mean(), {})

    def step():
        forward_backward_pipelining_without_interleaving(
            forward_step_func=forward_step, data_iterator=None, model=stage, num_microbatches=MICROBATCHES,
            seq_length=options.rows, micro_batch_size=1, forward_only=False)

    for _ in range(WARM_UP_STEPS):
        step()
    name = os.path.join(folder, f"megatron-{ranks}")
    logging.getLogger("megatron.core.timers").setLevel(logging.INFO)
    logging.getLogger("megatron.core.timers").addHandler(logging.FileHandler(f"{name}.log", mode="w", delay=True))
    exporter = FileSpanExporter(f"{name}-rank{rank}.jsonl")
    provider = TracerProvider(resource=Resource({"rank": rank, "host.name": socket.gethostname()}))
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 20))
    trace.set_tracer_provider(provider)
    config.timers = megatron_timers.Timers(log_level=2, log_option="all")
    for _ in range(options.steps):
        dist.barrier()
        step()
        config.timers.log(LOGGED)
    provider.shutdown()
    with open(f"{name}-rank{rank}.jsonl", "rb") as spans, \
            gzip.GzipFile(f"{name}-rank{rank}.jsonl.gz", "wb", mtime=0) as packed:
        packed.write(spans.read())
    os.remove(f"{name}-rank{rank}.jsonl")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--ranks", default="2,4", help="ranks of the runs, separated by commas")
    parser.add_argument("--steps", type=int, default=4, help="steps to record")
    parser.add_argument("--width", type=int, default=512, help="columns of the model's layers")
    parser.add_argument("--rows", type=int, default=32, help="rows of a microbatch")
    options = parser.parse_args()
    for ranks in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory() as meeting:
            multiprocessing.spawn(run_rank, (ranks, meeting, options.folder, options), ranks)


if __name__ == "__main__":
    main()
