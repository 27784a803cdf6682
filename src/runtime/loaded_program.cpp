// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/loaded_program.hpp"

#include "src/schedule/ops.hpp"

#include <algorithm>
#include <numeric>

namespace vocabpipe {

std::vector<uint32_t> enqueue_order(const Program& program) {
    const auto count = static_cast<uint32_t>(program.actions.size());
    // Number of passes of the rank before each action. A lane keeps its order.
    std::vector<uint32_t> after(count, 0);
    Successors successors(count, program.edges);
    uint32_t passes = 0;
    uint32_t communication = 0;
    uint32_t local = 0;
    for (uint32_t i = 0; i < count; ++i) {
        switch (traits(program.actions[i].what).kind) {
            case ActionKind::pass:
                after[i] = ++passes;
                break;
            case ActionKind::communication:
                after[i] = communication = std::max(communication, after[i]);
                break;
            case ActionKind::local:
                after[i] = local = std::max(local, after[i]);
                break;
        }
        for (const uint32_t next : successors.of(i)) after[next] = std::max(after[next], after[i]);
    }
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, {}, [&](uint32_t action) { return after[action]; });
    return order;
}

LoadedProgram::LoadedProgram(const Program& of_rank, bool asynchronous)
    : program(of_rank),
      edges(program, true),
      waits(asynchronous ? program.actions.size() : 0),
      users(program.buffers.size(), 0) {
    if (asynchronous) {
        queues.push_back(enqueue_order(program));
    } else {
        queues.resize(kLanes);
        for (uint32_t i = 0; i < actions(); ++i) {
            queues[static_cast<size_t>(program.actions[i].lane)].push_back(i);
        }
    }
    for (size_t i = 0, streamed = 0; asynchronous && i < program.edges.size(); ++i) {
        if (streamed < program.streamed.size() && program.streamed[streamed] == i) {
            ++streamed;  // it waits for rows
            continue;
        }
        const Edge& edge = program.edges[i];
        const Lane lane = program.actions[edge.before].lane;
        if (lane == program.actions[edge.after].lane) continue;  // a lane keeps its order
        std::vector<uint32_t>& befores = waits[edge.after];
        const auto same = std::ranges::find_if(
            befores, [&](uint32_t before) { return program.actions[before].lane == lane; });
        if (same == befores.end()) {
            befores.push_back(edge.before);
        } else {
            *same = std::max(*same, edge.before);  // the last one of a lane is enough
        }
    }
    for (const uint32_t operand : program.operands) {
        if (operand != kNoBuffer) ++users[operand];
    }
    for (uint32_t i = 0; i < actions(); ++i) {
        const Action& action = program.actions[i];
        if (action.what != Do::pass) continue;
        if (program.passes[action.item].op == Op::Report) report = i;
    }
    timeline.spans.reserve(actions());
}

}  // namespace vocabpipe
