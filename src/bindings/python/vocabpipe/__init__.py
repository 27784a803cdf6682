# SPDX-License-Identifier: Apache-2.0
"""Schedules of pipeline-parallel training with vocabulary parallelism: made, proved, simulated, explained, planned.

    import vocabpipe

    schedule = vocabpipe.schedule("1f1b", ranks=4, microbatches=8, vocab_mode="one_barrier")
    step = vocabpipe.simulate(schedule)
    print(step.bubble, step.explain())

In a notebook, schedules and steps draw themselves. Tables are dictionaries of columns of one length, numpy arrays
where they hold numbers: `pandas.DataFrame(step.span_table())` takes them as they are. Times are in the unit of the
costs, or in nanoseconds where the costs are; memory is in bytes.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import _core
from ._core import (
    Error,
    InputFileError,
    OutOfMemoryError,
    OutputFileError,
    Pass,
    Plan,
    Schedule,
    ScheduleError,
    Timeline,
    UsageError,
    Violation,
)
from ._drawing import draw_itself

__version__ = _core.__version__
__all__ = [
    "Costs", "Error", "InputFileError", "OutOfMemoryError", "OutputFileError", "Pass", "Plan", "Schedule",
    "ScheduleError", "Timeline", "UsageError", "Violation", "explain", "families", "from_json", "from_torch_csv",
    "gpus", "insert_vocabulary", "models", "plan", "read_trace", "schedule", "simulate", "to_html", "to_json", "to_svg",
    "to_torch_csv", "user_schedule", "validate",
]


class Costs(_core.Costs):
    """What passes and messages cost, and the sizes of the model that memory is computed from.

    forward, backward   integers: F and B of an average rank's layers, in any unit. Without them: FLOPs of a GPT with
                        `num_layers`, `hidden_size` and `seq_length` (GPT-3 175B without any), of which F of a layer
                        costs 12
    vocabulary          S, and T, of an even share of the vocabulary; E and G cost a quarter. Default: forward / 3
    pass_times          measured times in nanoseconds instead: a table with columns rank, op, stage (-1 or "-" for
                        passes without one) and ns, as a dictionary of columns or a pandas.DataFrame
    latency             of every message
    hop                 a boundary to the next rank, on top of the latency
    seq_length, micro_batch_size, hidden_size, num_layers   sizes; with figures only memory depends on them
    """

    def __init__(
        self,
        forward: int | None = None,
        backward: int | None = None,
        vocabulary: int | None = None,
        *,
        pass_times: Any = None,
        latency: int = 0,
        hop: int = 0,
        num_layers: int = 0,
        hidden_size: int = 0,
        seq_length: int = 2048,
        micro_batch_size: int = 1,
    ) -> None:
        if (forward is None) != (backward is None) or (forward is None and vocabulary is not None):
            raise UsageError("forward, backward: give both, or neither and no vocabulary")
        if forward is not None and pass_times is not None:
            raise UsageError("forward, backward: pass_times says what passes take; give one of them")
        figures = [figure for figure in (forward, backward, vocabulary) if figure is not None]
        super().__init__(",".join(str(figure) for figure in figures), _pass_times_csv(pass_times), latency, hop,
                         num_layers, hidden_size, seq_length, micro_batch_size)


def _pass_times_csv(table: Any) -> str:
    if table is None:
        return ""
    columns = ("rank", "op", "stage", "ns")
    for name in columns:
        if name not in table:
            raise UsageError(f"pass_times: has no column {name}; it needs {', '.join(columns)}")
    rows = zip(*(list(table[name]) for name in columns), strict=True)
    lines = [",".join(columns)]
    for rank, op, stage, ns in rows:
        lines.append(f"{rank},{op},{'-' if stage in (-1, '-', None) else stage},{ns}")
    return "\n".join(lines) + "\n"


def families() -> list[dict[str, Any]]:
    """Every family of schedules: name, summary, placement of its stages, stages per rank (chunks)."""
    return _core.families()


def schedule(
    name: str,
    ranks: int,
    microbatches: int,
    *,
    vocab_mode: str = "none",
    vocab_size: int = 0,
    costs: Costs | None = None,
    recompute: str = "none",
    chunks: int = 0,
    warm_up_depth: int = 0,
    group_size: int = 0,
    memory_limit: int = 0,
    broadcast_margin: int = 0,
    search_moves: int = 0,
    overlap_pairs: bool = False,
    forward_only: bool = False,
) -> Schedule:
    """The schedule of a family (families()), with the passes of the vocabulary.

    vocab_mode      none, redistributed, interlaced, one_barrier (the paper's Vocab-2) or two_barriers (Vocab-1)
    vocab_size      rows to share; 0: those of the model that the costs are of
    costs           what the order of passes is made for; default: Costs()
    recompute       none, selective or full: activations that an R before each backward makes again
    chunks          stages per rank; 0: the family's own. The other numbers are parameters of rules, 0: their defaults
    search_moves    moves of a local search for a shorter step, after the rule
    overlap_pairs   forwards and the backwards beside them as overlapped pairs (Megatron's combined 1F1B)
    forward_only    evaluation: F, E and S alone

    Raises UsageError naming the argument.
    """
    return _core.schedule(name, ranks, microbatches, vocab_mode, vocab_size, chunks, warm_up_depth, group_size,
                          memory_limit, broadcast_margin, search_moves, overlap_pairs, recompute, forward_only,
                          costs or Costs())


def user_schedule(
    passes: Iterable[Iterable[Sequence[Any] | Pass]],
    *,
    name: str = "user",
    vocab_size: int = 0,
    barriers: str = "in_line",
) -> Schedule:
    """A schedule of your own: passes[rank] yields what the rank runs, in order, each as (op, stage, microbatch).

    Vocabulary passes have no stage: ("S", None, 3). A fourth entry True makes the pass and the next one an overlapped
    pair. Lists without vocabulary passes get them by insert_vocabulary(); lists with them need `vocab_size`, shared
    evenly by the ranks that run them, and `barriers`: in_line, one or two.

    Raises ScheduleError naming rank, position and pass if the schedule cannot run: the proof that built-in families
    pass, too.
    """
    lists = [[_pass_tuple(entry) for entry in of_rank] for of_rank in passes]
    return _core.user_schedule(lists, name, vocab_size, barriers)


def _pass_tuple(entry: Any) -> tuple[str, int, int, bool]:
    if isinstance(entry, Pass):
        entry = (entry.op, entry.stage, entry.microbatch, entry.with_next)
    op, stage, microbatch, *with_next = entry
    return str(op), 0 if stage is None else int(stage), int(microbatch), bool(with_next and with_next[0])


def insert_vocabulary(
    base: Schedule,
    vocab_mode: str = "one_barrier",
    *,
    vocab_size: int = 0,
    costs: Costs | None = None,
    search_moves: int = 0,
) -> Schedule:
    """`base`, whose passes are those of the transformer, with E, S, T and G where they delay it least."""
    return _core.insert_vocabulary(base, vocab_mode, vocab_size, search_moves, costs or Costs())


def validate(schedule: Schedule) -> None:
    """Raises ScheduleError with rank, position, pass and reason if the schedule cannot run. `schedule.violation()`
    returns the same as a value, or None."""
    violation = schedule.violation()
    if violation is not None:
        raise ScheduleError(str(violation))


def to_torch_csv(schedule: Schedule, path: str | os.PathLike | None = None, *, lowered: bool = True) -> str:
    """The schedule as torch.distributed.pipelining reads it; lowered: with its communication. Also writes `path`."""
    text = schedule.text("lowered" if lowered else "new")
    if path is not None:
        with open(path, "w", newline="", encoding="utf-8") as file:
            file.write(text)
    return text


def from_torch_csv(text_or_path: str | os.PathLike, *, dialect: str = "new") -> Schedule:
    """A schedule from PyTorch's CSV, with or without communication: text that has a comma, or the path of a file.

    dialect     new; old: of PyTorch before I and B had their meaning of today; auto: either
    """
    text = os.fspath(text_or_path)
    name = "torch"
    if "," not in text and "\n" not in text:
        name = os.path.basename(text)
        with open(text_or_path, newline="", encoding="utf-8") as file:
            text = file.read()
    return _core.parse_schedule(text, name, dialect)


def to_json(schedule: Schedule) -> str:
    """The schedule as versioned JSON, which `vocabpipe` and `train_gpt --schedule FILE.json` read, too."""
    return schedule.text("json")


def from_json(text: str, name: str = "json") -> Schedule:
    """The schedule that to_json() printed."""
    return _core.parse_schedule(text, name, "json")


def simulate(
    schedule: Schedule,
    costs: Costs | None = None,
    *,
    wait_for_reports: bool = True,
    cores: int = 0,
    receive_ahead: int | str = "auto",
    tile_pieces: int | str = "auto",
) -> Timeline:
    """Runs the schedule in simulated time, with its messages, collectives and memory, as `vocabpipe simulate` does.

    wait_for_reports    the optimizer step waits for the norms and the loss of every rank
    cores               that all ranks share; 0: each has its own
    receive_ahead       passes that a receive is posted before the one that needs it
    tile_pieces         pieces in which boundaries travel
    """
    return _core.simulate(schedule, costs or Costs(), wait_for_reports, cores, str(receive_ahead), str(tile_pieces))


def read_trace(path: str | os.PathLike) -> Timeline:
    """The step of a Chrome trace that `train_gpt --trace-dir` or Timeline.write_chrome_trace() wrote."""
    return _core.read_chrome_trace(os.fspath(path))


def explain(step: Timeline | str | os.PathLike, rank: int | None = None, at: float | None = None) -> str:
    """Where the time of a step went, as text; with rank and time, what the rank did then, or what it waited for."""
    if not isinstance(step, Timeline):
        step = read_trace(step)
    return step.explain(rank=rank, at=at)


def to_html(step: Timeline | Sequence[Timeline], path: str | os.PathLike, title: str = "") -> None:
    """Writes a page with the steps on one time axis: lanes, memory, and what every pass waited for."""
    steps = [step] if isinstance(step, Timeline) else list(step)
    _core.write_html(steps, os.fspath(path), title or (steps[0].title if steps else ""))


def to_svg(step: Timeline | Sequence[Timeline], path: str | os.PathLike, title: str = "", *,
           critical_path: bool = False) -> None:
    """Writes a picture for documents with the steps on one time axis."""
    steps = [step] if isinstance(step, Timeline) else list(step)
    _core.write_svg(steps, os.fspath(path), title, critical_path)


def models() -> list[str]:
    """Models that plan() knows by name."""
    return _core.models().split(", ")


def gpus() -> list[str]:
    """GPUs that plan() knows by name."""
    return _core.gpus().split(", ")


def plan(
    model: str | os.PathLike = "",
    gpu: str | os.PathLike = "",
    gpus: int = 1,
    *,
    global_batch_size: int,
    seq_length: int = 0,
    vocab_size: int | None = None,
    tensor: Sequence[int] = (),
    context: Sequence[int] = (),
    pipeline: Sequence[int] = (),
    data: Sequence[int] = (),
    expert: Sequence[int] = (),
    expert_tensor: Sequence[int] = (),
    micro_batch_size: Sequence[int] = (),
    recompute: Sequence[str] = (),
    schedules: Sequence[str] = (),
    vocab_modes: Sequence[str] = (),
    chunks: Sequence[int] = (),
    overlap_pairs: bool = False,
    memory_gib: float | None = None,
    moe_imbalance: float = 1.0,
    all_sizes: bool = False,
    best: int = 15,
    profile: str | os.PathLike = "",
) -> Plan:
    """Predicts step time, MFU and memory of every schedule and vocabulary mode, as `vocabpipe plan` does.

    model, gpu          names (models(), gpus()) or files: a Hugging Face config.json, a hardware file
    gpus                ranks; seq_length in tokens, global_batch_size in sequences
    tensor ... chunks   lists of alternatives; every combination is a row. all_sizes: all that the GPUs, the model and
                        the batch allow, of those that are not given
    overlap_pairs       candidates that can have overlapped pairs have them (make_schedule())
    profile             of `vocabpipe profile`, in place of model, gpu and seq_length

    plan(...).table() has a row per candidate, best first; its columns have the names of `vocabpipe plan --json`.
    """
    return _core.plan(os.fspath(model), os.fspath(gpu), os.fspath(profile), gpus, global_batch_size, seq_length,
                      vocab_size, list(tensor), list(context), list(pipeline), list(data), list(expert),
                      list(expert_tensor), list(micro_batch_size), list(recompute), list(schedules),
                      list(vocab_modes), list(chunks), overlap_pairs, memory_gib, moe_imbalance, all_sizes, best)


draw_itself(Timeline, lambda step: step.page())
draw_itself(Schedule, lambda made: simulate(made).page())
draw_itself(Plan, lambda made: made.page())
