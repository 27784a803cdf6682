// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Which tokens may come next, and how likely each is.
struct SamplingOptions {
    double temperature = 1;  ///< of the softmax; 0: the likeliest token
    int64_t top_k = 0;       ///< only the k likeliest; 0: all
    double top_p = 1;  ///< of those only the likeliest ones that together have this probability
};

/// A rank's logits, of the tokens first, first + 1, ...
struct LogitsShard {
    std::span<const float> logits;  ///< may be empty
    int64_t first = 0;              ///< token of the first logit
};

/// Draws the next token from logits that are spread over the ranks, by a number u that is uniform
/// in [0, 1) and equal on every rank. The token is the same on every rank and for any distribution
/// of the logits: probabilities are integers of 40 bits, whose sums do not depend on order. Tokens
/// are sorted by falling logit, equal ones by id, and u picks a place in their cumulative
/// probability. A radix search over the bits of a logit finds that place, so ranks exchange
/// histograms of a few KiB, never logits. Collective; AgreedError (ExitCode::wrong_values) if a
/// logit is NaN: the model has diverged.
[[nodiscard]] int32_t sample(Communicator& world, const LogitsShard& mine,
                             const SamplingOptions& options, double u);

/// The likeliest token of each of `rows` tokens' logits, in a tie the one with the smallest id: as
/// sample() at temperature 0. mine.logits: the rank's of the first token, then of the next one, and
/// so on. Collective; errors as of sample().
[[nodiscard]] std::vector<int32_t> likeliest_tokens(Communicator& world, const LogitsShard& mine,
                                                    int64_t rows);

}  // namespace vocabpipe
