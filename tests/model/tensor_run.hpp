// SPDX-License-Identifier: Apache-2.0
// Stages of a model on the ranks of a tensor team, without the rest of a step.
#pragma once

#include "src/model/tensor_shard.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/tile_link.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// All layers of a model in three stages, of which the second has none: two microbatches forwards,
/// again where there is something to recompute, and backwards.
struct TensorRun {
    ModelConfig config;
    int64_t sequences = 1;
    Recompute recompute = Recompute::none;
    bool split = false;  ///< I, then W; else B
    bool documents = false;
    int ranks = 1;   ///< t
    int pieces = 1;  ///< K
};

/// What one rank makes.
struct RankResults {
    /// y and dx of every stage and microbatch; with depths of multi-token prediction y of the last
    /// stage by depth, and the gradient of the embedded tokens.
    std::vector<std::byte> boundaries;
    std::vector<std::vector<float>> gradients;  ///< of the parameters of all stages, cut
    friend bool operator==(const RankResults&, const RankResults&) = default;
};

/// Runs one rank; `link`: null alone. Fails the test where memory beyond what the stage asks for is
/// written, or a recomputation makes other bits than the forward.
[[nodiscard]] RankResults run_rank(const TensorRun& run, int rank, TileLink* link);

/// Runs all ranks on threads that meet in a SerialTeam, or through tile links of a world.
[[nodiscard]] std::vector<RankResults> run_serially(const TensorRun& run);
[[nodiscard]] std::vector<RankResults> run_with_links(const TensorRun& run);

/// Boundaries and gradients of a whole model, by name, as numbers.
struct WholeResults {
    std::vector<std::string> names;
    std::vector<std::vector<double>> values;
};
/// Puts rows together, cut gradients too, and adds up those of repeated parameters.
[[nodiscard]] WholeResults put_together(const TensorRun& run,
                                        const std::vector<RankResults>& ranks);

}  // namespace vocabpipe::testing
