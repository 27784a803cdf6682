// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/loaded_program.hpp"

#include <algorithm>

namespace vocabpipe {

LoadedProgram::LoadedProgram(const Program& of_rank, bool asynchronous)
    : program(of_rank),
      successors(program.actions.size(), program.edges),
      waits(asynchronous ? program.actions.size() : 0),
      users(program.buffers.size(), 0) {
    for (uint32_t i = 0; i < actions(); ++i) {
        const Lane lane = program.actions[i].lane;
        const bool communicates = lane != Lane::compute && lane != Lane::local;
        const Lane queue = asynchronous && communicates ? Lane::collective : lane;
        queues[static_cast<size_t>(queue)].push_back(i);
    }
    for (const Edge& edge : program.edges) {
        if (!asynchronous) break;
        const Lane lane = program.actions[edge.before].lane;
        if (lane == program.actions[edge.after].lane) continue;  // a lane keeps its order
        std::vector<uint32_t>& befores = waits[edge.after];
        const auto same = std::ranges::find_if(
            befores, [&](uint32_t before) { return program.actions[before].lane == lane; });
        if (same == befores.end()) {
            befores.push_back(edge.before);
        } else {
            *same = std::max(*same, edge.before);  // the last of a lane: the others run before it
        }
    }
    for (const uint32_t operand : program.operands) {
        if (operand != kNoBuffer) ++users[operand];
    }
    timeline.spans.reserve(actions());
}

}  // namespace vocabpipe
