// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/replicate.hpp"

#include "src/schedule/ops.hpp"

#include <utility>

namespace vocabpipe::lowering {

namespace {

/// Buffers that are another part of their bucket on every replica.
void place_blocks(std::vector<Program>& programs, const Dataflow& flow, Mesh mesh) {
    std::vector<uint32_t> next(flow.passes.size(), 0);  // buffers are in flow's order on every rank
    for (const PlannedBuffer& planned : flow.buffers) {
        const uint32_t index = next[planned.rank]++;
        const PlannedBuffer::Block& block = planned.block;
        if (block.copies == 0) continue;
        const Reduction& parts = flow.reductions[block.reduction];
        for (int replica = 0; replica < mesh.data; ++replica) {
            Buffer& buffer = programs[static_cast<size_t>(mesh.world_rank(planned.rank, replica))]
                                 .buffers[index];
            buffer.bytes = static_cast<uint64_t>(parts.rows(replica) * block.width * block.copies);
            if (planned.space == Buffer::Space::arena) continue;
            buffer.offset =
                static_cast<uint64_t>(parts.first_row[static_cast<size_t>(replica)] * block.width);
        }
    }
}

}  // namespace

Group group_of_replica(const Dataflow& flow, uint16_t group, Mesh mesh, int replica) {
    const Group& of = flow.groups[group];
    Group members;
    const bool all = flow.axes[group] != Axis::pipeline;
    for (const int rank : of.ranks) {
        for (int r = all ? 0 : replica; r < (all ? mesh.data : replica + 1); ++r) {
            members.ranks.push_back(mesh.world_rank(rank, r));
        }
    }
    if (of.root >= 0) members.root = mesh.world_rank(of.root, replica);
    return members;
}

std::vector<Program> replicate(const std::vector<Program>& pipeline, const Dataflow& flow,
                               Mesh mesh) {
    std::vector<Program> programs;
    programs.reserve(static_cast<size_t>(mesh.size()));
    for (const Program& program : pipeline) {
        for (int replica = 0; replica < mesh.data; ++replica) {
            programs.push_back(program);
            Program& copy = programs.back();
            copy.rank = mesh.world_rank(program.rank, replica);
            for (size_t g = 0; g < copy.groups.size(); ++g) {
                copy.groups[g] = group_of_replica(flow, static_cast<uint16_t>(g), mesh, replica);
            }
            for (Action& action : copy.actions) {
                const bool together =
                    is_communication(action.what) && flow.axes[action.group] != Axis::pipeline;
                action.order = action.order * static_cast<uint32_t>(mesh.data) +
                               static_cast<uint32_t>(together ? 0 : replica);
            }
        }
    }
    place_blocks(programs, flow, mesh);
    return programs;
}

}  // namespace vocabpipe::lowering
