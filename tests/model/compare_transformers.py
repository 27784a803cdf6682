#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares models of every family here and in transformers, both ways, on small random ones.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/model/compare_transformers.py [build/bin] [--cases 6] [--seed 1] [--family mixtral olmoe]
        [--beyond] [--sinks]

What docs/models.md reports was run with torch 2.8.0 and transformers 5.23.0, what
docs/checkpoints.md reports also with 4.51.3.

A model made by transformers, with random sizes, heads, biases, rotary scaling, windows and caps, is
saved by it and loaded here on one and two ranks: logits, loss and the gradient of every tensor, as
relative errors in the Frobenius norm. (Gradients smaller than 1e-2 of the whole are compared with
that: the terms of k's bias all but cancel, for it shifts the scores of a query nearly alike.) Then
the ranks save it, transformers loads that, and `vocabpipe checkpoint
convert` writes it in shards: the weights must be the same bits and so must be the logits that
transformers computes. At last train_gpt trains it for a few steps on two ranks, and what it saved is
compared again.

Bounds. A value passes some 12 operators per layer, and the same again backward, whose roundings are
taken for independent of one another: n in a row give sqrt(n) times that of one. fp32: an operator
rounds a sum of k terms, sqrt(k) 2^-24. bf16, against fp32 of the same weights: sums are fp32, and
what an operator stores is rounded, 2^-9; 4 standard deviations, because little else averages out.
A token that bf16 sends to other experts has other values, which no bound covers: with experts, bf16 is
compared where every token goes to all of them.

--beyond changes the same models: sequences are longer than max_position_embeddings, gates are exact
GELU, GPT-NeoX turns odd numbers of columns, Mistral has the layer_types of Ministral, and files hold
all experts of a layer in one tensor.

--sinks gives the attention of transformers' models sinks (SoftmaxType::learnable here), with the
function that computes them for gpt_oss.
"""
import argparse
import copy
import importlib
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
SCALINGS = ["default", "linear", "dynamic", "llama3", "yarn"]
POSITIONS, SEQUENCES = 64, 3
# Grouped products of transformers 5 want columns in multiples of 16 bytes.
PLAIN = dict(attn_implementation="eager")
if VERSION >= (5, 0):
    PLAIN["experts_implementation"] = "eager"
OPERATORS = 12  # of a layer, in a row


def rope(pick, sizes):
    """Every scaling in turn."""
    scaling = SCALINGS[sizes["case"] % len(SCALINGS)]
    theta = pick.choice([100.0, 10000.0, 500000.0])
    values = dict(rope_type=scaling)
    if scaling != "default":
        values["factor"] = pick.choice([2.0, 4.0, 8.0])
    if scaling == "llama3":
        values |= dict(low_freq_factor=1.0, high_freq_factor=4.0)
    if scaling in ("llama3", "yarn"):
        values["original_max_position_embeddings"] = 16
    if scaling == "yarn":
        values["factor"] = 4.0  # transformers 4.51 takes it from the positions, 64 / 16
        values |= pick.choice([{}, dict(attention_factor=0.8), dict(beta_fast=8.0, beta_slow=2.0),
                               dict(mscale=1.0, mscale_all_dim=0.5)])
    if VERSION >= (5, 0):
        return dict(rope_parameters=dict(values, rope_theta=theta))
    return dict(rope_theta=theta, rope_scaling=None if scaling == "default" else values)


def gpt2(pick, sizes):
    return dict(n_positions=POSITIONS, n_embd=sizes["hidden_size"],
                n_layer=sizes["num_hidden_layers"], n_head=sizes["num_attention_heads"],
                n_inner=pick.choice([None, pick.randrange(21, 200)]), resid_pdrop=0, embd_pdrop=0,
                attn_pdrop=0)


def gpt_neox(pick, sizes):
    size = sizes["hidden_size"] // sizes["num_attention_heads"]
    share = pick.choice([1.0] + [part for part in (0.25, 0.4, 0.5, 0.625)
                                 if int(size * part) % 2 == 0 and int(size * part) > 2])
    keys = rope(pick, sizes)
    if "rope_theta" in keys:
        keys["rotary_emb_base"] = keys.pop("rope_theta")
    return dict(keys, **sizes, intermediate_size=pick.randrange(21, 200), rotary_pct=share,
                max_position_embeddings=POSITIONS, layer_norm_eps=pick.choice([1e-5, 1e-6]),
                hidden_act=pick.choice(["gelu", "gelu", "gelu_pytorch_tanh"]),
                use_parallel_residual=pick.random() < 0.7, attention_bias=pick.random() < 0.7)


def rotary(pick, sizes):
    """Keys of all other families."""
    heads = sizes["num_attention_heads"]
    return dict(sizes, intermediate_size=pick.randrange(21, 200),
                num_key_value_heads=pick.choice([n for n in (1, 2, 3, 6) if heads % n == 0]),
                max_position_embeddings=POSITIONS, rms_norm_eps=pick.choice([1e-5, 1e-6]))


def head_size(pick, sizes):
    return dict(head_dim=pick.choice([8, 12, 24]))


def attention_bias(pick, sizes):
    return dict(attention_bias=pick.random() < 0.5)


def mlp_bias(pick, sizes):
    return dict(mlp_bias=pick.random() < 0.5)


def window(pick, sizes):
    return dict(sliding_window=pick.randint(2, 9))


def window_or_none(pick, sizes):
    return dict(sliding_window=pick.choice([None, pick.randint(2, 9)]))


def late_windows(pick, sizes):
    """Older transformers give all layers the window."""
    if VERSION < (4, 53) or pick.random() < 0.3:
        return {}
    keys = dict(use_sliding_window=True, sliding_window=pick.randint(2, 9))
    layers = sizes["num_hidden_layers"]
    if pick.random() < 0.5:
        return dict(keys, max_window_layers=pick.randrange(layers))
    return dict(keys, layer_types=[pick.choice(["sliding_attention", "full_attention"])
                                   for _ in range(layers)])


def phi_rope(pick, sizes):
    """Plain, and LongRoPE of sequences beyond and within the trained length, in turn. transformers
    wants it of heads of hidden_size / num_attention_heads."""
    theta = pick.choice([100.0, 10000.0])
    keys, scaling = dict(), dict()
    if sizes["case"] % 3 == 0:
        keys = head_size(pick, sizes)
    else:
        size = sizes["hidden_size"] // sizes["num_attention_heads"]
        turning = pick.choice([size, size // 4 * 2])  # as Phi-4-mini, a part of every head
        if turning < size:
            keys = dict(partial_rotary_factor=turning / size)
        pairs = turning // 2
        keys |= dict(original_max_position_embeddings=[16, 48][sizes["case"] % 3 - 1])
        scaling = dict(short_factor=[pick.uniform(1, 2) for _ in range(pairs)],
                       long_factor=[pick.uniform(1, 8) for _ in range(pairs)])
    if VERSION < (5, 0):
        scaling = dict(scaling, type="longrope") if scaling else None
        return dict(keys, rope_theta=theta, rope_scaling=scaling)
    if scaling:
        scaling |= dict(rope_type="longrope")
        scaling |= pick.choice([{}, {}, dict(attention_factor=0.8), dict(factor=3.0)])
    return dict(keys, rope_parameters=dict(scaling, rope_theta=theta))


def no_rope(pick, sizes):
    layers = sizes["num_hidden_layers"]
    keys = pick.choice([dict(no_rope_layer_interval=2), dict(no_rope_layer_interval=layers),
                        dict(no_rope_layers=[pick.randrange(2) for _ in range(layers)])])
    if pick.random() < 0.5:
        keys |= dict(use_sliding_window=True, sliding_window=pick.randint(2, 9))
    return keys


def gemma_softcaps(pick, sizes):
    return dict(query_pre_attn_scalar=pick.choice([12, 17, 256]),
                attn_logit_softcapping=pick.choice([None, 1.5, 50.0]),
                final_logit_softcapping=pick.choice([None, 3.0, 30.0]))


def gemma3_ropes(pick, sizes):
    """Layers with a window have positions of their own, which are not stretched."""
    theta = pick.choice([50.0, 10000.0])
    keys = rope(pick, sizes)
    if VERSION < (5, 0):
        return dict(keys, rope_local_base_freq=theta)
    return dict(rope_parameters=dict(
        full_attention=keys["rope_parameters"],
        sliding_attention=dict(rope_type="default", rope_theta=theta)))


def gemma3_windows(pick, sizes):
    """A published pattern is longer than these models."""
    keys = dict(sliding_window=pick.randint(2, 9), query_pre_attn_scalar=pick.choice([12, 17, 256]),
                final_logit_softcapping=pick.choice([None, 3.0, 30.0]))
    if VERSION < (4, 53) or pick.random() < 0.3:
        return dict(keys, sliding_window_pattern=2)
    return dict(keys, layer_types=[pick.choice(["sliding_attention", "full_attention"])
                                   for _ in range(sizes["num_hidden_layers"])])


def experts(count):
    """`count`: what a family calls the number of its experts. Every third model sends every token to
    all of them, so that its choices survive the rounding of bf16."""
    def draw(pick, sizes):
        number = pick.randint(3, 9)
        chosen = number if sizes["case"] % 3 == 0 else pick.randint(1, number - 1)
        return {count: number, "num_experts_per_tok": chosen}
    return draw


def sparse_layers(pick, sizes):
    layers = sizes["num_hidden_layers"]
    keys = dict(moe_intermediate_size=pick.randrange(21, 100), norm_topk_prob=pick.random() < 0.5)
    return keys | pick.choice([{}, dict(decoder_sparse_step=2),
                               dict(mlp_only_layers=[pick.randrange(layers)])])


def weights(pick, sizes):
    return dict(norm_topk_prob=pick.random() < 0.5)


def shared_expert(pick, sizes):
    return dict(shared_expert_intermediate_size=pick.randrange(21, 100),
                qkv_bias=pick.random() < 0.7)


def grouped_experts(pick, sizes):
    """Groups of two experts or more, of which every third model takes all, as experts() does."""
    groups, each = pick.choice([(1, 5), (2, 3), (3, 2), (4, 2), (2, 4)])
    everything = sizes["case"] % 3 == 0
    top_groups = groups if everything else pick.randint(1, groups)
    chosen = groups * each if everything else pick.randint(1, top_groups * each - 1)
    layers = sizes["num_hidden_layers"]
    return dict(n_routed_experts=groups * each, num_experts_per_tok=chosen, n_group=groups,
                topk_group=top_groups, n_shared_experts=pick.randint(1, 3),
                moe_intermediate_size=pick.randrange(21, 60), norm_topk_prob=pick.random() < 0.6,
                routed_scaling_factor=pick.choice([1.0, 2.5]),
                first_k_dense_replace=pick.randrange(layers))


def dots_windows(pick, sizes):
    return pick.choice([dict(sliding_window=None), dict(sliding_window=pick.randint(2, 9)),
                        dict(sliding_window=5, max_window_layers=1)])


def latents(pick, sizes):
    """Half of the folders say that they have a depth of multi-token prediction, which transformers
    does not save."""
    return dict(num_key_value_heads=sizes["num_attention_heads"],
                q_lora_rank=pick.choice([None, pick.randrange(5, 40)]),
                kv_lora_rank=pick.randrange(5, 40), qk_nope_head_dim=pick.randrange(3, 20),
                qk_rope_head_dim=pick.choice([4, 8, 14]), v_head_dim=pick.randrange(3, 24),
                rope_interleave=pick.random() < 0.7, num_mtp_layers=pick.randrange(2))


# What of its config.json is drawn for every family.
FAMILIES = {
    "gpt2": [gpt2],
    "llama": [rotary, rope, head_size, attention_bias, mlp_bias],
    "mistral": [rotary, rope, head_size, window_or_none],
    "qwen2": [rotary, rope, late_windows],
    "qwen3": [rotary, rope, head_size, late_windows, attention_bias],
    "gemma": [rotary, rope, head_size, attention_bias],
    "gemma2": [rotary, rope, head_size, gemma_softcaps, window, attention_bias],
    "gemma3_text": [rotary, gemma3_ropes, head_size, gemma3_windows, attention_bias],
    "olmo2": [rotary, rope, head_size, attention_bias],
    "phi3": [rotary, phi_rope, window_or_none],
    "smollm3": [rotary, rope, head_size, no_rope, attention_bias, mlp_bias],
    "gpt_neox": [gpt_neox],
    "dots1": [rotary, rope, head_size, attention_bias, grouped_experts, dots_windows],
    "deepseek_v3": [rotary, rope, grouped_experts, latents],
    "mixtral": [rotary, rope, head_size, window_or_none, experts("num_local_experts")],
    "olmoe": [rotary, rope, attention_bias, weights, experts("num_experts")],
    "qwen2_moe": [rotary, rope, experts("num_experts"), sparse_layers, shared_expert],
    "qwen3_moe": [rotary, rope, head_size, attention_bias, experts("num_experts"), sparse_layers],
}


def go_beyond(family, keys, case):
    """What --beyond changes, without a draw: the rest of the models is as ever."""
    if family != "gpt2":
        keys["max_position_embeddings"] = 12  # sequences have 20 to 40 tokens
    gate = "hidden_activation" if family in ("gemma2", "gemma3_text") else "hidden_act"
    if family == "gpt2":
        keys["activation_function"] = "gelu"
    elif family != "gemma":  # where gelu means the tanh form
        keys[gate] = "gelu"
    if family == "gpt_neox" and keys["rope_parameters"]["rope_type"] != "yarn":
        size = keys["hidden_size"] // keys["num_attention_heads"]
        keys["rotary_pct"] = (size // 4 * 2 - 1) / size + 1e-9
    if family == "mistral":
        keys["sliding_window"] = 5
        keys["layer_types"] = ["full_attention" if (layer + case) % 2 else "sliding_attention"
                               for layer in range(keys["num_hidden_layers"])]
        return "ministral"
    return family


# Families that --sinks compares, with their classes of attention.
WITH_SINKS = {"llama": "LlamaAttention", "mistral": "MistralAttention", "qwen2": "Qwen2Attention",
              "qwen3": "Qwen3Attention", "mixtral": "MixtralAttention",
              "qwen3_moe": "Qwen3MoeAttention"}


def add_sinks(family):
    """All models of the family that are made from now on have sinks."""
    gpt_oss = importlib.import_module("transformers.models.gpt_oss.modeling_gpt_oss")
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    attention = getattr(module, WITH_SINKS[family])
    plain = attention.__init__

    def with_sinks(self, config, *arguments, **named):
        plain(self, config, *arguments, **named)
        self.sinks = torch.nn.Parameter(torch.randn(config.num_attention_heads))

    attention.__init__ = with_sinks
    module.eager_attention_forward = gpt_oss.eager_attention_forward


def random_config(family, pick, case, beyond, sinks=False):
    heads = pick.choice([2, 4, 6])
    sizes = dict(num_attention_heads=heads, num_hidden_layers=pick.randint(2, 4),
                 hidden_size=heads * pick.choice([6, 8, 10, 16]), case=case)
    keys = dict(vocab_size=pick.choice([1009, pick.randrange(61, 400, 2)]),
                tie_word_embeddings=pick.random() < 0.5, initializer_range=0.1,
                bos_token_id=None, eos_token_id=None, pad_token_id=None)
    for draw in FAMILIES[family]:
        keys |= draw(pick, sizes)
    keys.pop("case", None)
    if beyond:
        family = go_beyond(family, keys, case)
    if sinks:
        keys["softmax_type"] = "learnable"
    return AutoConfig.for_model(family, **keys)


def describe(config):
    keys = ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
            "head_dim", "vocab_size", "tie_word_embeddings", "attention_bias", "mlp_bias",
            "attn_logit_softcapping", "final_logit_softcapping", "sliding_window", "layer_types",
            "no_rope_layers", "hidden_act", "use_parallel_residual", "num_experts",
            "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
            "qkv_bias", "norm_topk_prob", "mlp_only_layers", "n_routed_experts", "n_group",
            "topk_group", "n_shared_experts", "routed_scaling_factor", "first_k_dense_replace"]
    scaling = getattr(config, "rope_parameters", getattr(config, "rope_scaling", None))
    shown = [f"{key.split('_')[-1] if key.count('_') < 2 else key}={getattr(config, key)}"
             for key in keys if getattr(config, key, None) is not None]
    return " ".join(shown + ([json.dumps(scaling)] if scaling else []))


def reference(model, rows):
    """Logits, mean cross-entropy and the gradients of all parameters by name."""
    model.zero_grad()
    logits = model(rows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
    loss.backward()
    return logits.detach(), loss.detach(), {n: p.grad for n, p in model.named_parameters()}


def load(folder):
    """In fp32, with all of its weights and no other."""
    key = "dtype" if VERSION >= (5, 0) else "torch_dtype"
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, **{key: torch.float32}, **PLAIN)
    tied = model.config.tie_word_embeddings
    missing = [k for k in info["missing_keys"]
               if k not in ("lm_head.weight", "embed_out.weight") or not tied]
    if missing or info["unexpected_keys"] or info["mismatched_keys"]:
        raise AssertionError(f"{folder}: {info}")
    # Weights mapped from a file are where the file has them, and PyTorch's bits depend on alignment.
    return copy.deepcopy(model).eval()


def in_files(family, name, tensor):
    """A parameter as files have it: transformers 5 holds the experts of a layer in one."""
    if family == "mixtral":
        name = name.replace("mlp.", "block_sparse_moe.")
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return {name: tensor}
    w = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    layer, parts = name.rsplit(".", 1)[0], {}
    for number, expert in enumerate(tensor):
        matrices = expert.chunk(2) if name.endswith("gate_up_proj") else [expert]
        for part, matrix in zip(w if len(matrices) == 2 else w[2:], matrices):
            parts[f"{layer}.{number}.{part}.weight"] = matrix
    return parts


class Comparison:
    def __init__(self, programs, folder, family, case, seed, beyond=False, sinks=False):
        self.programs, self.folder, self.family, self.beyond = programs, folder, family, beyond
        pick = random.Random(f"{seed} {family} {case}")
        torch.manual_seed(pick.randrange(1 << 30))
        self.config = random_config(family, pick, case, beyond, sinks)
        self.model = AutoModelForCausalLM.from_config(self.config, **PLAIN)
        for p in self.weights(self.model):  # biases and norms are constants otherwise
            p.data += 0.05 * torch.randn_like(p)
        self.model.eval()
        length = pick.randint(20, 40)
        self.rows = torch.tensor([[pick.randrange(self.config.vocab_size)
                                   for _ in range(length + 1)] for _ in range(SEQUENCES)])
        self.worst = {}
        self.good = True

    @staticmethod
    def weights(model):
        """Parameters, and the correction biases of routers, which are buffers."""
        return list(model.parameters()) + [b for name, b in model.named_buffers()
                                           if name.endswith("e_score_correction_bias")]

    def bound(self, dtype, what):
        in_a_row = OPERATORS * (self.config.num_hidden_layers + 1)
        in_a_row *= 2 if what == "gradients" else 1
        if dtype == "bf16":
            return 4 * math.sqrt(in_a_row) * 2**-9
        inner = getattr(self.config, "intermediate_size", None) or 4 * self.config.hidden_size
        terms = max(inner, self.config.hidden_size, self.config.vocab_size)
        return math.sqrt(in_a_row * terms) * 2**-24

    def note(self, dtype, what, error):
        self.worst[dtype, what] = max(self.worst.get((dtype, what), 0), error)
        if not error <= self.bound(dtype, what):
            self.good = False
            print(f"WRONG {dtype} {what}: {error:.2e}, bound {self.bound(dtype, what):.2e}")

    def compare(self, dtype, ranks, out, expected):
        logits, loss, gradients = expected
        chosen = getattr(self.config, "num_experts_per_tok", 0)
        if dtype == "bf16" and chosen and chosen < (getattr(self.config, "num_local_experts", 0) or self.config.num_experts):
            return  # some token's experts are others, which is no matter of rounding
        gradients = {part: g for name, whole in gradients.items()
                     for part, g in in_files(self.family, name, whole).items()}
        found = load_file(out)
        error = (found["logits"].reshape(logits.shape) - logits).norm() / logits.norm()
        self.note(dtype, "logits", error.item())
        self.note(dtype, "loss", abs(found["loss"].item() / loss.item() - 1))
        whole = math.sqrt(sum(g.double().norm().item() ** 2 for g in gradients.values()))
        for name, want in gradients.items():
            if self.family == "gpt2" and want.dim() == 2 and ".h." in name:
                want = want.t()
            if self.family == "gpt_neox" and name == "lm_head.weight":
                name = "embed_out.weight"  # of its files
            have = found.pop("grad/" + name).reshape(want.shape)
            error = (have - want).norm().item() / max(want.norm().item(), 1e-2 * whole)
            if not error <= self.bound(dtype, "gradients"):
                print(f"  gradient of {name}, {ranks} ranks: {error:.2e}")
            self.note(dtype, "gradients", error)
        left = set(found) - {"logits", "loss"}
        if left:
            raise AssertionError(f"gradients of no parameter: {left}")

    def same_model(self, what, folder, model, logits):
        """transformers must find the same weights and compute the same logits."""
        with torch.no_grad():
            loaded = load(folder)
            weights = all(torch.equal(a, b) for a, b in
                          zip(model.state_dict().values(), loaded.state_dict().values()))
            same = weights and torch.equal(loaded(self.rows[:, :-1]).logits, logits)
        if not same:
            self.good = False
            print(f"WRONG {what}: {'logits' if weights else 'weights'} differ in transformers")

    def save(self, model, folder):
        if not self.beyond:
            model.save_pretrained(folder)
            return
        model.save_pretrained(folder, save_original_format=False)
        config = json.loads((folder / "config.json").read_text())
        config["model_type"] = self.family  # transformers reads mistral with layer_types as ministral
        (folder / "config.json").write_text(json.dumps(config))

    def run(self, dtype):
        folder = self.folder / dtype
        model = copy.deepcopy(self.model)
        if dtype == "bf16":
            for p in self.weights(model):
                p.data = p.data.bfloat16().float()
            self.save(copy.deepcopy(model).bfloat16(), folder / "theirs")
        else:
            self.save(model, folder / "theirs")
        (folder / "tokens").write_bytes(self.rows.numpy().astype(numpy.int32).tobytes())
        expected = reference(model, self.rows)
        for ranks in (1, 2):
            out, saved = folder / f"out{ranks}", folder / f"saved{ranks}"
            subprocess.run([self.programs / "model_outputs", folder / "theirs", folder / "tokens",
                            str(SEQUENCES), dtype, str(ranks), out, saved], check=True)
            self.compare(dtype, ranks, out, expected)
            self.same_model(f"saved by {ranks} ranks in {dtype}", saved / "step-00000001", model,
                            expected[0])
        subprocess.run([self.programs / "vocabpipe", "checkpoint", "convert", saved,
                        folder / "converted", "--max-shard-size", "20kB"], check=True,
                       stdout=subprocess.DEVNULL)
        assert (folder / "converted/model.safetensors.index.json").exists()
        self.same_model(f"converted in {dtype}", folder / "converted", model, expected[0])
        self.train(dtype, folder)

    def train(self, dtype, folder):
        """Two steps of training here move every weight by about the learning rate."""
        (folder / "data").write_bytes(self.rows.numpy().astype(numpy.uint16).tobytes())
        subprocess.run([self.programs / "train_gpt", "--transport", "threads", "--ranks", "2",
                        "--load", folder / "theirs", "--dtype", dtype, "--lr", "1e-2",
                        "--seq-length", str(self.rows.shape[1] - 1), "--data-path", folder / "data",
                        "--data-format", "raw-u16", "--global-batch-size", "2",
                        "--train-iters", "2", "--save", folder / "trained"], check=True,
                       stdout=subprocess.DEVNULL)
        step = folder / "trained/step-00000002"
        subprocess.run([self.programs / "model_outputs", step, folder / "tokens", str(SEQUENCES),
                        dtype, "1", folder / "trained_out"], check=True)
        self.compare(dtype, 1, folder / "trained_out", reference(load(step), self.rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path, nargs="?", default=pathlib.Path("build/bin"),
                        help="folder of model_outputs, train_gpt and vocabpipe (default: %(default)s)")
    parser.add_argument("--cases", type=int, default=6, help="of every family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beyond", action="store_true",
                        help="the same models with what few files have; needs transformers 5")
    parser.add_argument("--sinks", action="store_true",
                        help=f"models with attention sinks, of {', '.join(WITH_SINKS)}")
    parser.add_argument("--family", choices=FAMILIES, nargs="+")
    arguments = parser.parse_args()
    families = arguments.family or list(WITH_SINKS if arguments.sinks else FAMILIES)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    good, worst, parameters = True, {}, {}
    for family in families:
        if arguments.sinks:
            add_sinks(family)
        for case in range(arguments.cases):
            with tempfile.TemporaryDirectory() as folder:
                one = Comparison(arguments.programs.resolve(), pathlib.Path(folder), family, case,
                                 arguments.seed, arguments.beyond, arguments.sinks)
                print(f"{family} {case}: {describe(one.config)}", flush=True)
                parameters.setdefault(family, []).append(one.model.num_parameters())
                for dtype in ("fp32", "bf16"):
                    one.run(dtype)
                print("  " + ", ".join(f"{d} {w} {e:.1e} ({e / one.bound(d, w):.0%})"
                                       for (d, w), e in one.worst.items()))
            good &= one.good
            for (dtype, what), error in one.worst.items():
                key = (family, dtype, what)
                worst[key] = max(worst.get(key, 0), error)
    for family, counts in parameters.items():
        print(f"{family:11} {min(counts)} to {max(counts)} parameters")
    print(f"\nlargest relative differences, torch {torch.__version__}, "
          f"transformers {transformers.__version__}, {arguments.cases} models of each family:")
    for (family, dtype, what), error in worst.items():
        print(f"{family:11} {dtype} {what:10} {error:.1e}")
    print("all within their bounds" if good else "WRONG: see above")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
