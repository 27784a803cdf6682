// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/safetensors/writer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// transformers' max_shard_size, "5GB".
inline constexpr uint64_t kMaxShardBytes = 5'000'000'000;

/// The files of a model's weights.
struct WeightFiles {
    std::vector<std::string> names;      ///< in the folder
    std::vector<SafetensorsPlan> plans;  ///< [file]
    std::string index;                   ///< text of model.safetensors.index.json; empty: one file
};

/// model.safetensors; or, if it had more than `max_bytes` of data, shards and an index. Each shard
/// takes the next tensors in their order as long as they fit; a larger tensor has its own shard.
[[nodiscard]] WeightFiles plan_weight_files(const std::vector<StoredTensor>& tensors,
                                            uint64_t max_bytes);

/// "model-00001-of-00002.safetensors".
[[nodiscard]] bool is_shard_name(std::string_view name);

}  // namespace vocabpipe
