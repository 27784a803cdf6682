#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares GPT-2 here with GPT-2 of transformers, both ways, on small random models.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/model/compare_transformers.py build/bin/train_gpt

Last run with torch 1.13.1 and transformers 4.41.2.

A model made by transformers is loaded by train_gpt: loss and gradient norm of the same sequences.
Then train_gpt trains it for a few steps, and transformers loads what it saved: the loss of those
sequences again. The bound is relative: fp32 rounding over a few hundred terms; bf16 keeps 8 bits.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SAMPLES, LENGTH, VOCAB = 8, 32, 211
BOUND = {"fp32": 2e-5, "bf16": 2e-2}


def batch():
    """The sequences that train_gpt cuts from tokens.bin: one batch, so their order is no matter."""
    numbers = random.Random(1)
    tokens = [numbers.randrange(VOCAB) for _ in range(SAMPLES * LENGTH + 1)]
    rows = [tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(SAMPLES)]
    return tokens, torch.tensor(rows)


def loss_and_norm(model, rows):
    """Mean cross-entropy, and the norm of its gradient over all parameters."""
    model.zero_grad()
    logits = model(rows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
    loss.backward()
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))
    return loss.item(), norm.item()


def train(program, folder, steps, lr, dtype, tied, ranks, *flags):
    """Loss and gradient norm of every step."""
    command = [program, "--transport", "threads", "--ranks", str(ranks), "--data-path", "tokens.bin",
               "--data-format", "raw-u16", "--vocab-size", str(VOCAB), "--num-layers", "3",
               "--hidden-size", "48", "--num-attention-heads", "4", "--seq-length", str(LENGTH),
               "--max-position-embeddings", "40", "--global-batch-size", str(SAMPLES),
               "--micro-batch-size", "2", "--dtype", dtype, "--train-iters", str(steps),
               "--lr", str(lr), "--metrics", "metrics", *flags]
    if not tied:
        command.append("--untie-embeddings-and-output-weights")
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    lines = (folder / "metrics").read_text().splitlines()
    return [(step["loss"], step["grad_norm"]) for step in map(json.loads, lines)]


def compare(program, folder, dtype, tied):
    torch.manual_seed(7)
    tokens, rows = batch()
    (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    config = GPT2Config(vocab_size=VOCAB, n_positions=40, n_embd=48, n_layer=3, n_head=4,
                        initializer_range=0.1, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                        tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None)
    theirs = GPT2LMHeadModel(config).eval()
    for p in theirs.parameters():  # biases and norms are constants otherwise
        p.data += 0.05 * torch.randn_like(p)
    theirs.save_pretrained(folder / "theirs", safe_serialization=True)

    def report(what, expected, found):
        errors = [abs(f / e - 1) for e, f in zip(expected, found)]
        good = max(errors) <= BOUND[dtype]
        print(f"{dtype} {'tied' if tied else 'untied':6} {what:28} "
              f"loss {expected[0]:.7f} {found[0]:.7f} ({errors[0]:.1e})  "
              f"gradient norm {expected[1]:.7f} {found[1]:.7f} ({errors[1]:.1e})  "
              f"{'ok' if good else 'WRONG'}")
        return good

    good = True
    for ranks in (1, 2):
        found = train(program, folder, 1, 0, dtype, tied, ranks, "--load", "theirs")[0]
        good &= report(f"loaded by train_gpt, p = {ranks}", loss_and_norm(theirs, rows), found)
    train(program, folder, 5, 1e-2, dtype, tied, 2, "--load", "theirs", "--save", "ours")
    found = train(program, folder, 1, 0, dtype, tied, 2, "--load", "ours", "--finetune")[0]
    ours, info = GPT2LMHeadModel.from_pretrained(folder / "ours/step-00000005",
                                                 torch_dtype=torch.float32,
                                                 output_loading_info=True)
    missing = [k for k in info["missing_keys"] if k != "lm_head.weight" or not tied]
    if missing or info["unexpected_keys"] or info["mismatched_keys"]:
        print("WRONG keys:", info)
        return False
    good &= report("loaded by transformers", loss_and_norm(ours.eval(), rows), found)
    return good


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    good = True
    for dtype in ("fp32", "bf16"):
        for tied in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                good &= compare(program, pathlib.Path(folder), dtype, tied)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
