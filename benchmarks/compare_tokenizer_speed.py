#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets the speed of this library's tokenizers beside that of the package `tokenizers`, on one core, in turns.

    venv/bin/pip install tokenizers
    venv/bin/python benchmarks/compare_tokenizer_speed.py --text work/bible.txt FOLDER [FOLDER ...] [--bin build/bin]

A FOLDER has a tokenizer.json. Documents end at blank lines. `tokenizers` runs encode_batch_fast(), which gives ids and
no places, in one thread; both have read the text once before. The ratio is that of the medians over the rounds.
"""

import argparse
import os
import statistics
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402


def ours(program, text, path):
    out = subprocess.run([program, "--text", text, "--passes", "3", path], capture_output=True, check=True, text=True)
    tokens, _, rate = out.stdout.splitlines()[1].split()[:3]
    return int(tokens), float(rate)


def theirs(tokenizer, documents, megabytes):
    begin = time.perf_counter()
    encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    return sum(len(one.ids) for one in encoded), megabytes / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--text", required=True)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        text = file.read()
    megabytes = len(text.encode()) * 1e-6
    documents = [document for document in text.split("\n\n") if document]
    print(f"{'tokens':>10} {'MB/s':>8} {'tokenizers':>11} {'ratio':>6}  {megabytes:.1f} MB")
    for folder in options.folders:
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        theirs(tokenizer, documents, megabytes)
        rates, their_rates = [], []
        for _ in range(options.rounds):
            tokens, rate = ours(os.path.join(options.bin, "bench_tokenizer"), options.text, folder)
            their_tokens, their_rate = theirs(tokenizer, documents, megabytes)
            if tokens != their_tokens:
                raise SystemExit(f"{folder}: {tokens} tokens, {their_tokens} by tokenizers")
            rates.append(rate)
            their_rates.append(their_rate)
        rate, their_rate = statistics.median(rates), statistics.median(their_rates)
        print(f"{tokens:10} {rate:8.1f} {their_rate:11.1f} {rate / their_rate:6.1f}  {folder}", flush=True)


if __name__ == "__main__":
    main()
