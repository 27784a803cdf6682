# SPDX-License-Identifier: Apache-2.0
"""Schedules for torch.distributed.pipelining, whose runtime loads files with the communication in them.

    from vocabpipe.torch import schedule
    step = schedule(vocabpipe.schedule("zb-h1", ranks=4, microbatches=8), stages, loss_fn)
    step.step(inputs)                        # on the rank of the first stage
    step.step(target=labels, losses=losses)  # on the rank of the last one

The stages are torch's PipelineStage objects of this rank, in ascending order of their stage_index, on the ranks that
`schedule.rank_of_stage` says. PyTorch's first and last stage contain the embedding and the output layer, so sharded
vocabulary modes, which torch cannot run, raise UsageError.
"""
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from . import Schedule, UsageError, to_torch_csv


def schedule(made: Schedule, stages: list[Any], loss_fn: Callable[..., Any] | None = None, **options: Any):
    """The runtime of torch.distributed.pipelining with the passes and the messages of `made` loaded.

    stages      this rank's PipelineStage objects
    options     of torch's runtime, such as scale_grads

    Raises UsageError if the stages are not those that the schedule puts on this rank.
    """
    rank = stages[0].group_rank
    expected = [stage for stage, on in enumerate(made.rank_of_stage) if on == rank]
    given = [stage.stage_index for stage in stages]
    if given != expected:
        raise UsageError(f"stages {given}: the schedule puts stages {expected} on rank {rank}")
    runtime = _PipelineScheduleRuntime(stages, made.microbatches, loss_fn=loss_fn, **options)
    # torch reads files only.
    file, path = tempfile.mkstemp(suffix=".csv")
    os.close(file)
    try:
        to_torch_csv(made, path)
        runtime._load_csv(path, format="compute_comms")
    finally:
        os.unlink(path)
    return runtime
