#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares models that predict several tokens with their definition in PyTorch, in fp64.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/model/compare_predicted_tokens.py [build/bin] [--cases 6] [--seed 1]

Depth k = 1 .. D of DeepSeek-V3 (arXiv 2412.19437, section 2.2) on a Llama or Qwen 3 of transformers:
h^k_i = norm(layer(M [norm(Emb(t_{i+k})); norm(h^{k-1}_i)])), where h^0 is the model's last hidden
state, and the loss adds lambda / D times the cross-entropy of h^k_i and t_{i+k+1}, divided by as many
labels as the model's own. The weights are saved with DeepSeek-V3's names and loaded here on one and
two ranks; loss, losses of the depths and the gradient of every tensor are compared, and what the
ranks save must have the same bits. Errors and bounds are those of compare_transformers.py.
"""
import argparse
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
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

SEQUENCES, OPERATORS = 3, 12
SCALE = 0.1  # lambda, the default of --mtp-loss-scaling-factor


class Depth(torch.nn.Module):
    """The tensors of one depth, with DeepSeek-V3's names."""

    def __init__(self, model):
        super().__init__()
        config, layer = model.config, model.model.layers[-1]
        size, norm = config.hidden_size, type(model.model.norm)
        self.enorm, self.hnorm = norm(size, config.rms_norm_eps), norm(size, config.rms_norm_eps)
        self.eh_proj = torch.nn.Linear(2 * size, size, bias=False)
        self.layer = type(layer)(config, config.num_hidden_layers - 1)
        self.shared_head = torch.nn.ModuleDict({"norm": norm(size, config.rms_norm_eps)})

    def forward(self, embedded, hidden, angles):
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1))
        length = x.shape[1]
        mask = torch.full((1, 1, length, length), -torch.inf, dtype=x.dtype).triu(1)
        out = self.layer(x, attention_mask=mask, position_embeddings=angles)
        return self.shared_head["norm"](out[0] if isinstance(out, tuple) else out)


def later(rows, k):
    """Rows k places later, and 0 beyond the end."""
    moved = rows[:, k:]
    return torch.cat([moved, torch.zeros_like(rows[:, : rows.shape[1] - moved.shape[1]])], 1)


def losses(model, depths, rows):
    """The loss of the next token, and of each depth."""
    tokens, labels = rows[:, :-1], rows[:, 1:]
    embedded = model.model.embed_tokens(tokens)
    hidden = model.model(tokens).last_hidden_state
    angles = model.model.rotary_emb(hidden, torch.arange(tokens.shape[1])[None])
    found = []
    for k in range(len(depths) + 1):
        if k > 0:
            hidden = depths[k - 1](later(embedded, k), hidden, angles)
        logits = model.lm_head(hidden)[:, : labels.shape[1] - k]
        cross_entropy = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, k:].flatten(), reduction="sum")
        found.append(cross_entropy / labels.numel())
    return found


def random_model(pick):
    family, heads = pick.choice(["llama", "qwen3"]), pick.choice([2, 4, 6])
    config = AutoConfig.for_model(
        family, num_attention_heads=heads, num_key_value_heads=pick.choice([1, heads]),
        num_hidden_layers=pick.randint(2, 4), hidden_size=heads * pick.choice([6, 8, 10]),
        head_dim=pick.choice([8, 12]), intermediate_size=pick.randrange(21, 100),
        vocab_size=pick.choice([1009, pick.randrange(61, 400)]), max_position_embeddings=64,
        tie_word_embeddings=pick.random() < 0.5, initializer_range=0.1, bos_token_id=None,
        eos_token_id=None, pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    depths = torch.nn.ModuleList(Depth(model) for _ in range(pick.randint(1, 3)))
    for p in list(model.parameters()) + list(depths.parameters()):
        p.data += 0.05 * torch.randn_like(p)
    return model.eval(), depths.eval()


def named(model, depths):
    """All parameters, by their names in files."""
    tensors = {n: p for n, p in model.named_parameters()}
    for k, depth in enumerate(depths):
        prefix = f"model.layers.{model.config.num_hidden_layers + k}."
        tensors |= {prefix + n.removeprefix("layer."): p for n, p in depth.named_parameters()}
    return tensors


def compare(programs, folder, pick):
    torch.manual_seed(pick.randrange(1 << 30))
    model, depths = random_model(pick)
    config = model.config
    model.save_pretrained(folder / "theirs")
    weights = {n: p.detach().clone().contiguous() for n, p in named(model, depths).items()}
    save_file(weights, folder / "theirs/model.safetensors", {"format": "pt"})
    keys = json.loads((folder / "theirs/config.json").read_text())
    keys["num_nextn_predict_layers"] = len(depths)
    (folder / "theirs/config.json").write_text(json.dumps(keys))
    length = pick.choice([3, pick.randint(20, 40)])
    rows = torch.tensor([[pick.randrange(config.vocab_size) for _ in range(length + 1)]
                         for _ in range(SEQUENCES)])
    (folder / "tokens").write_bytes(rows.numpy().astype(numpy.int32).tobytes())
    print(f"{config.model_type}: {config.num_hidden_layers} layers, depths={len(depths)} "
          f"h={config.hidden_size} V={config.vocab_size} s={length} "
          f"{'tied' if config.tie_word_embeddings else 'untied'}", flush=True)

    model.double(), depths.double()
    want = losses(model, depths, rows)
    (want[0] + SCALE / len(depths) * sum(want[1:])).backward()
    gradients = {n: p.grad for n, p in named(model, depths).items()}
    whole = math.sqrt(sum(g.norm().item() ** 2 for g in gradients.values()))
    operators = 2 * OPERATORS * (config.num_hidden_layers + 1 + len(depths))
    terms = max(config.intermediate_size, 2 * config.hidden_size, config.vocab_size)
    bound = math.sqrt(operators * terms) * 2**-24
    good, worst = True, 0
    for ranks in (1, 2):
        out, saved = folder / f"out{ranks}", folder / f"saved{ranks}"
        subprocess.run([programs / "model_outputs", folder / "theirs", folder / "tokens",
                        str(SEQUENCES), "fp32", str(ranks), out, saved], check=True)
        found = load_file(out)
        errors = {"loss": abs(found["loss"].item() / want[0].item() - 1)}
        for k in range(1, len(want)):
            have = found["depth_losses"][k - 1].item() / (SCALE / len(depths))
            errors[f"mtp_{k} loss"] = abs(have - want[k].item()) / max(1, want[k].item())
        for name, gradient in gradients.items():
            have = found["grad/" + name].reshape(gradient.shape).double()
            errors[name] = (have - gradient).norm().item() / max(gradient.norm().item(),
                                                                  1e-2 * whole)
        for name, error in errors.items():
            worst = max(worst, error)
            if not error <= bound:
                good = False
                print(f"WRONG {name} on {ranks} ranks: {error:.2e}, bound {bound:.2e}")
        step = saved / "step-00000001"
        kept = load_file(step / "model.safetensors")
        if kept.keys() != weights.keys() or not all(torch.equal(kept[n], w)
                                                    for n, w in weights.items()):
            good = False
            print(f"WRONG: saved by {ranks} ranks: other weights")
        if json.loads((step / "config.json").read_text())["num_nextn_predict_layers"] != len(depths):
            good = False
            print("WRONG: num_nextn_predict_layers of config.json")
    print(f"  largest relative difference {worst:.1e} ({worst / bound:.0%} of the bound)")
    return good, worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path, nargs="?", default=pathlib.Path("build/bin"),
                        help="folder of model_outputs (default: %(default)s)")
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    good, worst = True, 0
    for case in range(arguments.cases):
        with tempfile.TemporaryDirectory() as folder:
            one, error = compare(arguments.programs.resolve(), pathlib.Path(folder),
                                 random.Random(f"{arguments.seed} {case}"))
            good, worst = good and one, max(worst, error)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"{arguments.cases} models: largest relative difference {worst:.1e}")
    print("all within their bounds" if good else "WRONG: see above")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
