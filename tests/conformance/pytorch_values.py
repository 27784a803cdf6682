# SPDX-License-Identifier: Apache-2.0
"""What scripts share that write numbers of PyTorch, in fp64, for tests in C++."""
import textwrap

import torch


def exact(*shape):
    """Numbers that fp32 and a few digits hold."""
    return torch.round(torch.randn(*shape, dtype=torch.float64) * 64) / 64


def fp32(value):
    return float(torch.tensor(value, dtype=torch.float32))


def numbers(name, values):
    text = ", ".join(repr(float(value)) for value in values.flatten())
    print(textwrap.fill(f".{name} = {{{text}}},", 100, initial_indent="     ", subsequent_indent="      "))
