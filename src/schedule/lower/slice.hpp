// SPDX-License-Identifier: Apache-2.0
// The differences between slices of a mesh: ranks of groups, positions in the global order, and the
// parts of a reduction that a buffer holds.
#pragma once

#include "src/schedule/ops.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/lowered.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// A group of pipeline ranks as its members at `place` see it: ranks of the world. The root is on
/// the first slice that the group joins.
[[nodiscard]] inline Group group_at(const Group& of_pipeline, const Mesh& mesh, Mesh::Place place) {
    const Mesh::Slices slices = mesh.slices_along(of_pipeline.axis, mesh.slice(place));
    Group group{{}, -1, of_pipeline.axis};
    group.ranks.reserve(of_pipeline.ranks.size() * static_cast<size_t>(slices.count));
    for (const int k : of_pipeline.ranks) {
        for (int n = 0; n < slices.count; ++n) {
            group.ranks.push_back(k * mesh.slices() + slices[n]);
        }
    }
    if (of_pipeline.root >= 0) group.root = of_pipeline.root * mesh.slices() + slices.first;
    return group;
}

/// [global stage] Axis of the ranks with which passes of the stage communicate: its tensor and
/// context ranks, or the ranks that share its experts if these are more. One of the two teams
/// contains the other (Mesh::check()).
[[nodiscard]] inline std::vector<Axis> stage_teams(const StepSizes& sizes) {
    std::vector<Axis> teams(sizes.stages.size(), Axis::context_tensor);
    if (sizes.expert <= sizes.context * sizes.tensor) return teams;
    for (size_t s = 0; s < sizes.has_experts.size(); ++s) {
        if (sizes.has_experts[s]) teams[s] = Axis::expert;
    }
    return teams;
}

/// Axis of the ranks that meet in an action: those of a communication's group, or of the team of a
/// stage's pass; Axis::pipeline stands for no other slice. `groups`: of pipeline ranks; `teams`: of
/// stages.
[[nodiscard]] inline Axis met_in(const Program& program, const Action& action,
                                 const std::vector<Group>& groups, const std::vector<Axis>& teams) {
    if (is_communication(action.what)) return groups[action.group].axis;
    if (action.what != Do::pass) return Axis::pipeline;
    const Pass& pass = program.passes[action.item];
    return traits(pass.op).has_stage ? teams[pass.stage] : Axis::pipeline;
}

/// Position in the world's global order: equal on slices that act together, different on all
/// others. `together`: met_in().
[[nodiscard]] inline uint32_t order_at(uint32_t order, Axis together, const Mesh& mesh, int slice) {
    return order * static_cast<uint32_t>(mesh.slices()) +
           static_cast<uint32_t>(mesh.slices_along(together, slice).first);
}

/// A buffer as it is on one slice. `reductions`: those that `block` counts among.
[[nodiscard]] inline Buffer buffer_at(Buffer buffer, const SliceBlock& block,
                                      const std::vector<Reduction>& reductions, const Mesh& mesh,
                                      int slice) {
    const Mesh::Slices slices = mesh.slices_along(block.axis, slice);
    const int member = (slice - slices.first) / slices.step;
    const Reduction& parts = reductions[block.reduction];
    buffer.bytes = static_cast<uint64_t>(parts.rows(member) * block.width * block.copies);
    if (buffer.space == Buffer::Space::arena) return buffer;
    int64_t first = parts.first_row[static_cast<size_t>(member)];
    if (block.own != SliceBlock::kCountedFromFirst) {
        first -= reductions[block.own].first_row[static_cast<size_t>(member)];
    }
    buffer.offset = static_cast<uint64_t>(first * block.width);
    return buffer;
}

}  // namespace vocabpipe::lowering
