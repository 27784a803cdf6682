#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training of low-rank adapters here and in PEFT, both ways, on small random models.

    python3 -m venv venv && venv/bin/pip install torch transformers peft safetensors
    venv/bin/python tests/train/checkpoint/compare_peft.py [build/bin] [--family llama gpt2] [--seed 1]

What docs/lora.md reports was run with torch 2.15.0, transformers 5.24.0 and peft 0.21.2.

transformers makes a model, and PEFT adapters for it whose B is not 0. Both are loaded here, and ten
steps of AdamW are taken in fp32 on several meshes; torch takes them in fp64. The losses of all steps
and the adapters after the last one must agree. Then `vocabpipe checkpoint convert` writes the
adapters of the last step for PEFT, which must compute the same logits with them, and merges them into
the model, whose weights must be those that PEFT merges. The step must hold the bits of the model's own
weights. At last the run is stopped after five steps and resumed, which must end in the same bits.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY, LENGTH, SEQUENCES, STEPS = 160, 16, 8, 10
RATE, DECAY = 3e-3, 0.1
MESHES = {
    "p 1": ["--ranks", "1"],
    "p 2, split backward": ["--ranks", "2", "--schedule", "zb-h1"],
    "p 2, d 2": ["--ranks", "4", "--pipeline-model-parallel-size", "2"],
    "p 2, t 2": ["--ranks", "4", "--pipeline-model-parallel-size", "2", "--tensor-model-parallel-size", "2"],
}
# fp32 sums of some tens of terms in a row of operators, in the mean over 128 tokens; ten steps, each
# of which moves an element by about the rate whatever the size of its gradient.
LOSS_BOUND, WEIGHT_BOUND, LOGIT_BOUND = 1e-6, 1e-4, 1e-4

ATTENTION = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, vocab_size=VOCABULARY,
                 max_position_embeddings=64, initializer_range=0.2, use_cache=False)
FAMILIES = {
    "llama": (dict(ATTENTION, num_key_value_heads=2, intermediate_size=48, tie_word_embeddings=False),
              "all-linear"),
    "qwen3": (dict(ATTENTION, num_key_value_heads=2, head_dim=8, intermediate_size=48), ["q_proj", "v_proj"]),
    "gpt2": (dict(n_embd=32, n_layer=4, n_head=4, vocab_size=VOCABULARY, n_positions=64, use_cache=False,
                  initializer_range=0.2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
             ["c_attn", "c_proj", "c_fc"]),
    "gpt_neox": (dict(ATTENTION, intermediate_size=64, rotary_pct=0.5), "all-linear"),
    "phi3": (dict(ATTENTION, num_key_value_heads=2, intermediate_size=48, pad_token_id=0),
             ["qkv_proj", "gate_up_proj"]),
    "mixtral": (dict(ATTENTION, num_key_value_heads=2, intermediate_size=48, num_local_experts=4,
                     num_experts_per_tok=2, router_aux_loss_coef=0.0, output_router_logits=False),
                ["q_proj", "o_proj"]),
}


NAMED_OTHERWISE = {"embed_out.weight": "lm_head.weight"}  # GPT-NeoX's output, by transformers 5


def relative(actual, expected):
    error = (actual.double() - expected.double()).norm()
    return float(error / expected.double().norm()) if error > 0 else 0.0


class Comparison:
    def __init__(self, family, programs, folder, seed):
        self.family, self.programs, self.folder = family, programs, folder
        torch.manual_seed(seed)
        sizes, targets = FAMILIES[family]
        config = AutoConfig.for_model(family, **sizes)
        self.base = folder / "base"
        AutoModelForCausalLM.from_config(config, attn_implementation="eager").save_pretrained(self.base)
        self.lora = LoraConfig(r=4, lora_alpha=10, target_modules=targets, lora_dropout=0.0,
                               task_type="CAUSAL_LM")
        model = get_peft_model(self.model(torch.float32), self.lora)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        self.adapters = folder / "adapters"
        model.save_pretrained(self.adapters)
        rng = numpy.random.default_rng(seed)
        self.tokens = rng.integers(0, VOCABULARY, SEQUENCES * LENGTH + 1).astype(numpy.uint16)
        (folder / "tokens.bin").write_bytes(self.tokens.tobytes())
        self.rows = torch.tensor(numpy.stack(
            [self.tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(SEQUENCES)]).astype(numpy.int64))
        self.good = True
        self.worst = {}  # by what was compared

    def model(self, dtype, folder=None):
        return AutoModelForCausalLM.from_pretrained(folder or self.base, dtype=dtype,
                                                    attn_implementation="eager", experts_implementation="eager")

    def check(self, what, value, bound):
        self.worst[what] = max(value, self.worst.get(what, 0))
        if not value <= bound:
            self.good = False
            print(f"  {self.family}: {what}: {value:.2e} is above {bound:.0e}")

    def adapted(self, dtype, base=None, adapters=None):
        model = PeftModel.from_pretrained(self.model(dtype, base), adapters or self.adapters,
                                          is_trainable=True, autocast_adapter_dtype=False)
        return model.to(dtype)

    def train_with_torch(self):
        model = self.adapted(torch.float64)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)
        losses = []
        for _ in range(STEPS):
            logits = model(input_ids=self.rows[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return model, losses

    def run(self, *arguments):
        done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, arguments))}\n{done.stdout[-2000:]}{done.stderr}")

    def train(self, name, mesh, steps=STEPS, load=None, **flags):
        """Returns the folder of the last step, and the losses."""
        steps_folder = self.folder / name
        metrics = self.folder / (name + ".jsonl")
        loaded = ["--load", load] if load else ["--load", self.base, "--load-adapter", self.adapters]
        self.run(self.programs / "train_gpt", "--transport", "threads", *mesh, *loaded,
                 "--data-path", self.folder / "tokens.bin", "--data-format", "raw-u16",
                 "--seq-length", LENGTH, "--micro-batch-size", 2, "--global-batch-size", SEQUENCES,
                 "--train-iters", steps, "--lr", RATE, "--lr-decay-style", "constant",
                 "--weight-decay", DECAY, "--adam-beta1", 0.9, "--adam-beta2", 0.95, "--adam-eps", 1e-8,
                 "--clip-grad", 0, "--save", steps_folder, "--metrics", metrics)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return steps_folder / f"step-{steps:08d}", [line["loss"] for line in lines if "loss" in line]

    def compare(self):
        model, expected = self.train_with_torch()
        wanted = {k: v for k, v in model.state_dict().items() if "lora_" in k}
        wanted = {k.replace(".default", ""): v for k, v in wanted.items()}
        base = load_file(self.base / "model.safetensors")
        for name, mesh in MESHES.items():
            if self.family == "mixtral" and "t 2" in name:
                continue
            step, losses = self.train(name.replace(" ", "-").replace(",", ""), mesh)
            stored = load_file(step / "model.safetensors")
            self.check("losses",
                       max(abs(a - e) / e for a, e in zip(losses, expected, strict=True)), LOSS_BOUND)
            self.check("adapters", max(relative(stored[k], v) for k, v in wanted.items()), WEIGHT_BOUND)
            own = {NAMED_OTHERWISE.get(k, k) if k not in base else k: v for k, v in stored.items()
                   if "lora_" not in k}
            same = own.keys() == base.keys() and all(torch.equal(own[k], v) for k, v in base.items())
            self.check("changed tensors of the model", float(not same), 0)
        vocabpipe = self.programs / "vocabpipe"
        self.run(vocabpipe, "checkpoint", "verify", step)
        self.run(vocabpipe, "checkpoint", "convert", step, self.folder / "to-peft", "--adapter-only")
        self.run(vocabpipe, "checkpoint", "convert", step, self.folder / "merged")
        self.run(vocabpipe, "checkpoint", "convert", self.base, self.folder / "merged-start",
                 "--load-adapter", self.adapters)
        tokens = self.rows[:, :-1]
        with torch.no_grad():
            ours = self.adapted(torch.float64, adapters=self.folder / "to-peft")
            self.check("logits with our adapters",
                       relative(ours(input_ids=tokens).logits, model(input_ids=tokens).logits), LOGIT_BOUND)
            merged = self.model(torch.float64, self.folder / "merged")
            self.check("logits of the merged model",
                       relative(merged(input_ids=tokens).logits, ours(input_ids=tokens).logits), LOGIT_BOUND)
            start = self.adapted(torch.float64).merge_and_unload().state_dict()
            stored = load_file(self.folder / "merged-start" / "model.safetensors")
            # Ours is the one of PEFT in fp64, rounded once.
            self.check("merged weights beside PEFT's",
                       max(relative(stored[k], start[k]) for k in stored.keys() & start.keys()), 1e-7)
        self.resume()
        print(f"{self.family}: " + ", ".join(f"{what} {value:.1e}" for what, value in self.worst.items()))
        return self.good

    def resume(self):
        mesh = MESHES["p 2, split backward"]
        half, _ = self.train("half", mesh, steps=STEPS // 2)
        resumed, _ = self.train("resumed", mesh, load=half)
        whole, _ = self.train("whole", mesh)
        same = (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        self.check("changed bits of a resumed run", float(not same), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="?", default="build/bin", type=pathlib.Path)
    parser.add_argument("--family", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    good = True
    for family in arguments.family:
        with tempfile.TemporaryDirectory() as folder:
            good &= Comparison(family, arguments.programs, pathlib.Path(folder), arguments.seed).compare()
    print("all agree" if good else "some differ")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
