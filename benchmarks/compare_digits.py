#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does training on chosen images help? Accuracy of a small network on the digits of scikit-learn.

    pip install numpy scikit-learn
    python3 benchmarks/compare_digits.py [--program build/bin/vocabpipe] [--seeds 5] [--copies 0.4]

As the paper does with CIFAR-100: a coarse network, trained on a tenth of the 1257 training images, gives
each of them a utility, 1 - (p of the likeliest class - p of the second), and an embedding, its hidden
layer; `select knn` and `select run` choose; a new network trains on what was chosen. The network has one
hidden layer of 64 units. --copies: so large a share of the training images is replaced by others with
noise added, so that similarities tell something that utilities do not. About two minutes on two cores.
"""
import argparse
import os
import subprocess
import tempfile

import numpy as np
from sklearn.datasets import load_digits

HERE = os.path.dirname(os.path.abspath(__file__))
FRACTIONS = [0.1, 0.2, 0.3, 0.5]
CHOICES = {"at random": None, "utility alone": (1, 0), "alpha 9, beta 1": (9, 1), "alpha 1, beta 1": (1, 1)}
HIDDEN, CLASSES, STEPS, BATCH = 64, 10, 600, 32


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


class Network:
    """images -> ReLU(W x + b) -> classes, trained by Adam."""

    def __init__(self, images, labels, seed):
        random = np.random.default_rng(seed)
        width = images.shape[1]
        self.weights = [random.normal(size=(width, HIDDEN)) * np.sqrt(2 / width), np.zeros(HIDDEN),
                        random.normal(size=(HIDDEN, CLASSES)) * np.sqrt(1 / HIDDEN), np.zeros(CLASSES)]
        first = [np.zeros_like(w) for w in self.weights]
        second = [np.zeros_like(w) for w in self.weights]
        for step in range(1, STEPS + 1):
            batch = random.integers(len(labels), size=BATCH)
            x, hidden = images[batch], self.hidden(images[batch])
            error = softmax(hidden @ self.weights[2] + self.weights[3])
            error[np.arange(BATCH), labels[batch]] -= 1
            error /= BATCH
            back = (error @ self.weights[2].T) * (hidden > 0)
            gradients = [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
            rate = 3e-3 * (1 - step / STEPS) + 1e-4
            for w, g, m, v in zip(self.weights, gradients, first, second):
                m += 0.1 * (g - m)
                v += 0.01 * (g * g - v)
                w -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)

    def hidden(self, images):
        return np.maximum(images @ self.weights[0] + self.weights[1], 0)

    def chances(self, images):
        return softmax(self.hidden(images) @ self.weights[2] + self.weights[3])

    def accuracy(self, images, labels):
        return float((self.chances(images).argmax(1) == labels).mean())


def with_copies(images, labels, share, seed):
    """Replaces a share of the images by others, with noise; returns also what each is a copy of."""
    random = np.random.default_rng(seed)
    images, labels, original = images.copy(), labels.copy(), np.arange(len(labels))
    order = random.permutation(len(labels))
    count = int(share * len(labels))
    copies = order[:count]
    original[copies] = random.choice(order[count:], size=count)
    labels[copies] = labels[original[copies]]
    noise = 0.05 * random.normal(size=(count, images.shape[1]))
    images[copies] = np.clip(images[original[copies]] + noise, 0, 1)
    return images, labels, original


def run(program, *words):
    done = subprocess.run([program, "select", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)


def choose(program, folder, utility, embedding, choice, fraction):
    """Numbers of the images that select run chooses."""
    np.save(f"{folder}/utility.npy", utility)
    np.save(f"{folder}/embedding.npy", embedding.astype(np.float32))
    run(program, "knn", "--embeddings", f"{folder}/embedding.npy", "--neighbours", "10", "--output",
        f"{folder}/graph.safetensors")
    run(program, "run", "--graph", f"{folder}/graph.safetensors", "--utility", f"{folder}/utility.npy",
        "--fraction", str(fraction), "--alpha", str(choice[0]), "--beta", str(choice[1]), "--output",
        f"{folder}/subset.safetensors")
    run(program, "export", f"{folder}/subset.safetensors", "--output", f"{folder}/subset.npy")
    return np.load(f"{folder}/subset.npy").astype(int).ravel()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=os.path.join(HERE, "../build/bin/vocabpipe"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--copies", type=float, default=0, help="share of training images that are noisy copies")
    options = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[:540], order[540:]

    accuracy, distinct = {}, {}
    for seed in range(1, options.seeds + 1):
        x, y, original = with_copies(images[train], labels[train], options.copies, seed)
        random = np.random.default_rng(seed)
        tenth = random.permutation(len(y))[: len(y) // 10]
        coarse = Network(x[tenth], y[tenth], seed)
        chances = np.sort(coarse.chances(x), axis=1)
        utility = 1 - (chances[:, -1] - chances[:, -2])
        everything = Network(x, y, seed).accuracy(images[test], labels[test])
        accuracy.setdefault(("all", 1), []).append(everything)
        for fraction in FRACTIONS:
            for name, choice in CHOICES.items():
                if choice is None:
                    chosen = random.permutation(len(y))[: int(fraction * len(y))]
                else:
                    with tempfile.TemporaryDirectory() as folder:
                        chosen = choose(options.program, folder, utility, coarse.hidden(x), choice, fraction)
                network = Network(x[chosen], y[chosen], seed)
                accuracy.setdefault((name, fraction), []).append(network.accuracy(images[test], labels[test]))
                distinct.setdefault((name, fraction), []).append(len(set(original[chosen])) / len(chosen))

    def cell(values, digits=1):
        values = [100 * v for v in values]
        return (f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})")

    print(f"accuracy in % on 540 test images, mean (least .. most) of {options.seeds} seeds; "
          f"all {len(train)} training images: {cell(accuracy['all', 1])}\n")
    print("| chosen | " + " | ".join(CHOICES) + " |\n" + "|---" * (len(CHOICES) + 1) + "|")
    for fraction in FRACTIONS:
        print(f"| {fraction:.0%} | " + " | ".join(cell(accuracy[name, fraction]) for name in CHOICES) + " |")
    if options.copies > 0:
        print("\nof what was chosen, % that are neither the same nor copies of each other\n")
        print("| chosen | " + " | ".join(CHOICES) + " |\n" + "|---" * (len(CHOICES) + 1) + "|")
        for fraction in FRACTIONS:
            print(f"| {fraction:.0%} | " + " | ".join(cell(distinct[name, fraction], 0) for name in CHOICES) + " |")


main()
