// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/weight_files.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace vocabpipe {

struct ConvertOptions {
    std::optional<DType> dtype;  ///< none: bf16 where all weights are, else fp32
    uint64_t max_shard_bytes = kMaxShardBytes;
    std::string adapter = {};    ///< PEFT's folder of adapters to merge; empty: the step's own
    bool adapter_only = false;   ///< writes the adapters as PEFT's folder, without the model
    std::function<void()> poll;  ///< called between pieces; may throw. Empty: nothing
};

struct ConvertReport {
    size_t weight_files = 0;
    size_t tensors = 0;
    uint64_t bytes = 0;  ///< of the weights
    DType dtype = DType::fp32;
};

/// Writes the model of a step, or of a Hugging Face folder, as a new Hugging Face folder `to`:
/// config.json with the keys that it has, weights, and the generation configuration and tokenizer
/// that lie next to it. Adapters are merged: w + scale B A in double, rounded once. The weights are
/// those that the model computes with; a bf16 run's fp32 masters stay in its step. Reads and writes
/// in pieces of a few MiB. Verifies the checksums of a step first. `to` must not exist, and appears
/// by one rename when all is durable: UsageError, OutputFileError.
ConvertReport convert_checkpoint(const std::string& from, const std::string& to,
                                 const ConvertOptions& options);

}  // namespace vocabpipe
