// SPDX-License-Identifier: Apache-2.0
// What differs between the slices of a mesh: the ranks of groups, positions in the global order,
// and which parts of a reduction a buffer is.
#pragma once

#include "src/schedule/ops.hpp"
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

/// Whom an action meets: the members of a communication's group, the tensor ranks of a stage's
/// pass; nobody else, which is what Axis::pipeline stands for. `groups`: of pipeline ranks.
[[nodiscard]] inline Axis met_in(const Program& program, const Action& action,
                                 const std::vector<Group>& groups) {
    if (is_communication(action.what)) return groups[action.group].axis;
    const bool of_stage =
        action.what == Do::pass && traits(program.passes[action.item].op).has_stage;
    return of_stage ? Axis::tensor : Axis::pipeline;
}

/// Positions are spread such that slices meet in what they do together and nowhere else.
/// `together`: met_in().
[[nodiscard]] inline uint32_t order_at(uint32_t order, Axis together, const Mesh& mesh, int slice) {
    return order * static_cast<uint32_t>(mesh.slices()) +
           static_cast<uint32_t>(mesh.slices_along(together, slice).first);
}

/// A buffer as it is on one slice.
[[nodiscard]] inline Buffer buffer_at(Buffer buffer, const SliceBlock& block,
                                      const Reduction& parts, const Mesh& mesh, int slice) {
    const Mesh::Slices slices = mesh.slices_along(block.axis, slice);
    const int member = (slice - slices.first) / slices.step;
    buffer.bytes = static_cast<uint64_t>(parts.rows(member) * block.width * block.copies);
    if (buffer.space != Buffer::Space::arena) {
        buffer.offset =
            static_cast<uint64_t>(parts.first_row[static_cast<size_t>(member)] * block.width);
    }
    return buffer;
}

}  // namespace vocabpipe::lowering
