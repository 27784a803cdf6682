// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_rank.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// What a model says next: the logits after a context, by a forward of all of it. Keys and values
/// are not kept from token to token, so n tokens cost n forwards: for a look at a model.
class NextToken {
public:
    /// `model`: whole on one rank of the host, one stage. It must outlive this object.
    explicit NextToken(ModelRank& model) : model_(model) {}

    /// Logits (V), soft-capped where the model's are, after the last of `tokens`, of which the last
    /// seq_length of the model's configuration are seen.
    [[nodiscard]] std::vector<float> logits(Context& ctx, std::span<const int32_t> tokens);

private:
    /// Kept while contexts are filled up to the same length.
    struct Buffers {
        int64_t length = 0;
        DeviceMemory x, y, saved, workspace;
    };

    ModelRank& model_;
    Buffers buffers_;
};

struct SamplingOptions {
    double temperature = 1;  ///< of the softmax; 0: the likeliest token
    int64_t top_k = 0;       ///< only the k likeliest; 0: all
    double top_p = 1;        ///< only the likeliest that together have this probability
};

/// A token, by a number u that is uniform in [0, 1). Equal logits are in the order of their ids.
/// Error if one is no number: the model has diverged.
[[nodiscard]] int32_t sample(std::span<const float> logits, const SamplingOptions& options,
                             double u);

}  // namespace vocabpipe
