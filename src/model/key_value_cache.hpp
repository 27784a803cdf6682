// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// Keys and values of one sequence, of the layers and heads that a rank holds, in its device's
/// memory.
class KeyValueCache {
public:
    /// Room for no tokens.
    KeyValueCache() = default;
    /// Room for config.seq_length tokens. `layers`: numbers in the model, in any order; the layer
    /// of a depth of multi-token prediction, k from 0, is number num_layers + k. `tensor`: t, ranks
    /// that share the heads. The device must outlive it.
    KeyValueCache(Device& device, const ModelConfig& config, const std::vector<int>& layers,
                  int tensor, const std::string& owner);
    /// Bytes of the cache of this many layers. Throws UsageError for layers of the user's own.
    [[nodiscard]] static int64_t bytes(const ModelConfig& config, int64_t layers, int tensor);

    /// Tokens of the sequence in the cache.
    [[nodiscard]] int64_t tokens() const { return tokens_; }
    /// Tokens that fit.
    [[nodiscard]] int64_t positions() const { return positions_; }
    /// (positions, key_value_columns / t) in the run's type, k | v; `layer` of the model.
    [[nodiscard]] Tensor layer(int layer) const { return by_layer_[static_cast<size_t>(layer)]; }

    /// Call after a forward of `count` tokens has filled their rows.
    void add(int64_t count) { tokens_ += count; }
    /// Call where the tokens after the first `count` turn out to be no part of the sequence.
    void cut(int64_t count) { tokens_ = std::min(tokens_, count); }
    /// Call before another sequence begins.
    void clear() { tokens_ = 0; }

private:
    int64_t positions_ = 0;
    int64_t tokens_ = 0;
    DeviceMemory memory_;
    std::vector<Tensor> by_layer_;  ///< [layer of the model], empty elsewhere
};

}  // namespace vocabpipe
