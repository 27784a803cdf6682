# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of benchmarks/gpu_peers.sh: what VocabPipe computes, by PyTorch on the same GPU.

    gpu_peer_torch.py output-layer --tokens 4096 --hidden-size 4096 --rows 128256 ...
    gpu_peer_torch.py step --num-layers 12 --hidden-size 768 ... [--write FOLDER]
    gpu_peer_torch.py experts --tokens 4096 --experts 128 --top-k 8 ...

Every variant prints one line as soon as it is known, fields separated by tabs, most wanted first:

    result  variant  milliseconds  losses by spaces, or -  note
    none    variant  why there is no result

--seconds: of the whole process; variants that would begin later are left out.

output-layer: logits, softmax cross-entropy, dX, and dW added to fp32 gradients, as VocabPipe does it.
Medians of --rounds, by CUDA events; the note has the time without the addition.

step: all microbatches, gradients added up in fp32, norm clipped at 1, fused AdamW on fp32 masters,
weights copied to bf16: VocabPipe's types. By the host's clock, like bench_step. Every variant begins
with the same weights; the losses are those of the first three steps. --write saves weights and tokens
as train_gpt reads them. The vocabulary is padded to a multiple of 64, which makes PyTorch's products
fast; a bias takes the padding out of the softmax.

experts: the grouped products of bench_experts, by torch.nn.functional.grouped_mm.
"""
import argparse
import functools
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

from peer_torch import CLIP_GRAD, Block, make_optimizer


def say(*fields):
    print(*fields, sep="\t", flush=True)


def reason(error):
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:80]}".replace("\t", " ").replace("|", "/")


def forget():
    """Gives back what the last variant held."""
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_variants(variants, seconds):
    """Calls each for (milliseconds, losses, note). One that fails does not stop the others."""
    longest = None
    for name, run in variants:
        begin = time.perf_counter()
        if longest is not None and begin - BEGIN + longest > seconds:
            say("none", name, f"no time left of {seconds:.0f} s")
            continue
        try:
            milliseconds, losses, note = run()
        except torch.OutOfMemoryError:
            say("none", name, "does not fit the GPU's memory")
        except Exception as error:
            say("none", name, reason(error))
            if "CUDA error" in str(error):  # all later calls fail, too
                sys.exit(1)
        else:
            losses = " ".join(f"{loss:.5f}" for loss in losses) or "-"
            took = time.perf_counter() - begin
            longest = max(longest or 0, took)
            say("result", name, f"{milliseconds:.3f}", losses, f"{note}{took:.0f} s in all")
        forget()
    if longest is None:
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


def timed(device, rounds, work):
    """Medians from work's first mark to each of the others, and what it returned last."""
    for _ in range(3):  # kernels are compiled and algorithms chosen
        work(Clock(device))
    clocks = [Clock(device) for _ in range(rounds)]
    for clock in clocks:
        value = work(clock)
    marks = range(1, len(clocks[0].marks))
    return [statistics.median(c.milliseconds(0, i) for c in clocks) for i in marks], value


# --- the output layer


def sum_of_losses(x, w, labels):
    return F.cross_entropy(F.linear(x, w).float(), labels, reduction="sum")


def by_chunks(sum_of, chunk):
    """Gradients of a chunk of tokens are made before the next chunk's logits."""

    def run(x, w, labels):
        total = 0
        for part, wanted in zip(x.split(chunk), labels.split(chunk)):
            loss = sum_of(part, w, wanted) / len(labels)
            loss.backward()
            total = total + loss.detach()
        return total

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
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    loss, *_ = LigerFusedLinearCrossEntropyFunction.apply(x, w, labels)
    loss.backward()
    return loss.detach()


def own_chunked(x, w, labels):
    loss = F.linear_cross_entropy(x, w, labels)  # in later versions of torch
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

    def by_autograd(call):
        def work(clock):
            x.grad = w.grad = None
            clock.mark()
            loss = call(x, w, labels)
            clock.mark()
            main.add_(w.grad)
            clock.mark()
            return loss

        def run():
            (bare, whole), loss = timed(device, options.rounds, work)
            return whole, [float(loss)], f"{bare:.3f} ms without adding dW in fp32; "

        return run

    def without_autograd():
        with torch.no_grad():
            call = by_hand(x.detach(), w.detach(), labels, main)

            def work(clock):
                clock.mark()
                loss, _ = call()
                clock.mark()
                return loss

            (whole,), loss = timed(device, options.rounds, work)
        return whole, [float(loss)], ""

    fused = compiled(sum_of_losses, device)
    run_variants(
        [
            ("eager", by_autograd(by_chunks(sum_of_losses, n))),
            ("compiled", by_autograd(by_chunks(fused, n))),
            ("chunked", by_autograd(by_chunks(sum_of_losses, options.chunk))),
            ("by hand", without_autograd),
            ("Liger", by_autograd(liger)),
            ("linear_cross_entropy", by_autograd(own_chunked)),
            ("chunked compiled", by_autograd(by_chunks(fused, options.chunk))),
        ],
        options.seconds,
    )


# --- steps of GPT-2


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
    def __init__(self, config):
        super().__init__()
        width, vocabulary, layers = (config[key] for key in ("n_embd", "vocab_size", "n_layer"))
        padded = (vocabulary + 63) // 64 * 64
        self.wte = nn.Parameter(torch.zeros(padded, width))
        self.wpe = nn.Parameter(torch.zeros(config["n_positions"], width))
        self.h = nn.ModuleList(Block(config) for _ in range(layers))
        self.output = OutputLayer(width, vocabulary, padded)
        generator = torch.Generator(self.wte.device).manual_seed(1)
        residual = 0.02 * (2 * layers) ** -0.5  # as GPT-2 begins
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    rows = p[:vocabulary] if p is self.wte else p
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
        self.copies = nn.ParameterList(p.detach().float() for p in self.weights)
        for copy in self.copies:
            copy.grad = torch.zeros_like(copy)
        self.gradients = [copy.grad for copy in self.copies]
        self.optimizer = make_optimizer(self.copies)
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def add_gradients(self):
        torch._foreach_add_(self.gradients, [p.grad for p in self.weights])
        for p in self.weights:
            p.grad = None

    def step(self):
        nn.utils.clip_grad_norm_(self.copies, CLIP_GRAD, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, list(self.copies))
        torch._foreach_zero_(self.gradients)


def make_tokens(options):
    """Frequent tokens are frequent, as in text, so that three steps lower the loss visibly."""
    count = options.microbatches * options.micro_batch_size * options.seq_length + 1
    generator = torch.Generator().manual_seed(2)
    ranks = torch.rand(count, generator=generator).double()
    return (options.vocab_size**ranks - 1).long().clamp_(0, min(options.vocab_size, 2**16) - 1)


def write_model(folder, model, config, tokens):
    """As transformers names the tensors, and tokens of u16."""
    tensors = {
        "transformer.wte.weight": model.wte[: config["vocab_size"]],
        "transformer.wpe.weight": model.wpe,
        "transformer.ln_f.weight": model.output.ln_f.weight,
        "transformer.ln_f.bias": model.output.ln_f.bias,
    }
    parts = {"ln_1": "ln_1", "c_attn": "attn.c_attn", "c_proj": "attn.c_proj"}
    parts |= {"ln_2": "ln_2", "c_fc": "mlp.c_fc", "mlp_c_proj": "mlp.c_proj"}
    for layer, block in enumerate(model.h):
        for name, p in block.named_parameters():
            part, kind = name.split(".")
            tensor = p.t() if p.dim() == 2 else p  # GPT-2's files have [in, out]
            tensors[f"transformer.h.{layer}.{parts[part]}.{kind}"] = tensor
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
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    with open(f"{folder}/tokens.bin", "wb") as file:
        file.write(tokens.to(torch.uint16).numpy().data)


def run_step(options):
    o, device = options, options.device
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "tie_word_embeddings": True}
    config |= {"n_layer": o.num_layers, "n_embd": o.hidden_size, "n_head": o.num_attention_heads}
    config |= {"n_positions": o.seq_length, "vocab_size": o.vocab_size}
    config |= {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    tokens = make_tokens(options)
    shape = (o.microbatches, o.micro_batch_size, o.seq_length)
    batches = tokens[:-1].to(device).view(shape)
    labels = tokens[1:].to(device).view(shape)

    def make_model():
        with torch.device(device):
            return Gpt2(config)

    if o.write:
        write_model(o.write, make_model(), config, tokens)
        forget()

    def step_of(model, masters):
        total = 0
        for batch, wanted in zip(batches, labels):
            loss = model(batch, wanted) / o.microbatches
            loss.backward()
            masters.add_gradients()
            total = total + loss.detach()
        masters.step()
        return total

    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    took = {}

    def variant(attention, by_blocks=False):
        model = make_model()
        masters = Masters(model, o.lr)
        model.to(torch.bfloat16)
        if by_blocks:
            for part in (*model.h, model.output):
                part.compile(**how_to_compile(device))
        losses, seconds = [], []
        with sdpa_kernel(backends[attention]):
            for _ in range(o.warm_up + o.steps):
                begin = time.perf_counter()
                losses.append(float(step_of(model, masters)))  # waits for all of the step
                seconds.append(time.perf_counter() - begin)
        note = f"attention {attention}; "
        if device == "cuda":
            note += f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB; "
            torch.cuda.reset_peak_memory_stats()
        milliseconds = 1e3 * statistics.median(seconds[o.warm_up :])
        took[attention] = milliseconds
        return milliseconds, losses[:3], note

    def compiled_blocks():  # once, with the faster attention, because compiling takes long
        return variant(min(took, key=took.get, default="flash"), by_blocks=True)

    run_variants(
        [
            ("eager, flash", lambda: variant("flash")),
            ("eager, cuDNN", lambda: variant("cuDNN")),
            ("compiled by blocks", compiled_blocks),
        ],
        o.seconds,
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

        def work(clock):
            clock.mark()
            calls[direction]()
            clock.mark()

        (whole,), _ = timed(device, o.rounds, work)
        return whole, [], ""

    layers = {
        "gate_up": (o.hidden_size, 2 * o.ffn_hidden_size),
        "down": (o.ffn_hidden_size, o.hidden_size),
    }
    variants = [
        (f"{layer} {direction}", functools.partial(product, *sizes, direction))
        for layer, sizes in layers.items()
        for direction in ("forward", "dx", "dw")
    ]
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

    output = {"hidden_size": 4096, "rows": 128256, "chunk": 1024}
    command("output-layer", run_output_layer, tokens=4096, **output, rounds=20)
    batch = {"seq_length": 1024, "micro_batch_size": 16, "microbatches": 4}
    body = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "vocab_size": 50257}
    step = command("step", run_step, **body, **batch, warm_up=3, steps=7, lr=1e-4)
    step.add_argument("--write", help="folder for weights and tokens")
    layer = {"experts": 128, "top_k": 8, "hidden_size": 2048, "ffn_hidden_size": 768}
    command("experts", run_experts, tokens=4096, **layer, rounds=20)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_peer_torch.py: error: this torch sees no GPU")
    print(f"# torch {torch.__version__}, imported in {time.perf_counter() - BEGIN:.0f} s", flush=True)
    options.run(options)


if __name__ == "__main__":
    main()
