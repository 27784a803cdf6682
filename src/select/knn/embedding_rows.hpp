// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/sample_input.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// Bytes that for_each_embedding() reads at once; more if a row has more.
inline constexpr uint64_t kEmbeddingReadBytes = uint64_t{1} << 20;

/// Calls `use` with the embedding of every sample of [first, last), in order.
void for_each_embedding(EmbeddingInput& input, int64_t first, int64_t last,
                        const std::function<void(int64_t sample, const float* row)>& use);

}  // namespace vocabpipe
