// SPDX-License-Identifier: Apache-2.0
// Which part of a parameter each rank of tensor parallelism (Megatron-LM, Shoeybi et al. 2019,
// arXiv 1909.08053) or of expert parallelism holds.
#pragma once

#include "src/model/parameter_source.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/tensor_shard.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// A rank among those that share a stage (i of t), or the experts of a layer (j of e).
struct TeamPlace {
    int rank = 0;
    int ranks = 1;
    /// x: of a team of experts, neighboring ranks that share each expert; divides `ranks`.
    int expert_tensor = 1;
    /// Member by member.
    friend bool operator==(const TeamPlace&, const TeamPlace&) = default;
};

/// The largest part of `count` items that `places` ranks share, rank i having those from count i /
/// places on.
[[nodiscard]] constexpr int64_t largest_part(int64_t count, int places) {
    return (count + places - 1) / places;
}

/// The part of the rank at `place` in the team that LogicalParameter::cut names. Every range of
/// LogicalParameter::ranges is cut into `place.ranks` equal parts, so that rank i has its part of
/// q, of k and of v. Experts are cut in two steps: e / x groups of ranks have equally many experts
/// each, and of these a rank of the group has one of x parts (LogicalParameter::expert_cut). Throws
/// UsageError if a range cannot be cut so.
[[nodiscard]] TensorShard tensor_shard(const LogicalParameter& parameter, TeamPlace place);

/// The axis over which gradients of parameters with this cut are added up, if `tensor` ranks share
/// a stage and `expert` ranks its experts.
[[nodiscard]] Axis gradient_axis(TensorCut cut, int tensor, int expert);

/// The part of one rank among those that share `rows`, each of whose rows has `columns` elements:
/// rank i has rows from rows.first + rows.count i / place.ranks on.
[[nodiscard]] TensorShard row_shard(TensorShard::Range rows, int64_t columns, TeamPlace place);

/// Elements that are contiguous both in a part, which is row-major, and in its logical tensor.
struct ElementRun {
    int64_t held = 0;     ///< the first one's index in the part
    int64_t logical = 0;  ///< and its index in the logical tensor
    int64_t count = 0;
};

/// Calls `work` with all runs of the part of a tensor of `logical_columns` columns, in order, each
/// as long as possible.
void for_each_run(const TensorShard& shard, int64_t logical_columns,
                  const std::function<void(const ElementRun&)>& work);

}  // namespace vocabpipe
