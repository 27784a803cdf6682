// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// A tensor or microbatch with a NaN or an infinity, and the first rank that has it.
struct NonFinitePlace {
    int id = 0;  ///< of a logical parameter, or index of a microbatch
    int rank = 0;
};

/// Values of a step that are not finite, over all ranks: by id, each id once.
struct NonFinite {
    std::vector<NonFinitePlace> weights, gradients, losses;
};

/// Checks the weights, gradients and microbatch losses that the last step left. Reads all of them,
/// so call it only after a step whose loss or norm is not finite. Collective.
[[nodiscard]] NonFinite find_non_finite(Communicator& communicator, ModelRank& model, Context& ctx);

/// One line: "step 12: loss nan, gradient norm nan: ...", with the likely cause first: a weight,
/// else a microbatch's loss, else the gradient that the backward reached first.
[[nodiscard]] std::string describe_non_finite(const NonFinite& found, const ModelConfig& config,
                                              int64_t step, double loss, double grad_norm);

}  // namespace vocabpipe
