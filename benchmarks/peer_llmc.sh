#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# llm.c (github.com/karpathy/llm.c) on a CPU as a peer of benchmarks/compare_peers.sh, fp32 on one rank:
#
#   benchmarks/compare_peers.sh --peer "llm.c=benchmarks/peer_llmc.sh LLMC"
#   benchmarks/compare_peers.sh --peer "llm.c-blas=benchmarks/peer_llmc.sh LLMC -lopenblas"
#
# LLMC: a checkout. The second way replaces its products by those of a BLAS, named by flags for the linker (on
# Debian: libopenblas-openmp-dev). Both have an optimizer that does what all peers do, with all threads. Needs
# numpy for the conversion of weights, by $VOCABPIPE_PEER_PYTHON (python3).
set -euo pipefail
here=$(realpath "$(dirname "$0")")

[ "$VOCABPIPE_PEER_DTYPE $VOCABPIPE_PEER_RANKS" = "fp32 1" ] || exit 77
llmc=$1 blas=${2:-}
own=$VOCABPIPE_PEER_SCRATCH
if [ -n "$blas" ]; then
    # Its own products keep their code under names that nobody calls.
    sed -E 's/^void (matmul_forward|matmul_backward)\(/void own_\1(/' "$llmc/train_gpt2.c" >"$own/train_gpt2.c"
else
    cp "$llmc/train_gpt2.c" "$own"
fi
gcc -Ofast -march=native -fopenmp -Wno-unused-result -I"$llmc" -I"$(pkg-config --variable=includedir openblas 2>/dev/null || echo /usr/include)" \
    -DLLMC_SOURCE="\"$own/train_gpt2.c\"" ${blas:+-DWITH_BLAS} "$here/peer_llmc.c" -o "$own/peer_llmc" $blas -lm

"${VOCABPIPE_PEER_PYTHON:-python3}" - "$VOCABPIPE_PEER_MODEL" "$own/model.bin" <<'PYTHON'
import json, sys
import numpy as np

folder, to = sys.argv[1:]
config = json.load(open(f"{folder}/config.json"))
data = np.memmap(f"{folder}/model.safetensors", mode="r")
length = int(data[:8].view("<u8")[0])
entries = json.loads(data[8 : 8 + length].tobytes())


def tensor(name):
    entry = next(entries[key] for key in (name, f"transformer.{name}") if key in entries)
    begin, end = entry["data_offsets"]
    return data[8 + length + begin : 8 + length + end].view("<f4").reshape(entry["shape"])


layers, hidden, vocabulary = config["n_layer"], config["n_embd"], config["vocab_size"]
padded = (vocabulary + 127) // 128 * 128
header = np.zeros(256, "<i4")
header[:8] = [20240326, 3, config["n_positions"], vocabulary, layers, config["n_head"], hidden, padded]
with open(to, "wb") as file:
    header.tofile(file)
    tensor("wte.weight").tofile(file)
    np.zeros((padded - vocabulary, hidden), "<f4").tofile(file)
    tensor("wpe.weight").tofile(file)
    for part in ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
                 "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                 "mlp.c_proj.weight", "mlp.c_proj.bias"]:
        for layer in range(layers):
            value = tensor(f"h.{layer}.{part}")
            (value.T if value.ndim == 2 else value).tofile(file)  # [in, out] becomes (out, in)
    tensor("ln_f.weight").tofile(file)
    tensor("ln_f.bias").tofile(file)
PYTHON
"$own/peer_llmc" "$own/model.bin" "$VOCABPIPE_PEER_TOKENS" 4 "$VOCABPIPE_PEER_SEQ_LENGTH" "$VOCABPIPE_PEER_STEPS"
