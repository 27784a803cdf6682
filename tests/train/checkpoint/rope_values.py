#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rope_values.hpp: rotary frequencies as transformers computes them from rope_parameters.

    python3 tests/train/checkpoint/rope_values.py > tests/train/checkpoint/rope_values.hpp
    clang-format -i tests/train/checkpoint/rope_values.hpp
"""
import json

import torch
import transformers
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

POSITIONS, HEAD, LENGTH = 4096, 16, 40
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LONGROPE = dict(rope_type="longrope", short_factor=[1 + i / 16 for i in range(HEAD // 2)],
                long_factor=[1 + i * i / 4 for i in range(HEAD // 2)])
CASES = [
    dict(rope_type="default"),
    dict(rope_type="linear", factor=3.0),
    dict(rope_type="dynamic", factor=2.5),
    dict(LLAMA3, original_max_position_embeddings=512),
    dict(LLAMA3, original_max_position_embeddings=100, high_freq_factor=9.0, rope_theta=5e5),
    dict(LLAMA3, original_max_position_embeddings=8192, rope_theta=5e5),  # Llama 3.1
    dict(LLAMA3, original_max_position_embeddings=8192, rope_theta=5e5, factor=32.0),  # 3.2
    dict(LLAMA3, original_max_position_embeddings=8192, rope_theta=5e5, factor=16.0,
         high_freq_factor=1.0),  # Llama 4 Scout
    dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=1024),
    dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=1024, truncate=False),
    dict(rope_type="yarn", factor=16.0, rope_theta=1e6, beta_fast=20.0, beta_slow=2.0,
         attention_factor=0.75, original_max_position_embeddings=256),
    dict(rope_type="yarn", factor=40.0, mscale=1.0, mscale_all_dim=0.8,
         original_max_position_embeddings=300),
    dict(rope_type="yarn", factor=2.0, mscale=0.5),
    dict(rope_type="yarn", factor=None, original_max_position_embeddings=500),
    dict(rope_type="yarn", factor=4.0, beta_fast=1.0, beta_slow=1.0, truncate=False,
         original_max_position_embeddings=1024),
    dict(LONGROPE, original_max_position_embeddings=1024),
    dict(LONGROPE, original_max_position_embeddings=20),
    dict(LONGROPE, original_max_position_embeddings=512, factor=2.5),
    dict(LONGROPE, original_max_position_embeddings=512, attention_factor=0.9),
]

print(f"""// SPDX-License-Identifier: Apache-2.0
// Written by rope_values.py with torch {torch.__version__.split('+')[0]} and transformers \
{transformers.__version__}.
#pragma once

#include <vector>

namespace vocabpipe::testing {{

/// Values of a head of {HEAD} and max_position_embeddings {POSITIONS}.
struct RopeValues {{
    const char* parameters;          ///< rope_parameters of config.json
    double amplitude;                ///< of cos and sin
    std::vector<double> frequencies;  ///< fp32
}};

inline const std::vector<RopeValues> kRopeValues{{""")
for case in CASES:
    text = json.dumps(case)
    config = LlamaConfig(hidden_size=4 * HEAD, num_attention_heads=4, rope_parameters=dict(case),
                         max_position_embeddings=POSITIONS)
    rope = LlamaRotaryEmbedding(config)
    rope(torch.zeros(1), torch.arange(LENGTH)[None])  # longrope goes by the length
    values = ", ".join(f"{v:.9g}" for v in rope.inv_freq.tolist())
    print(f'    {{R"({text})",\n     {rope.attention_scaling:.17g},\n     {{{values}}}}},')
print("""};

}  // namespace vocabpipe::testing""")
