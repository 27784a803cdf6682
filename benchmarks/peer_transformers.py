# SPDX-License-Identifier: Apache-2.0
"""The training step of any family in Hugging Face's transformers, a peer of benchmarks/compare_peers.sh.

    peer_transformers.py grouped|batched|eager [compiled]

How experts compute: by grouped products (grouped_mm), by gathered weights (batched_mm), or one expert
after the other. Model, tokens and optimizer as in peer_torch.py; attention is PyTorch's fused one. bf16:
autocast. One process; the router's losses have weight 0, as in train_gpt by default.
"""
import contextlib
import os
import sys

import torch
import transformers

from peer_torch import CLIP_GRAD, Inputs, loss_of, make_optimizer, time_steps

IMPLEMENTATIONS = {"grouped": "grouped_mm", "batched": "batched_mm", "eager": "eager"}


def main():
    if os.environ["VOCABPIPE_PEER_RANKS"] != "1":
        sys.exit(77)
    experts, compiled = IMPLEMENTATIONS[sys.argv[1]], "compiled" in sys.argv[2:]
    torch.set_num_threads(int(os.environ["VOCABPIPE_PEER_THREADS"]))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    inputs = Inputs()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        os.environ["VOCABPIPE_PEER_MODEL"],
        dtype=torch.float32,
        attn_implementation="sdpa",
        experts_implementation=experts,
    ).train()
    optimizer = make_optimizer(model)

    def forward(tokens, labels):
        with torch.autocast("cpu", torch.bfloat16) if inputs.bf16 else contextlib.nullcontext():
            logits = model(input_ids=tokens, use_cache=False).logits
        return loss_of(logits, labels)

    if compiled:
        forward = torch.compile(forward)

    def step():
        loss = forward(inputs.tokens, inputs.labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_GRAD)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    time_steps(step)


if __name__ == "__main__":
    main()
