#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes every key and every tensor of a model of every family, and asks transformers what that computes.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/model/change_models.py [build/bin] [--family mixtral olmoe]
        [--write tests/model/changed_models.json]

A key of config.json is deleted, set to null, and set to other values of its kind; keys that only other families
have are added. A tensor is deleted, renamed, given another shape or other values. transformers computes a loss from
the changed folder, or does not: where it stops, and where it would make up weights or leave some of the file out.
Right is the same loss, or a refusal; where transformers stops, a refusal. What is printed: losses that differ
(WRONG), losses where transformers has none (ACCEPTED), and refusals of what transformers computes (REFUSED), which
docs/models.md must explain. --write keeps what transformers said for changed_models_test, which needs neither
Python nor transformers: weights are a formula of their names.
"""
import argparse
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import zlib

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from compare_transformers import FAMILIES, PLAIN, random_config

SEQUENCES, LENGTH = 2, 20
ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu", "silu", "nothing"]
# Keys of any family, and of models that might be taken for one of these; added where a family has no such key.
ADDED = {
    "attention_bias": True, "mlp_bias": True, "qkv_bias": True, "bias": True, "use_bias": True, "head_dim": 12,
    "num_key_value_heads": 1, "sliding_window": 3, "use_sliding_window": True, "max_window_layers": 1,
    "sliding_window_pattern": 2, "layer_types": ["sliding_attention", "full_attention"], "no_rope_layers": [1, 0],
    "no_rope_layer_interval": 2, "partial_rotary_factor": 0.5, "rotary_pct": 0.5, "rope_theta": 50.0,
    "rope_local_base_freq": 50.0, "rotary_emb_base": 50, "rope_scaling": {"type": "linear", "factor": 2.0},
    "original_max_position_embeddings": 8, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0,
    "query_pre_attn_scalar": 17, "hidden_act": "relu", "hidden_activation": "relu", "activation_function": "relu",
    "tie_word_embeddings": True, "use_parallel_residual": False, "clip_qkv": 0.5, "logit_scale": 2.0,
    "logits_scaling": 2.0, "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.1,
    "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "add_cross_attention": True,
    "qk_layernorm": True, "use_qk_norm": True, "parallel_attn": True, "num_experts": 2, "num_local_experts": 2,
    "num_experts_per_tok": 1, "norm_topk_prob": True, "n_routed_experts": 2, "n_shared_experts": 1,
    "routed_scaling_factor": 2.0, "decoder_sparse_step": 2, "mlp_only_layers": [0], "first_k_dense_replace": 1,
    "attn_implementation": "eager", "use_cache": False, "pretraining_tp": 2, "quantization_config": {"bits": 4},
    "attention_dropout": 0.0, "hidden_dropout": 0.0, "layer_norm_epsilon": 0.1, "layer_norm_eps": 0.1,
    "rms_norm_eps": 0.1, "use_mrope": True, "use_bidirectional_attention": True, "is_decoder": False,
    "attention_chunk_size": 4, "cache_implementation": "static", "an_unknown_key": 7,
}
# Which the program takes from the folder's name, or that are notes of who saved it.
NOTES = {"architectures", "transformers_version", "torch_dtype", "dtype", "model_type", "_name_or_path"}


def draw(family):
    """A model of two layers with as much of the family as the first case has, and its folder's content."""
    pick = random.Random(family)
    config = random_config(family, pick, 3, False)
    return config


def weight(name, shape):
    """Numbers in [-0.5, 0.5), those of norms around 1: exact in fp32, and the same in C++."""
    state = zlib.crc32(name.encode())
    count = int(numpy.prod(shape))
    values = numpy.empty(count, numpy.float32)
    for i in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        values[i] = (state >> 20) / 4096.0 - 0.5
    if "norm" in name or "ln_" in name:
        values = values + numpy.float32(1)
    return torch.from_numpy(values.reshape(shape))


def tokens(vocab_size):
    rows = [[(7 * s + 11 * i * i + 3 * i) % vocab_size for i in range(LENGTH + 1)] for s in range(SEQUENCES)]
    return torch.tensor(rows)


def loss_of(folder, rows):
    """As transformers computes it, or why it does not."""
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, dtype=torch.float32, **PLAIN)
        tied = model.config.tie_word_embeddings
        missing = [k for k in info["missing_keys"] if k not in ("lm_head.weight", "embed_out.weight") or not tied]
        for what, found in (("missing", missing), ("unexpected", info["unexpected_keys"]),
                            ("mismatched", info["mismatched_keys"])):
            if found:
                return None, f"{what}: {sorted(map(str, found))[0]}"
        with torch.no_grad():
            logits = copy.deepcopy(model).eval()(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), rows[:, 1:].flatten())
        return (loss.item(), "") if torch.isfinite(loss) else (None, "not finite")
    except Exception as error:  # of any kind: what it means is that there is no model
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:120]


def other_values(key, value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, 0, 1, -1] if value else [1, 2]
    if isinstance(value, float):
        return [2 * value, value / 2] if value else [0.5]
    if isinstance(value, str):
        if "act" in key:
            return ACTIVATIONS
        if key in ("rope_type", "type"):
            return ["default", "linear", "dynamic", "yarn", "longrope", "llama3", "nothing"]
        return ["nothing"]
    if isinstance(value, list) and value:
        flip = {"sliding_attention": "full_attention", "full_attention": "sliding_attention"}
        other = [flip.get(v, v) if isinstance(v, str) else 1 - v if v in (0, 1) else v * 2 for v in value]
        return [other, value[:-1], value + value[-1:]]
    return [3.0 if "softcapping" in key else 3]


def changes_of(config):
    """Lists of [path of keys, new value]; without a value the key is deleted."""
    def of(keys, path):
        for key, value in keys.items():
            if key in NOTES:
                continue
            at = path + [key]
            yield [at]
            if value is not None:
                yield [at, None]
            if isinstance(value, dict):
                yield from of(value, at)
            for other in other_values(key, value):
                if other != value or isinstance(other, bool) != isinstance(value, bool):
                    yield [at, other]
    yield from of(config, [])
    for key, value in ADDED.items():
        if key not in config:
            yield [[key], value]


def changed(config, change):
    config = copy.deepcopy(config)
    path, inner = change[0], config
    for key in path[:-1]:
        inner = inner[key]
    if len(change) == 1:
        del inner[path[-1]]
    else:
        inner[path[-1]] = change[1]
    return config


def tensor_changes(shapes):
    for name, shape in shapes.items():
        yield ["delete", name]
        yield ["rename", name]
        yield ["values", name]
        yield ["shape", name]
    yield ["add", "model.an_unknown.weight"]
    yield ["add", "lm_head.bias"]


def changed_tensors(tensors, change):
    what, name = change
    tensors = dict(tensors)
    if what == "delete":
        del tensors[name]
    elif what == "rename":
        tensors[name + ".other"] = tensors.pop(name)
    elif what == "values":
        tensors[name] = weight(name + " changed", tuple(tensors[name].shape))
    elif what == "shape":
        tensors[name] = torch.cat([tensors[name], tensors[name][:1]])
    elif what == "add":
        tensors[name] = torch.zeros(4)
    return tensors


class Ours:
    def __init__(self, programs, folder, rows):
        self.programs, self.folder = programs, folder
        (folder / "tokens").write_bytes(rows.numpy().astype(numpy.int32).tobytes())

    def loss(self, folder):
        out = self.folder / "out"
        out.unlink(missing_ok=True)
        ran = subprocess.run([self.programs / "model_outputs", folder, self.folder / "tokens", str(SEQUENCES),
                              "fp32", "1", out], capture_output=True, text=True, timeout=120)
        if ran.returncode == 0:
            return load_file(out)["loss"].item(), ""
        if ran.returncode < 0 or ran.returncode > 7:
            return None, f"EXIT {ran.returncode} {ran.stderr[-200:]}"
        return None, ran.stderr.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path, nargs="?", default=pathlib.Path("build/bin"),
                        help="folder of model_outputs (default: %(default)s)")
    parser.add_argument("--family", choices=FAMILIES, nargs="+", default=FAMILIES)
    parser.add_argument("--write", type=pathlib.Path, help="a file for what transformers said")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    families, wrong = {}, 0
    for family in arguments.family:
        with tempfile.TemporaryDirectory() as area:
            area = pathlib.Path(area)
            model = AutoModelForCausalLM.from_config(draw(family), **PLAIN)
            model.save_pretrained(area / "drawn")
            config = json.loads((area / "drawn/config.json").read_text())
            shapes = {n: tuple(t.shape) for n, t in load_file(area / "drawn/model.safetensors").items()}
            tensors = {n: weight(n, s) for n, s in shapes.items()}
            rows = tokens(config["vocab_size"])
            ours = Ours(arguments.programs.resolve(), area, rows)
            folder = area / "model"
            folder.mkdir()

            def ask(config, tensors):
                (folder / "config.json").write_text(json.dumps(config, indent=1))
                save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
                return loss_of(folder, rows), ours.loss(folder)

            (base, why), (mine, error) = ask(config, tensors)
            print(f"{family}: {base} here {mine} {why} {error}", flush=True)
            rows_of_file = []
            cases = [("key", c, changed(config, c), tensors) for c in changes_of(config)]
            cases += [("tensor", c, config, changed_tensors(tensors, c)) for c in tensor_changes(shapes)]
            for kind, change, new_config, new_tensors in cases:
                (theirs, why), (mine, error) = ask(new_config, new_tensors)
                rows_of_file.append([kind, change, theirs])
                label = f"{family} {json.dumps(change)}"
                if error.startswith("EXIT"):
                    print(f"CRASH {label}: {error}")
                    wrong += 1
                elif theirs is not None and mine is not None:
                    if abs(mine - theirs) > 2e-6 * abs(theirs):
                        print(f"WRONG {label}: {mine:.6f}, transformers {theirs:.6f} (unchanged {base:.6f})")
                        wrong += 1
                elif theirs is None and mine is not None:
                    print(f"ACCEPTED {label}: {mine:.6f} (unchanged {base:.6f}), transformers: {why}")
                elif theirs is not None:
                    print(f"REFUSED {label}: transformers {theirs:.6f} (unchanged {base:.6f}): {error[:160]}")
            sys.stdout.flush()
            families[family] = dict(config=config, tensors=shapes, loss=base, changes=rows_of_file)
    if arguments.write:
        lines = [f'"{family}":\n{json.dumps({k: v for k, v in of.items() if k != "changes"})[:-1]}, "changes": [\n' +
                 ",\n".join(json.dumps(row) for row in of["changes"]) + "]}" for family, of in families.items()]
        arguments.write.write_text("{\n" + ",\n".join(lines) + "}\n")
    print("WRONG: see above" if wrong else "nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
