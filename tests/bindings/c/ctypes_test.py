#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C interface from Python's ctypes: families over vocabulary modes have the times of the command line.

    ctypes_test.py LIBRARY TOOL
"""
import ctypes
import json
import subprocess
import sys

LIBRARY, TOOL = ctypes.CDLL(sys.argv[1]), sys.argv[2]
LIBRARY.vp_last_error.restype = LIBRARY.vp_families.restype = ctypes.c_char_p


class Costs(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_int64)
        for name in ("forward", "backward", "vocabulary", "latency", "hop", "num_layers", "hidden_size", "seq_length",
                     "micro_batch_size")] + [("pass_times", ctypes.c_char_p)]


class ScheduleOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("ranks", ctypes.c_int32),
                ("microbatches", ctypes.c_int32), ("vocab_mode", ctypes.c_char_p), ("vocab_size", ctypes.c_int64),
                ("recompute", ctypes.c_char_p), ("forward_only", ctypes.c_int32)]


class StepSummary(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("ranks", ctypes.c_int32), ("in_ns", ctypes.c_int32),
                ("makespan", ctypes.c_double), ("step", ctypes.c_double), ("bubble", ctypes.c_double)]


def call(function, *arguments):
    if function(*arguments) != 0:
        sys.exit(f"FAILED: {LIBRARY.vp_last_error().decode()}")


def simulated(family, mode):
    costs = Costs(ctypes.sizeof(Costs), 12, 24, 7, 1, 3, 16)
    # The structs end where this program's knowledge of them does, as those of an earlier version.
    options = ScheduleOptions(ctypes.sizeof(ScheduleOptions), family.encode(), 4, 8, mode.encode(), 64000)
    schedule, step, summary = ctypes.c_void_p(), ctypes.c_void_p(), StepSummary(ctypes.sizeof(StepSummary))
    call(LIBRARY.vp_schedule_make, ctypes.byref(options), ctypes.byref(costs), ctypes.byref(schedule))
    call(LIBRARY.vp_simulate, schedule, ctypes.byref(costs), None, ctypes.byref(step))
    call(LIBRARY.vp_timeline_summary, step, ctypes.byref(summary))
    LIBRARY.vp_timeline_free(step)
    LIBRARY.vp_schedule_free(schedule)
    return summary.step, summary.bubble


failed = 0
for family in LIBRARY.vp_families().decode().split():
    for mode in ("none", "redistributed", "two_barriers"):
        expected = json.loads(subprocess.run(
            [TOOL, "simulate", family, "--pp", "4", "--microbatches", "8", "--vocab-mode", mode,
             "--vocab-size", "64000", "--costs", "12,24,7", "--latency", "1", "--hop", "3", "--num-layers", "16", "--json"],
            check=True, capture_output=True, timeout=60).stdout)
        step, bubble = simulated(family, mode)
        if abs(step - expected["step"]) > 1e-9 * step or bubble != expected["bubble"]:
            print(f"FAILED: {family} {mode}: step {step}, bubble {bubble} instead of", expected["step"],
                  expected["bubble"])
            failed += 1
print(f"{failed} failed")
sys.exit(1 if failed else 0)
