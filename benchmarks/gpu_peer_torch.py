# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of benchmarks/gpu_peers.sh: what VocabPipe computes, as PyTorch computes it on the same GPU.

    gpu_peer_torch.py output-layer --tokens 4096 --hidden-size 4096 --rows 128256 ...
    gpu_peer_torch.py step --num-layers 12 --hidden-size 768 ... [--write FOLDER]
    gpu_peer_torch.py experts --tokens 4096 --experts 128 --top-k 8 ...

Every variant prints one line as soon as it is known, fields separated by tabs:

    result <TAB> variant <TAB> milliseconds <TAB> losses, by spaces, or - <TAB> note
    none   <TAB> variant <TAB> why there is no result

--seconds is the time of the whole process: variants that would begin later are left out. Variants come in
the order in which they are wanted.

output-layer: logits, softmax cross-entropy, dX, and dW added to fp32 gradients, as VocabPipe accumulates
them. Medians of --rounds by CUDA events; the note has the time without the addition.

step: forward and backward of all microbatches, gradients added up in fp32, norm clipped at 1, fused AdamW on
fp32 masters, weights copied to bf16: what VocabPipe keeps in which type. The clock is the host's, from one
finished step to the next, as in bench_step. Every variant begins with the same weights; the losses are those of the
first three steps. --write saves weights and tokens as train_gpt reads them. The vocabulary is padded to a
multiple of 64, which PyTorch's products need to be fast; a bias takes the padding out of the softmax.

experts: the grouped products of bench_experts, by torch.nn.functional.grouped_mm.
"""
import argparse
import gc
import json
import os
import statistics
import struct
import sys
import time

BEGIN = time.perf_counter()  # before the import, which takes seconds

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CLIP_GRAD = 1.0
WEIGHT_DECAY = 0.1  # of matrices, as train_gpt's default
CHUNK = 1024  # tokens
COUNTED_LOSSES = 3


class Left(Exception):
    """A variant that cannot be offered here."""


def say(*fields):
    print(*fields, sep="\t", flush=True)


def reason(error):
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:160]}".replace("\t", " ").replace("|", "/")


def forget():
    """Gives back what the last variant held."""
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_variants(variants, seconds):
    """Calls each, which returns (milliseconds, losses, note). One that fails does not stop the others."""
    results = {}
    longest = 0
    for name, run in variants:
        begin = time.perf_counter()
        if results and begin - BEGIN + longest > seconds:
            say("none", name, f"no time left, {begin - BEGIN:.0f} s of {seconds:.0f} have passed")
            continue
        try:
            milliseconds, losses, note = run()
        except Left as error:
            say("none", name, str(error))
        except torch.OutOfMemoryError:
            say("none", name, "does not fit the GPU's memory")
        except Exception as error:
            say("none", name, reason(error))
            if "CUDA error" in str(error):  # all later calls fail, too
                sys.exit(1)
        else:
            results[name] = milliseconds
            losses = " ".join(f"{loss:.5f}" for loss in losses) or "-"
            took = time.perf_counter() - begin
            longest = max(longest, took)
            say("result", name, f"{milliseconds:.3f}", losses, f"{note}{took:.0f} s with compilation")
        forget()
    if not results:
        sys.exit(1)


class Clock:
    """Time between marks on the GPU, by its events; on a CPU by the host's clock."""

    def __init__(self, device):
        self.on_gpu = device == "cuda"
        self.marks = []

    def mark(self):
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def milliseconds(self, first, last):
        if self.on_gpu:
            self.marks[last].synchronize()
            return self.marks[first].elapsed_time(self.marks[last])
        return 1e3 * (self.marks[last] - self.marks[first])


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


# --- the output layer


def loss_of(x, w, labels):
    return F.cross_entropy(F.linear(x, w).float(), labels)


def sum_of_losses(x, w, labels):
    return F.cross_entropy(F.linear(x, w).float(), labels, reduction="sum")


def backward_by_chunks(sum_of):
    """No tensor has all logits: every chunk's gradients are made before the next chunk's logits."""

    def run(x, w, labels):
        total = 0
        for part, wanted in zip(x.split(CHUNK), labels.split(CHUNK)):
            loss = sum_of(part, w, wanted) / len(labels)
            loss.backward()
            total = total + loss.detach()
        return total

    return run


def backward(loss):
    def run(x, w, labels):
        value = loss(x, w, labels)
        value.backward()
        return value.detach()

    return run


def how_to_compile(device):
    """On a CPU nothing is generated: that takes minutes, and is other code than a GPU's."""
    return {"dynamic": False, "backend": "inductor" if device == "cuda" else "aot_eager"}


def compiled(function, device):
    return torch.compile(function, **how_to_compile(device))


def softmax_gradient(logits, labels):
    """Losses and (softmax - one-hot) / N."""
    wide = logits.float()
    log_z = torch.logsumexp(wide, 1, keepdim=True)
    wanted = labels.unsqueeze(1)
    columns = torch.arange(logits.shape[1], device=logits.device)
    gradient = torch.exp(wide - log_z) - (columns == wanted).float()
    return log_z - wide.gather(1, wanted), (gradient / len(labels)).to(logits.dtype)


def add_product(main, a, b):
    """main += a b in fp32: inside the product where there is a GPU."""
    if main.is_cuda:
        torch.addmm(main, a, b, out_dtype=main.dtype, out=main)
    else:
        main += a @ b


def by_hand(x, w, labels, main):
    """Without autograd: three products, the last one added to the fp32 gradients by cuBLAS."""
    softmax = compiled(softmax_gradient, x.device.type)

    def run():
        losses, gradient = softmax(F.linear(x, w), labels)
        dx = gradient @ w
        add_product(main, gradient.t(), x)
        return losses.mean(), dx

    return run


def liger(x, w, labels):
    try:
        from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
    except ImportError as error:
        raise Left(reason(error)) from error
    loss = LigerFusedLinearCrossEntropyFunction.apply(x, w, labels)
    loss = loss[0] if isinstance(loss, tuple) else loss
    loss.backward()
    return loss.detach()


def own_chunked(x, w, labels):
    if not hasattr(F, "linear_cross_entropy"):
        raise Left(f"torch {torch.__version__} has no linear_cross_entropy")
    loss = F.linear_cross_entropy(x, w, labels)
    loss.backward()
    return loss.detach()


def run_output_layer(options):
    n, h, v, device = options.tokens, options.hidden_size, options.rows, options.device
    torch.manual_seed(1)
    x = torch.randn(n, h, device=device).bfloat16().requires_grad_()
    w = torch.empty(v, h, dtype=torch.bfloat16, device=device)
    w.normal_(0, h**-0.5).requires_grad_()
    labels = torch.arange(n, device=device) * 7919 % v
    main = torch.zeros(v, h, device=device)

    def timed(call):
        """Of call(), which fills w.grad, and of adding that to the fp32 gradients."""

        def round_of(clock):
            x.grad = w.grad = None
            clock.mark()
            loss = call(x, w, labels)
            clock.mark()
            main.add_(w.grad)
            clock.mark()
            return loss

        def run():
            for _ in range(2):
                loss = round_of(Clock(device))
            clocks = [Clock(device) for _ in range(options.rounds)]
            for clock in clocks:
                round_of(clock)
            whole = statistics.median(clock.milliseconds(0, 2) for clock in clocks)
            bare = statistics.median(clock.milliseconds(0, 1) for clock in clocks)
            return whole, [float(loss)], f"{bare:.3f} ms without adding dW in fp32; "

        return run

    def timed_by_hand():
        with torch.no_grad():
            call = by_hand(x.detach(), w.detach(), labels, main)
            for _ in range(2):
                loss, _ = call()
            clocks = [Clock(device) for _ in range(options.rounds)]
            for clock in clocks:
                clock.mark()
                call()
                clock.mark()
            return statistics.median(c.milliseconds(0, 1) for c in clocks), [float(loss)], ""

    run_variants(
        [
            ("eager", timed(backward(loss_of))),
            ("compiled", timed(backward(compiled(loss_of, device)))),
            ("chunked", timed(backward_by_chunks(sum_of_losses))),
            ("chunked compiled", timed(backward_by_chunks(compiled(sum_of_losses, device)))),
            ("by hand", timed_by_hand),
            ("Liger", timed(liger)),
            ("linear_cross_entropy", timed(own_chunked)),
        ],
        options.seconds,
    )


# --- steps of GPT-2


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.c_attn(self.ln_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class OutputLayer(nn.Module):
    def __init__(self, width, vocabulary, padded):
        super().__init__()
        self.ln_f = nn.LayerNorm(width)
        bias = torch.zeros(padded)
        bias[vocabulary:] = -1e4
        self.register_buffer("padding", bias)

    def forward(self, x, wte, labels):
        logits = F.linear(self.ln_f(x).flatten(0, 1), wte, self.padding)
        return F.cross_entropy(logits.float(), labels.flatten())


class Gpt2(nn.Module):
    def __init__(self, options):
        super().__init__()
        o = options
        padded = (o.vocab_size + 63) // 64 * 64
        self.wte = nn.Parameter(torch.zeros(padded, o.hidden_size))
        self.wpe = nn.Parameter(torch.zeros(o.seq_length, o.hidden_size))
        self.h = nn.ModuleList(Block(o.hidden_size, o.num_attention_heads) for _ in range(o.num_layers))
        self.output = OutputLayer(o.hidden_size, o.vocab_size, padded)
        generator = torch.Generator(self.wte.device).manual_seed(1)
        residual = 0.02 * (2 * o.num_layers) ** -0.5  # as GPT-2 begins
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    rows = p[: o.vocab_size] if p is self.wte else p
                    rows.normal_(0, residual if "c_proj" in name else 0.02, generator=generator)
                elif name.endswith("bias"):
                    p.zero_()

    def forward(self, tokens, labels):
        x = F.embedding(tokens, self.wte) + self.wpe
        for block in self.h:
            x = block(x)
        return self.output(x, self.wte, labels)


class Masters:
    """fp32 copies of the weights, with fp32 gradients."""

    def __init__(self, model, lr):
        self.weights = list(model.parameters())
        self.copies = [p.detach().float() for p in self.weights]
        for copy in self.copies:
            copy.grad = torch.zeros_like(copy)
        self.gradients = [copy.grad for copy in self.copies]
        groups = [
            {"params": [c for c in self.copies if c.dim() > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [c for c in self.copies if c.dim() == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def add_gradients(self):
        torch._foreach_add_(self.gradients, [p.grad for p in self.weights])
        for p in self.weights:
            p.grad = None

    def step(self):
        nn.utils.clip_grad_norm_(self.copies, CLIP_GRAD, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.copies)
        torch._foreach_zero_(self.gradients)


def make_tokens(options):
    """Frequent tokens are frequent, as in text, so that three steps lower the loss visibly."""
    count = options.microbatches * options.micro_batch_size * options.seq_length + 1
    generator = torch.Generator().manual_seed(2)
    ranks = torch.rand(count, generator=generator).double()
    return (options.vocab_size**ranks - 1).long().clamp_(0, min(options.vocab_size, 2**16) - 1)


def write_model(folder, model, options, tokens):
    """config.json, model.safetensors as transformers names them, tokens.bin of u16."""
    tensors = {
        "transformer.wte.weight": model.wte[: options.vocab_size],
        "transformer.wpe.weight": model.wpe,
        "transformer.ln_f.weight": model.output.ln_f.weight,
        "transformer.ln_f.bias": model.output.ln_f.bias,
    }
    parts = {"c_attn": "attn.c_attn", "c_proj": "attn.c_proj", "c_fc": "mlp.c_fc", "mlp_c_proj": "mlp.c_proj"}
    for layer, block in enumerate(model.h):
        for name, p in block.named_parameters():
            part, kind = name.split(".")
            tensor = p.t() if p.dim() == 2 else p  # GPT-2's files have [in, out]
            tensors[f"transformer.h.{layer}.{parts.get(part, part)}.{kind}"] = tensor
    header, at = {}, 0
    for name, tensor in tensors.items():
        end = at + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.detach().float().contiguous().cpu().numpy().data)
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": options.num_layers,
        "n_embd": options.hidden_size,
        "n_head": options.num_attention_heads,
        "n_positions": options.seq_length,
        "vocab_size": options.vocab_size,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    }
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    with open(f"{folder}/tokens.bin", "wb") as file:
        file.write(tokens.to(torch.uint16).numpy().data)


def run_step(options):
    device = options.device
    tokens = make_tokens(options)
    shape = (options.microbatches, options.micro_batch_size, options.seq_length)
    batches = tokens[:-1].to(device).view(shape)
    labels = tokens[1:].to(device).view(shape)

    def make_model():
        with torch.device(device):
            return Gpt2(options)

    if options.write:
        write_model(options.write, make_model(), options, tokens)
        forget()

    def step_of(model, masters):
        total = 0
        for batch, wanted in zip(batches, labels):
            loss = model(batch, wanted) / options.microbatches
            loss.backward()
            masters.add_gradients()
            total = total + loss.detach()
        masters.step()
        return total

    def variant(backend, by_blocks):
        model = make_model()
        masters = Masters(model, options.lr)
        model.to(torch.bfloat16)
        if by_blocks:
            for part in (*model.h, model.output):
                part.compile(**how_to_compile(device))
        losses, seconds = [], []
        with sdpa_kernel(backend):
            for number in range(options.warm_up + options.steps):
                synchronize(device)
                begin = time.perf_counter()
                loss = float(step_of(model, masters))
                synchronize(device)
                if number >= options.warm_up:
                    seconds.append(time.perf_counter() - begin)
                losses.append(loss)
        memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB; " if device == "cuda" else ""
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        return 1e3 * statistics.median(seconds), losses[:COUNTED_LOSSES], memory

    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    took = {}

    def eager(name):
        def run():
            took[name], losses, note = variant(backends[name], by_blocks=False)
            return took[name], losses, note

        return run

    def compiled_blocks():  # with the faster attention: compiling again takes longer than it is worth
        best = min(took, key=took.get, default="flash")
        milliseconds, losses, note = variant(backends[best], by_blocks=True)
        return milliseconds, losses, f"attention {best}; {note}"

    run_variants(
        [
            ("eager, flash", eager("flash")),
            ("eager, cuDNN", eager("cuDNN")),
            ("compiled by blocks", compiled_blocks),
        ],
        options.seconds,
    )


# --- grouped products of a mixture of experts


def run_experts(options):
    o, device = options, options.device
    rows = o.tokens * o.top_k
    torch.manual_seed(1)
    choice = torch.rand(o.tokens, o.experts, device=device).topk(o.top_k).indices
    counts = torch.bincount(choice.flatten(), minlength=o.experts)
    ends = counts.cumsum(0).to(torch.int32)

    def numbers(*shape):
        return torch.randn(shape, device=device).bfloat16()

    def product(columns_in, columns_out, direction):
        x, y = numbers(rows, columns_in), numbers(rows, columns_out)
        w = numbers(o.experts, columns_out, columns_in)
        main = torch.zeros(o.experts, columns_out, columns_in, device=device)
        calls = {
            "forward": lambda: F.grouped_mm(x, w.transpose(1, 2), offs=ends),
            "dx": lambda: F.grouped_mm(y, w, offs=ends),
            "dw": lambda: main.add_(F.grouped_mm(y.t(), x, offs=ends)),  # in fp32, as ours
        }

        def run():
            call = calls[direction]
            for _ in range(2):
                call()
            clocks = [Clock(device) for _ in range(o.rounds)]
            for clock in clocks:
                clock.mark()
                call()
                clock.mark()
            return statistics.median(c.milliseconds(0, 1) for c in clocks), [], ""

        return run

    variants = []
    for layer, sizes in (("gate_up", (o.hidden_size, 2 * o.ffn_hidden_size)), ("down", (o.ffn_hidden_size, o.hidden_size))):
        for direction in ("forward", "dx", "dw"):
            variants.append((f"{layer} {direction}", lambda s=sizes, d=direction: product(*s, d)()))
    run_variants(variants, o.seconds)


def main():
    parser = argparse.ArgumentParser(description="PyTorch's side of benchmarks/gpu_peers.sh")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, run, **sizes):
        one = commands.add_parser(name)
        one.set_defaults(run=run)
        one.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
        one.add_argument("--seconds", type=float, default=60)
        for size, value in sizes.items():
            one.add_argument("--" + size.replace("_", "-"), type=type(value), default=value)
        return one

    command("output-layer", run_output_layer, tokens=4096, hidden_size=4096, rows=128256, rounds=20)
    step = command(
        "step",
        run_step,
        num_layers=12,
        hidden_size=768,
        num_attention_heads=12,
        vocab_size=50257,
        seq_length=1024,
        micro_batch_size=16,
        microbatches=4,
        warm_up=3,
        steps=7,
        lr=1e-4,
    )
    step.add_argument("--write", help="folder for weights and tokens")
    command("experts", run_experts, tokens=4096, experts=128, top_k=8, hidden_size=2048, ffn_hidden_size=768, rounds=20)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_peer_torch.py: error: this torch sees no GPU")
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"# torch {torch.__version__}, {where}, imported in {time.perf_counter() - BEGIN:.0f} s", flush=True)
    options.run(options)


if __name__ == "__main__":
    main()
