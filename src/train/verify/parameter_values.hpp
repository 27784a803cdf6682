// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/tensor_shard.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// Values of one parameter of a rank after a step, on the host.
struct ParameterValues {
    std::string name;
    std::vector<ElementRun> runs;  ///< where the elements lie in the logical tensor
    std::vector<float> weight;     ///< all that outlives the step on the rank
    int64_t first_weight = 0;      ///< which element of the rank's shard the first of `weight` is
    int64_t first = 0;             ///< the same of `gradient`
    /// The part that the rank updates: the sum over all ranks. Empty: frozen, or updated elsewhere.
    std::vector<float> gradient;
};

[[nodiscard]] ParameterValues values_of(const Parameter& parameter, Device& device);

/// The values of the index-th parameter of every rank, by rank, on rank 0; none for a rank that has
/// fewer. Empty on the other ranks. `mine`: null for such a rank. Collective.
[[nodiscard]] std::vector<std::optional<ParameterValues>> gather_values(Communicator& communicator,
                                                                        const Parameter* mine,
                                                                        Device& device);

}  // namespace vocabpipe
