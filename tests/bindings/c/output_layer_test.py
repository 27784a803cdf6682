#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""S and T of the C interface from Python's ctypes, against loops in double.

    output_layer_test.py LIBRARY
"""
import ctypes
import math
import random
import struct
import sys

LIBRARY = ctypes.CDLL(sys.argv[1])
LIBRARY.vp_output_layer_last_error.restype = ctypes.c_char_p
USAGE = 2
FAILURES = []


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("type_code", ctypes.c_uint8), ("type_bits", ctypes.c_uint8),
                ("type_lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("first_row", ctypes.c_int64), ("vocab_size", ctypes.c_int64),
                ("label_smoothing", ctypes.c_float), ("z_loss", ctypes.c_float), ("logit_softcap", ctypes.c_float),
                ("threads", ctypes.c_int32)]


class Array:
    """A tensor of fp32, bf16 or int32 whose rows lie `gap` elements further apart than they are long; what lies
    between must stay as it is."""
    CODES = {"fp32": (2, 32, ctypes.c_float), "bf16": (4, 16, ctypes.c_uint16), "int32": (0, 32, ctypes.c_int32)}
    GAP = 7  # as a value: no result has it

    def __init__(self, shape, values=None, kind="fp32", gap=0):
        code, bits, item = self.CODES[kind]
        self.kind, self.rows, self.columns = kind, (shape[0] if len(shape) == 2 else 1), shape[-1]
        self.stride = self.columns + gap
        self.memory = (item * (self.rows * self.stride))(*[self.GAP] * (self.rows * self.stride))
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(shape))(*([self.stride, 1][-len(shape):]))
        self.tensor = Tensor(ctypes.addressof(self.memory), 1, 0, len(shape), code, bits, 1, self.shape,
                             self.strides if gap else None, 0)
        self.tensor.owner = self  # a pointer keeps the memory
        for row, of_row in enumerate(values or []):
            for column, value in enumerate(of_row):
                self.memory[row * self.stride + column] = to_bf16(value) if kind == "bf16" else value

    def values(self):
        for row in range(self.rows):
            for at in range(row * self.stride + self.columns, (row + 1) * self.stride):
                check(self.memory[at] == self.GAP, "what lies between two rows has changed")
        decode = from_bf16 if self.kind == "bf16" else float
        return [[decode(self.memory[r * self.stride + c]) for c in range(self.columns)] for r in range(self.rows)]

    def pointer(self):
        return ctypes.byref(self.tensor)


def to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16 & 0xffff


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def check(condition, what):
    if not condition and what not in FAILURES:
        FAILURES.append(what)
        print("FAILED:", what)


def call(function, *arguments):
    status = function(*arguments)
    check(status == 0, f"status {status}: {LIBRARY.vp_output_layer_last_error().decode()}")


def refused(part, function, *arguments):
    status, line = function(*arguments), LIBRARY.vp_output_layer_last_error().decode()
    check(status == USAGE and part in line, f"status {status}, not {part!r}: {line!r}")


def make(weight, **options):
    layer = ctypes.c_void_p()
    call(LIBRARY.vp_output_layer_make, ctypes.byref(Options(ctypes.sizeof(Options), **options)), weight.pointer(),
         ctypes.byref(layer))
    return layer


def expected(hidden, weight, labels, gradients, smoothing, z_loss, softcap):
    """Losses, dX and dW in double."""
    tokens, columns, rows = len(hidden), len(hidden[0]), len(weight)
    losses = []
    dx = [[0.0] * columns for _ in range(tokens)]
    dw = [[0.0] * columns for _ in range(rows)]
    for n in range(tokens):
        if labels[n] < 0:
            losses.append(0.0)
            continue
        raw = [math.fsum(a * b for a, b in zip(hidden[n], row)) for row in weight]
        z = [softcap * math.tanh(x / softcap) if softcap else x for x in raw]
        top = max(z)
        log_z = top + math.log(math.fsum(math.exp(x - top) for x in z))
        losses.append(log_z - (1 - smoothing) * z[labels[n]] - smoothing / rows * math.fsum(z) + z_loss * log_z**2)
        for j in range(rows):
            slope = math.exp(z[j] - log_z) * (1 + 2 * z_loss * log_z) - smoothing / rows
            slope -= (1 - smoothing) if j == labels[n] else 0
            slope *= gradients[n] * ((1 - (z[j] / softcap)**2) if softcap else 1)
            for i in range(columns):
                dx[n][i] += slope * weight[j][i]
                dw[j][i] += slope * hidden[n][i]
    return losses, dx, dw


def near(found, wanted, bound, what):
    largest = max(abs(w) for row in wanted for w in row)
    worst = max(abs(f - w) for a, b in zip(found, wanted) for f, w in zip(a, b))
    check(worst <= bound * largest, f"{what}: {worst} of {largest}")


def shards_have_the_losses_and_gradients_of_loops(kind, cuts, smoothing=0.0, z_loss=0.0, softcap=0.0):
    draw = random.Random(len(cuts)).gauss
    tokens, columns, rows = 11, 9, cuts[-1]
    narrow = (lambda value: from_bf16(to_bf16(value))) if kind == "bf16" else (
        lambda value: struct.unpack("<f", struct.pack("<f", value))[0])
    hidden = [[narrow(draw(0, 1)) for _ in range(columns)] for _ in range(tokens)]
    weight = [[narrow(draw(0, 1)) for _ in range(columns)] for _ in range(rows)]
    labels = [(5 * n) % rows if n % 4 else -100 for n in range(tokens)]
    gradients = [0.5 + n / 8 for n in range(tokens)]
    losses, dx, dw = expected(hidden, weight, labels, gradients, smoothing, z_loss, softcap)

    x = Array([tokens, columns], hidden, kind, gap=3)
    y, g = Array([tokens], [labels], "int32"), Array([tokens], [gradients])
    begins = [0] + cuts[:-1]
    weights = [Array([end - begin, columns], weight[begin:end], kind, gap=1) for begin, end in zip(begins, cuts)]
    layers = [make(w, first_row=begin, vocab_size=rows, label_smoothing=smoothing, z_loss=z_loss,
                   logit_softcap=softcap, threads=2) for w, begin in zip(weights, begins)]
    exponentials = [Array([tokens, w.rows], kind=kind, gap=5) for w in weights]
    gathered = Array([len(cuts) * tokens, 4])
    for k, layer in enumerate(layers):
        statistics = Array([tokens, 4])
        call(LIBRARY.vp_output_layer_score, layer, x.pointer(), y.pointer(), exponentials[k].pointer(),
             statistics.pointer())
        for at, value in enumerate(statistics.memory):
            gathered.memory[k * tokens * 4 + at] = value
    total = [[0.0] * columns for _ in range(tokens)]
    bound = 2e-2 if kind == "bf16" else 2e-6
    for k, (layer, e, begin, end) in enumerate(zip(layers, exponentials, begins, cuts)):
        factors, found, part = Array([tokens, 2]), Array([tokens]), Array([tokens, columns], gap=2)
        call(LIBRARY.vp_output_layer_combine, layer, gathered.pointer(), k, y.pointer(), g.pointer(), found.pointer(),
             factors.pointer())
        near(found.values(), [losses], bound, f"losses of shard {k}, {kind}")
        call(LIBRARY.vp_output_layer_input_gradient, layer, e.pointer(), factors.pointer(), y.pointer(), g.pointer(),
             part.pointer())
        total = [[a + b for a, b in zip(*rows_of_both)] for rows_of_both in zip(total, part.values())]
        gradient = Array([end - begin, columns], gap=4)
        for times in (1, 2):
            call(LIBRARY.vp_output_layer_weight_gradient, layer, x.pointer(), e.pointer(), factors.pointer(),
                 y.pointer(), g.pointer(), gradient.pointer(), times - 1)
            near(gradient.values(), [[times * value for value in row] for row in dw[begin:end]], bound,
                 f"dW of shard {k}, {kind}, {times} times")
        LIBRARY.vp_output_layer_free(layer)
    near(total, dx, bound, f"dX, {kind}")


def what_does_not_fit_is_refused():
    weight = Array([5, 4], [[1.0] * 4] * 5)
    layer, none = make(weight), ctypes.c_void_p()
    x, y, e, s = Array([3, 4]), Array([3], [[0, 1, 4]], "int32"), Array([3, 5]), Array([3, 4])
    score = LIBRARY.vp_output_layer_score
    call(score, layer, x.pointer(), y.pointer(), e.pointer(), s.pointer())
    refused("hidden: shape (3, 5): must be (-1, 4)", score, layer, e.pointer(), y.pointer(), e.pointer(), s.pointer())
    refused("hidden: is NULL", score, layer, None, y.pointer(), e.pointer(), s.pointer())
    refused("layer: is NULL", score, None, x.pointer(), y.pointer(), e.pointer(), s.pointer())
    refused("labels: its type must be int", score, layer, x.pointer(), Array([3]).pointer(), e.pointer(), s.pointer())
    refused("statistics: shape (2, 4): must be (3, 4)", score, layer, x.pointer(), y.pointer(), e.pointer(),
            Array([2, 4]).pointer())
    refused("5", score, layer, x.pointer(), Array([3], [[0, 1, 5]], "int32").pointer(), e.pointer(), s.pointer())
    on_gpu = Array([3, 4])
    on_gpu.tensor.device_type = 2
    refused("hidden: device_type 2: must be 1", score, layer, on_gpu.pointer(), y.pointer(), e.pointer(), s.pointer())
    turned = Array([3, 4], gap=1)
    turned.strides[1] = 2
    refused("hidden: strides", score, layer, turned.pointer(), y.pointer(), e.pointer(), s.pointer())
    turned.strides[0], turned.strides[1] = 3, 1
    refused("hidden: strides: rows must be at least 4", score, layer, turned.pointer(), y.pointer(), e.pointer(),
            s.pointer())
    odd = Array([3, 4])
    odd.tensor.byte_offset = 2
    refused("hidden: its first element is not aligned", score, layer, odd.pointer(), y.pointer(), e.pointer(),
            s.pointer())
    refused("shard 1: must be from 0 to 0", LIBRARY.vp_output_layer_combine, layer, s.pointer(), 1, y.pointer(),
            Array([3]).pointer(), Array([3]).pointer(), Array([3, 2]).pointer())
    refused("statistics: 3 rows; must be a multiple of the 2", LIBRARY.vp_output_layer_combine, layer, s.pointer(), 0,
            y.pointer(), Array([3]).pointer(), Array([3]).pointer(), Array([2, 2]).pointer())
    LIBRARY.vp_output_layer_free(layer)
    LIBRARY.vp_output_layer_free(None)
    size = ctypes.sizeof(Options)
    for part, options in (("vocab_size 4: must be from 5", Options(size, 0, 4)),
                          ("first_row -1: must be at least 0", Options(size, -1)),
                          ("label_smoothing", Options(size, 0, 0, 1.0)),
                          ("logit_softcap", Options(size, 0, 0, 0, 0, float("nan"))),
                          ("excludes logit_softcap", Options(size, 0, 0, 0.1, 0, 5.0)),
                          ("threads -1", Options(size, 0, 0, 0, 0, 0, -1)),
                          ("options size 1000", Options(1000))):
        refused(part, LIBRARY.vp_output_layer_make, ctypes.byref(options), weight.pointer(), ctypes.byref(none))


def tensors_of_numpy_are_read():
    try:
        import numpy
    except ImportError:
        return
    array = numpy.arange(20, dtype=numpy.float32).reshape(5, 4)
    capsule = array.__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    managed = pointer_of(capsule, b"dltensor")  # begins with its DLTensor
    layer = ctypes.c_void_p()
    call(LIBRARY.vp_output_layer_make, None, ctypes.c_void_p(managed), ctypes.byref(layer))
    e, s = Array([1, 5]), Array([1, 4])
    call(LIBRARY.vp_output_layer_score, layer, Array([1, 4], [[0.0, 0.0, 0.0, 0.01]]).pointer(),
         Array([1], [[2]], "int32").pointer(), e.pointer(), s.pointer())
    near([[s.values()[0][2]]], [[0.11]], 1e-6, "the label's logit of a tensor of numpy")
    LIBRARY.vp_output_layer_free(layer)


for TYPE in ("fp32", "bf16"):
    shards_have_the_losses_and_gradients_of_loops(TYPE, [13])
    shards_have_the_losses_and_gradients_of_loops(TYPE, [6, 7, 29])
    shards_have_the_losses_and_gradients_of_loops(TYPE, [10, 20], smoothing=0.1, z_loss=1e-3)
    shards_have_the_losses_and_gradients_of_loops(TYPE, [10, 20], softcap=3.0)
what_does_not_fit_is_refused()
tensors_of_numpy_are_read()
sys.exit(len(FAILURES) > 0)
