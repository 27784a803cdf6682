#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes policy_loss_values.inc: PPO's and GRPO's objectives of an output layer in PyTorch, fp64.

    python3 -m venv venv && venv/bin/pip install torch
    venv/bin/python tests/conformance/policy_loss_values.py > tests/conformance/policy_loss_values.inc

The file was made with torch 2.15.0. Values and gradients are autograd's, from the logits on:
    log_softmax(z / temperature) of z = x w^T or softcap tanh(x w^T / softcap), its entropy, and the objective by torch.min and torch.clamp.
"""
import torch

from pytorch_values import exact, fp32, numbers

TOKENS, HIDDEN, VOCABULARY, IGNORED = 9, 3, 13, 4
# clip_low, clip_high, kl_coefficient, estimator, entropy_coefficient, temperature, softcap or 0
CASES = [
    (0.2, 0.2, 0.0, "k3", 0.0, 1.0, 0.0),
    (0.1, 0.3, 0.05, "k3", 0.0, 1.0, 0.0),
    (0.2, 0.2, 0.5, "k2", 0.0, 0.5, 0.0),
    (0.2, 0.2, 0.5, "k1", 0.0, 2.0, 0.0),
    (0.2, 0.2, 0.0, "k3", 0.75, 1.0, 0.0),
    (0.2, 0.28, 0.04, "k3", 0.01, 0.5, 0.0),
    (0.2, 0.2, 0.0, "k3", 0.75, 1.0, 2.0),
    (0.2, 0.28, 0.04, "k3", 0.5, 0.5, 3.0),
    (0.2, 0.2, 0.05, "k2", 0.0, 2.0, 1.5),
]


def main():
    torch.manual_seed(4)
    x, w = exact(TOKENS, HIDDEN), exact(VOCABULARY, HIDDEN)
    labels = torch.randint(VOCABULARY, (TOKENS,))
    g = exact(TOKENS).abs() + 1 / 64
    advantage = exact(TOKENS)
    own = torch.log_softmax(x @ w.T, -1).gather(1, labels[:, None])[:, 0]
    old = torch.round((own + 0.3 * torch.randn(TOKENS, dtype=torch.float64)) * 64) / 64
    reference = torch.round((own + 0.3 * torch.randn(TOKENS, dtype=torch.float64)) * 64) / 64
    counts = torch.arange(TOKENS) != IGNORED

    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by policy_loss_values.py.")
    print("inline const PolicyLossInputs kPolicyLossInputs{")
    for name, values in dict(x=x, w=w, g=g, advantage=advantage, old=old, reference=reference).items():
        numbers(name, values)
    ids = ", ".join(str(-1 if i == IGNORED else int(label)) for i, label in enumerate(labels))
    print(f"     .labels = {{{ids}}}}};")
    print("inline const std::vector<PolicyLossValues> kPolicyLossValues{")
    for low, high, beta, estimator, bonus, temperature, softcap in CASES:
        xs, ws = x.clone().requires_grad_(), w.clone().requires_grad_()
        z = xs @ ws.T
        z = softcap * torch.tanh(z / softcap) if softcap else z
        logs = torch.log_softmax(z / fp32(temperature), -1)
        logprob = logs.gather(1, labels[:, None])[:, 0]
        entropy = -(logs.exp() * logs).sum(-1)
        ratio = torch.exp(logprob - old)
        clipped = torch.clamp(ratio, 1 - fp32(low), 1 + fp32(high))
        loss = -torch.min(ratio * advantage, clipped * advantage)
        d = reference - logprob
        loss = loss + fp32(beta) * {"k1": -d, "k2": d * d / 2, "k3": torch.exp(d) - 1 - d}[estimator]
        loss = loss - fp32(bonus) * entropy
        loss = torch.where(counts, loss, torch.zeros_like(loss))
        (g * loss).sum().backward()
        print(f"    {{.options = {{.clip_low = {low}F, .clip_high = {high}F, .kl_coefficient = {beta}F,")
        print(f"                 .kl = KlEstimator::{estimator}, .entropy_coefficient = {bonus}F}},")
        print(f"     .temperature = {temperature}F,")
        print(f"     .logit_softcap = {softcap}F,")
        numbers("loss", loss.detach())
        numbers("dx", xs.grad)
        numbers("dw", ws.grad)
        print("    },")
    print("};")


main()
