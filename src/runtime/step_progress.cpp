// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/step_progress.hpp"

namespace vocabpipe {

void StepProgress::begin(LoadedProgram& program) {
    loaded = &program;
    missing = program.successors.missing;
    waited_for.assign(program.actions(), UINT32_MAX);
    head.assign(program.queues.size(), 0);
    in_flight.clear();
    started.clear();
    done = settled = 0;
    enqueues_pass = false;
}

const uint32_t* StepProgress::current_pass() const {
    const std::vector<uint32_t>& actions = loaded->queues[LoadedProgram::kPassQueue];
    size_t next = head[LoadedProgram::kPassQueue];
    if (enqueues_pass) --next;
    while (next < actions.size() && action(actions[next]).what != Do::pass) ++next;
    return next < actions.size() ? &actions[next] : nullptr;
}

void StepProgress::complete(uint32_t action) {
    ++done;
    for (const uint32_t next : loaded->successors.of(action)) {
        waited_for[next] = action;
        --missing[next];
    }
}

}  // namespace vocabpipe
