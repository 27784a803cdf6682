// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/loaded_program.hpp"

namespace vocabpipe {

LoadedProgram::LoadedProgram(const Program& of_rank, bool asynchronous)
    : program(of_rank),
      successors(program.actions.size(), program.edges),
      waits(asynchronous ? program.actions.size() : 0),
      users(program.buffers.size(), 0) {
    for (uint32_t i = 0; i < actions(); ++i) {
        const Lane lane = program.actions[i].lane;
        const bool communicates = lane != Lane::compute && lane != Lane::combine;
        const Lane queue = asynchronous && communicates ? Lane::collective : lane;
        queues[static_cast<size_t>(queue)].push_back(i);
    }
    for (const Edge& edge : program.edges) {
        if (!asynchronous) break;
        if (program.actions[edge.before].lane == program.actions[edge.after].lane) {
            continue;  // a lane keeps its order
        }
        waits[edge.after].push_back(edge.before);
    }
    for (const uint32_t operand : program.operands) {
        if (operand != kNoBuffer) ++users[operand];
    }
    timeline.spans.reserve(actions());
}

}  // namespace vocabpipe
