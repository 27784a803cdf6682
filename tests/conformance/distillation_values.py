#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes distillation_values.inc: distillation against lists of a teacher in PyTorch, fp64.

    python3 -m venv venv && venv/bin/pip install torch
    venv/bin/python tests/conformance/distillation_values.py > tests/conformance/distillation_values.inc

The file was made with torch 2.15.0. Values and gradients are autograd's, from the logits on: the sum of
torch.nn.functional.kl_div(log_softmax(z / temperature), log t, log_target=True) over the teacher's list, and
cross_entropy(); z = x w^T or softcap tanh(x w^T / softcap).
"""
import torch
from torch.nn import functional

from pytorch_values import exact, fp32, numbers

TOKENS, HIDDEN, VOCABULARY, IGNORED = 9, 3, 13, 4
# k, share of the divergence, temperature, softcap or 0
CASES = [
    (1, 1.0, 1.0, 0.0),
    (4, 1.0, 1.0, 0.0),
    (4, 0.3, 0.5, 0.0),
    (13, 0.75, 2.0, 0.0),
    (5, 0.0, 1.0, 0.0),
    (4, 0.6, 0.5, 3.0),
]


def main():
    torch.manual_seed(6)
    x, w = exact(TOKENS, HIDDEN), exact(VOCABULARY, HIDDEN)
    labels = torch.randint(VOCABULARY, (TOKENS,))
    g = exact(TOKENS).abs() + 1 / 64
    # Every list is the best of one order, with log p that fp32 holds.
    teacher, ids = torch.log_softmax(2 * exact(TOKENS, VOCABULARY), -1).sort(-1, descending=True)
    teacher = torch.round(teacher * 64) / 64
    counts = torch.arange(TOKENS) != IGNORED

    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by distillation_values.py.")
    print("inline const DistillationInputs kDistillationInputs{")
    for name, values in dict(x=x, w=w, g=g, teacher=teacher.T, ids=ids.T).items():
        numbers(name, values)
    of_tokens = ", ".join(str(-1 if i == IGNORED else int(label)) for i, label in enumerate(labels))
    print(f"     .labels = {{{of_tokens}}}}};")
    print("inline const std::vector<DistillationValues> kDistillationValues{")
    for k, share, temperature, softcap in CASES:
        xs, ws = x.clone().requires_grad_(), w.clone().requires_grad_()
        z = xs @ ws.T
        z = (softcap * torch.tanh(z / softcap) if softcap else z) / fp32(temperature)
        listed = torch.log_softmax(z, -1).gather(1, ids[:, :k])
        divergence = functional.kl_div(listed, teacher[:, :k], reduction="none", log_target=True).sum(-1)
        loss = (1 - fp32(share)) * functional.cross_entropy(z, labels, reduction="none") + fp32(share) * divergence
        loss = torch.where(counts, loss, torch.zeros_like(loss))
        (g * loss).sum().backward()
        print(f"    {{.options = {{.top_k = {k}, .kl_share = {share}F}},")
        print(f"     .temperature = {temperature}F,")
        print(f"     .logit_softcap = {softcap}F,")
        numbers("loss", loss.detach())
        numbers("dx", xs.grad)
        numbers("dw", ws.grad)
        print("    },")
    print("};")


main()
