#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes transformers_files.jsonl: what transformers saves of small models of every family, a model per line.

    python3 tests/train/checkpoint/transformers_files.py > tests/train/checkpoint/transformers_files.jsonl
"""
import json
import pathlib
import tempfile

from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16)
MODELS = [
    dict(model_type="gpt2", vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_inner=48,
         n_positions=16),
    dict(model_type="gpt2", vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_inner=48,
         n_positions=16, tie_word_embeddings=False),
    dict(model_type="gpt_neox", vocab_size=61, hidden_size=40, intermediate_size=52,
         num_hidden_layers=2, num_attention_heads=5, max_position_embeddings=16),
    dict(model_type="gpt_neox", vocab_size=61, hidden_size=42, intermediate_size=52,
         num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=16, rotary_pct=0.6,
         attention_bias=False, use_parallel_residual=False, hidden_act="gelu_fast",
         tie_word_embeddings=True),
    dict(model_type="llama", **SIZES),
    dict(model_type="llama", **SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    dict(model_type="mistral", **SIZES, sliding_window=5),
    dict(model_type="qwen2", **SIZES),
    dict(model_type="qwen3", **SIZES, head_dim=16, tie_word_embeddings=True),
    dict(model_type="gemma", **SIZES, head_dim=16),
    dict(model_type="gemma2", **SIZES, head_dim=16, sliding_window=5, attention_bias=True),
    dict(model_type="gemma3_text", **SIZES, head_dim=10, sliding_window=5, query_pre_attn_scalar=24,
         layer_types=["sliding_attention", "full_attention"]),
    dict(model_type="olmo2", **SIZES, head_dim=6),
    dict(model_type="phi3", **SIZES, head_dim=14, sliding_window=5, pad_token_id=None),
    dict(model_type="smollm3", **SIZES, head_dim=10, no_rope_layer_interval=2,
         use_sliding_window=True, sliding_window=5, pad_token_id=None),
    dict(model_type="mixtral", **SIZES, num_local_experts=3),
    dict(model_type="qwen3_moe", **SIZES, head_dim=6, num_experts=4, num_experts_per_tok=2,
         moe_intermediate_size=20, mlp_only_layers=[0], norm_topk_prob=True),
    dict(model_type="olmoe", **SIZES, num_experts=3, num_experts_per_tok=2, pad_token_id=None),
    dict(model_type="qwen2_moe", **SIZES, num_experts=3, num_experts_per_tok=2,
         moe_intermediate_size=20, shared_expert_intermediate_size=28),
    dict(model_type="dots1", **SIZES, head_dim=6, n_routed_experts=4, num_experts_per_tok=2,
         n_shared_experts=2, moe_intermediate_size=20, n_group=2, topk_group=1,
         first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5,
         sliding_window=None),
    dict(SIZES, model_type="deepseek_v3", num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=10,
         qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7, n_routed_experts=4,
         num_experts_per_tok=2, moe_intermediate_size=20, n_group=2, topk_group=1,
         first_k_dense_replace=1, num_mtp_layers=0),
    dict(SIZES, model_type="deepseek_v3", num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=10,
         qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7, n_routed_experts=4,
         num_experts_per_tok=2, moe_intermediate_size=20, n_group=1, topk_group=1,
         first_k_dense_replace=0, rope_interleave=False, num_mtp_layers=0,
         tie_word_embeddings=True),
]

for model in MODELS:
    with tempfile.TemporaryDirectory() as folder:
        config = AutoConfig.for_model(**model)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        with safe_open(pathlib.Path(folder) / "model.safetensors", "pt") as file:
            tensors = {name: list(file.get_slice(name).get_shape()) for name in sorted(file.keys())}
        print(json.dumps({"config": config, "tensors": tensors}))
