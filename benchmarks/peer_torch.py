# SPDX-License-Identifier: Apache-2.0
"""The training step of GPT-2 in PyTorch, for benchmarks/compare_peers.sh.

    peer_torch.py eager|compiled|autotuned|pipelined|replicated|tensor
    peer_torch.py eager+pure|autotuned+pure|eager+chunked|...

Follows that script's protocol for peers: everything comes by VOCABPIPE_PEER_* variables, one line
"step N loss L seconds S" per step goes out. The model is read from a folder with config.json and
model.safetensors under Hugging Face's names. What PyTorch offers for speed on a CPU is used: fused
attention, AdamW(fused=True), oneDNN products.

fp32: everything in fp32. bf16: autocast, that is weights, their gradients and the optimizer in fp32,
products and attention in bf16 (weights are converted in every step); norms, softmax and loss in fp32.

compiled: torch.compile; autotuned: with mode="max-autotune", which also times kernels of its own.
pure, bf16 only: weights and their gradients are bf16, beside fp32 masters that the optimizer updates, as
in VocabPipe. chunked: logits and loss of a quarter of the tokens at a time, computed again in the
backward, so that no tensor has all logits.

pipelined: torch.distributed.pipelining, Schedule1F1B on gloo, one process per rank, microbatches of
one sequence. Layers are split so that both ranks have the same work (the output layer is worth 5.4
layers, so 9 + 3 of GPT-2's 12 on two ranks). The tied embedding is on both end ranks and its gradients
are added up, as Megatron does; the gradient norm is the global one.

replicated: DistributedDataParallel on gloo, a process per rank, each with its share of the sequences.

tensor: torch.distributed.tensor.parallel on gloo, a process per rank: linear layers by columns and rows,
what is between them by tokens (SequenceParallel), embedding and output layer by rows of the vocabulary,
with loss_parallel().
"""
import json
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn as nn
import torch.nn.functional as F

# As train_gpt's defaults.
ADAMW = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8}
WEIGHT_DECAY = 0.1  # of matrices, also where one tensor holds those of all experts
CLIP_GRAD = 1.0
NOT_OFFERED = 77  # exit code of compare_peers.sh's protocol


def read_safetensors(path):
    """Tensors by name: a length, a JSON header with types, shapes and offsets, then the bytes."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(bytes(data[8 : 8 + length]))
    header.pop("__metadata__", None)
    types = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = types[entry["dtype"]]
        flat = torch.frombuffer(
            data, dtype=dtype, count=(end - begin) // dtype.itemsize, offset=8 + length + begin
        )
        tensors[name.removeprefix("transformer.")] = flat.reshape(entry["shape"]).float()
    return tensors


class Block(nn.Module):
    """A layer of GPT-2: h.N of the checkpoint, whose linear weights are [in, out]."""

    def __init__(self, config):
        super().__init__()
        width, self.heads = config["n_embd"], config["n_head"]
        inner = config.get("n_inner") or 4 * width
        epsilon = config["layer_norm_epsilon"]
        self.ln_1 = nn.LayerNorm(width, epsilon)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width, epsilon)
        self.c_fc = nn.Linear(width, inner)
        self.mlp_c_proj = nn.Linear(inner, width)

    def load(self, tensors, prefix):
        parts = {
            "ln_1": self.ln_1,
            "attn.c_attn": self.c_attn,
            "attn.c_proj": self.c_proj,
            "ln_2": self.ln_2,
            "mlp.c_fc": self.c_fc,
            "mlp.c_proj": self.mlp_c_proj,
        }
        for name, part in parts.items():
            weight = tensors[f"{prefix}{name}.weight"]
            part.weight.data = (weight.t() if weight.dim() == 2 else weight).contiguous()
            part.bias.data = tensors[f"{prefix}{name}.bias"].clone()

    def forward(self, x):
        qkv = self.c_attn(self.ln_1(x))
        batch, length, width = qkv.shape  # with tensor parallelism of this rank's heads
        qkv = qkv.view(batch, length, 3, self.heads, width // 3 // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width // 3))
        return x + self.mlp_c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Stage(nn.Module):
    """Layers [first, last) of the model, with the embedding before the first layer and the output
    layer behind the last one. All of them: the whole model."""

    def __init__(self, config, tensors, first, last, bf16):
        super().__init__()
        self.bf16 = bf16
        self.returns_hidden = False  # what goes into the output layer, instead of logits
        self.is_first, self.is_last = first == 0, last == config["n_layer"]
        if self.is_first or self.is_last:
            self.wte = nn.Parameter(tensors["wte.weight"].clone())
        if self.is_first:
            self.wpe = nn.Parameter(tensors["wpe.weight"].clone())
        self.h = nn.ModuleList()
        for layer in range(first, last):
            self.h.append(Block(config))
            self.h[-1].load(tensors, f"h.{layer}.")
        if self.is_last:
            self.ln_f = nn.LayerNorm(config["n_embd"], config["layer_norm_epsilon"])
            self.ln_f.weight.data = tensors["ln_f.weight"].clone()
            self.ln_f.bias.data = tensors["ln_f.bias"].clone()

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            if self.is_first:
                x = F.embedding(x, self.wte) + self.wpe[: x.shape[1]]
            for block in self.h:
                x = block(x)
            if not self.is_last:
                return x
            x = self.ln_f(x)
            return x if self.returns_hidden else F.linear(x, self.wte)


def loss_of(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def make_optimizer(model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": decayed, "weight_decay": WEIGHT_DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, fused=True, **ADAMW)


def time_steps(step, speaks=True):
    """Runs step(), which returns the loss, as often as asked; prints a line for each."""
    for number in range(1, int(os.environ["VOCABPIPE_PEER_STEPS"]) + 1):
        begin = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - begin
        if speaks:
            print(f"step {number} loss {loss:.6f} seconds {seconds:.6f}", flush=True)


class Inputs:
    """What the script hands over; read by every process for itself."""

    def __init__(self):
        folder = os.environ["VOCABPIPE_PEER_MODEL"]
        with open(folder + "/config.json") as file:
            self.config = json.load(file)
        self.tensors = read_safetensors(folder + "/model.safetensors")
        self.bf16 = os.environ["VOCABPIPE_PEER_DTYPE"] == "bf16"
        with open(os.environ["VOCABPIPE_PEER_TOKENS"], "rb") as file:
            stream = torch.tensor(list(struct.iter_unpack("<H", file.read()))).flatten()
        length = int(os.environ["VOCABPIPE_PEER_SEQ_LENGTH"])
        self.tokens, self.labels = stream[:-1].view(-1, length), stream[1:].view(-1, length)

    def stage(self, first, last):
        return Stage(self.config, self.tensors, first, last, self.bf16)


class Masters:
    """fp32 copies of bf16 parameters, which the optimizer updates instead."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.copies = nn.ParameterList(p.detach().float() for p in self.parameters)

    def step(self, optimizer):
        for parameter, copy in zip(self.parameters, self.copies):
            copy.grad = parameter.grad.float()
            parameter.grad = None
        nn.utils.clip_grad_norm_(self.copies, CLIP_GRAD)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, list(self.copies))


def loss_by_chunks(x, wte, labels, chunks=4):
    """loss_of(x wte^T) without keeping logits."""
    from torch.utils.checkpoint import checkpoint

    def sum_of(x, labels):
        return F.cross_entropy(F.linear(x, wte).float(), labels, reduction="sum")

    x, labels = x.flatten(0, 1), labels.flatten()
    sums = [
        checkpoint(sum_of, *part, use_reentrant=False)
        for part in zip(x.chunk(chunks), labels.chunk(chunks))
    ]
    return torch.stack(sums).sum() / len(labels)


def run_whole(how):
    ways = how.split("+")
    torch.set_num_threads(int(os.environ["VOCABPIPE_PEER_THREADS"]))
    inputs = Inputs()
    pure = "pure" in ways
    if pure and not inputs.bf16:
        sys.exit(NOT_OFFERED)
    model = inputs.stage(0, inputs.config["n_layer"])
    if pure:
        model.bf16 = False  # no autocast
        model.to(torch.bfloat16)
    masters = Masters(model) if pure else None
    optimizer = make_optimizer(masters.copies if pure else model)
    model.returns_hidden = "chunked" in ways

    def forward(tokens, labels):
        if not model.returns_hidden:
            return loss_of(model(tokens), labels)
        with torch.autocast("cpu", torch.bfloat16, enabled=model.bf16):
            return loss_by_chunks(model(tokens), model.wte, labels)

    if "compiled" in ways or "autotuned" in ways:
        forward = torch.compile(forward, mode="max-autotune" if "autotuned" in ways else None)

    def step():
        loss = forward(inputs.tokens, inputs.labels)
        loss.backward()
        if pure:
            masters.step(optimizer)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP_GRAD)
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    time_steps(step)


def layers_of(config, rank, ranks):
    """[first, last) of a rank, the output layer counted by its products' FLOPs."""
    layer = 12 * config["n_embd"] ** 2
    output = config["vocab_size"] * config["n_embd"] / layer
    share = (config["n_layer"] + output) / ranks
    cut = [min(round(share * r), config["n_layer"]) for r in range(ranks)] + [config["n_layer"]]
    return cut[rank], cut[rank + 1]


def join(rank, ranks):
    """A core of its own and the other ranks for one of several processes."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(int(os.environ["VOCABPIPE_PEER_THREADS"]))
    store = os.environ["VOCABPIPE_PEER_SCRATCH"] + "/gloo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)


def run_replicated(rank, ranks):
    join(rank, ranks)
    inputs = Inputs()
    tokens, labels = inputs.tokens.chunk(ranks)[rank], inputs.labels.chunk(ranks)[rank]
    model = nn.parallel.DistributedDataParallel(inputs.stage(0, inputs.config["n_layer"]))
    optimizer = make_optimizer(model)

    def step():
        loss = loss_of(model(tokens), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_GRAD)
        optimizer.step()
        optimizer.zero_grad()
        report = loss.detach() / ranks
        dist.all_reduce(report)
        return report.item()

    time_steps(step, speaks=rank == 0)
    dist.destroy_process_group()


def run_pipelined(rank, ranks):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    join(rank, ranks)
    inputs = Inputs()
    model = inputs.stage(*layers_of(inputs.config, rank, ranks))
    optimizer = make_optimizer(model)
    ends = dist.new_group([0, ranks - 1])
    pipeline = Schedule1F1B(
        PipelineStage(model, rank, ranks, torch.device("cpu")),
        n_microbatches=len(inputs.tokens),
        loss_fn=loss_of,
    )
    counted_elsewhere = {id(model.wte)} if model.is_last and not model.is_first else set()

    def step():
        losses = []
        if model.is_first:
            pipeline.step(inputs.tokens)
        elif model.is_last:
            pipeline.step(target=inputs.labels, losses=losses)
        else:
            pipeline.step()
        if model.is_first or model.is_last:
            dist.all_reduce(model.wte.grad, group=ends)
        squares = [
            p.grad.square().sum() for p in model.parameters() if id(p) not in counted_elsewhere
        ]
        report = torch.stack([torch.stack(squares).sum(), torch.tensor(0.0)])
        if losses:
            report[1] = torch.stack(losses).mean().detach()
        dist.all_reduce(report)
        norm = report[0].sqrt()
        nn.utils.clip_grads_with_norm_(model.parameters(), CLIP_GRAD, norm)
        optimizer.step()
        optimizer.zero_grad()
        return report[1].item()

    time_steps(step, speaks=rank == 0)
    dist.destroy_process_group()


class TensorParallelModel(nn.Module):
    """The model as DTensors. Tensors between layers are cut along the tokens."""

    def __init__(self, inputs, mesh):
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            SequenceParallel,
            parallelize_module,
        )

        super().__init__()
        ranks = mesh.size()
        whole = inputs.stage(0, inputs.config["n_layer"])
        self.bf16 = inputs.bf16
        self.embedding = nn.Embedding.from_pretrained(whole.wte.data, freeze=False)
        self.h, self.ln_f = whole.h, whole.ln_f
        self.head = nn.Linear(whole.wte.shape[1], whole.wte.shape[0], bias=False)
        for block in self.h:  # a rank's rows of q, of k and of v next to each other
            block.heads //= ranks
            for values in block.c_attn.parameters():
                parts = values.data.unflatten(0, (3, ranks, -1)).transpose(0, 1)
                values.data = parts.flatten(0, 2).contiguous()
        by_tokens = {"input_layouts": Shard(1), "use_local_output": True}
        to_tokens = {"output_layouts": Shard(1), "use_local_output": False}
        plan = {
            "embedding": RowwiseParallel(input_layouts=Replicate(), **to_tokens),
            "ln_f": SequenceParallel(),
            "head": ColwiseParallel(
                input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
            ),
        }
        for layer in range(len(self.h)):
            plan |= {
                f"h.{layer}.ln_1": SequenceParallel(),
                f"h.{layer}.c_attn": ColwiseParallel(**by_tokens),
                f"h.{layer}.c_proj": RowwiseParallel(**to_tokens),
                f"h.{layer}.ln_2": SequenceParallel(),
                f"h.{layer}.c_fc": ColwiseParallel(**by_tokens),
                f"h.{layer}.mlp_c_proj": RowwiseParallel(**to_tokens),
            }
        parallelize_module(self, mesh, plan)
        self.head.weight = self.embedding.weight
        self.wpe = nn.Parameter(distribute_tensor(whole.wpe.data, mesh, [Replicate()]))

    def forward(self, tokens):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            x = self.embedding(tokens) + self.wpe[: tokens.shape[1]]
            for block in self.h:
                x = block(x)
            return self.head(self.ln_f(x))


def run_tensor(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import loss_parallel

    join(rank, ranks)
    inputs = Inputs()
    model = TensorParallelModel(inputs, init_device_mesh("cpu", (ranks,)))
    optimizer = make_optimizer(model)

    def step():
        with loss_parallel():
            loss = loss_of(model(inputs.tokens), inputs.labels)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_GRAD)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    time_steps(step, speaks=rank == 0)
    dist.destroy_process_group()


def main():
    how = sys.argv[1]
    if how.split("+")[0] in ("eager", "compiled", "autotuned"):
        run_whole(how)
        return
    ranks = int(os.environ["VOCABPIPE_PEER_RANKS"])
    run = {"pipelined": run_pipelined, "replicated": run_replicated, "tensor": run_tensor}[how]
    torch.multiprocessing.spawn(run, args=(ranks,), nprocs=ranks)


if __name__ == "__main__":
    main()
