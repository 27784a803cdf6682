#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Columns for train_gpt --loss grpo from rewards and from log-probabilities of vocabpipe score:

    grpo_columns.py --rewards REWARDS --group-size G --old OLD.npy [--reference REF.npy] --output COLUMNS.npy

OLD.npy and REF.npy are (samples, seq_length), of the policy that wrote the answers and of the
reference. REWARDS has a number for every sample. Samples are in groups of G answers to one question;
the advantage of all tokens of an answer is its reward minus the group's mean, divided by the group's
deviation. Needs Python alone; with NumPy this is a few lines of your own.
"""
import argparse
import array
import ast
import statistics
import struct
import sys


def read(path):
    """Shape and fp32 numbers of a .npy file."""
    with open(path, "rb") as file:
        head = file.read(10)
        if head[:8] != b"\x93NUMPY\x01\x00":
            sys.exit(f"{path}: is no .npy file of version 1.0; write it with vocabpipe score")
        header = ast.literal_eval(file.read(struct.unpack("<H", head[8:])[0]).decode())
        numbers = array.array("f")
        numbers.frombytes(file.read())
    if header["descr"] != "<f4" or len(header["shape"]) != 2:
        sys.exit(f"{path}: is {header['descr']} {header['shape']}; it must be <f4 (samples, seq_length)")
    return header["shape"], numbers


def write(path, shape, columns):
    header = str({"descr": "<f4", "fortran_order": False, "shape": shape})
    header += " " * (-(11 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for column in columns:
            file.write(column.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--rewards", "--old", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--reference")
    parser.add_argument("--group-size", type=int, required=True)
    flags = parser.parse_args()
    (samples, seq_length), old = read(flags.old)
    with open(flags.rewards) as file:
        rewards = [float(line) for line in file]
    if flags.group_size < 1 or len(rewards) != samples or samples % flags.group_size != 0:
        sys.exit(f"{flags.rewards}: has {len(rewards)} rewards; {flags.old} has {samples} samples, "
                 f"which must be as many, in groups of {flags.group_size}")
    advantages = array.array("f")
    for first in range(0, samples, flags.group_size):
        group = rewards[first:first + flags.group_size]
        deviation = statistics.stdev(group) if len(group) > 1 else 0
        for reward in group:
            advantage = (reward - statistics.mean(group)) / (deviation + 1e-6)
            advantages.extend([advantage] * seq_length)
    columns = [advantages, old]
    if flags.reference:
        shape, reference = read(flags.reference)
        if shape != (samples, seq_length):
            sys.exit(f"{flags.reference}: is {shape}, but {flags.old} is {(samples, seq_length)}")
        columns.append(reference)
    write(flags.output, (len(columns), samples, seq_length), columns)


main()
