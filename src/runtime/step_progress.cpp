// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/step_progress.hpp"

namespace vocabpipe {

void StepProgress::begin(LoadedProgram& program) {
    loaded = &program;
    missing = program.edges.ends.missing;
    waited_for.assign(program.actions(), UINT32_MAX);
    head.assign(program.queues.size(), 0);
    in_flight.clear();
    streams.clear();
    rows.assign(program.edges.any() ? program.actions() : 0, 0);
    started.clear();
    done = settled = pieces = pieces_enqueued = pieces_settled = 0;
    awaited_rows = 0;
    streaming_pass = StreamEdges::kNone;
    enqueues_pass = false;
}

const uint32_t* StepProgress::current_pass() const {
    if (streaming_pass != StreamEdges::kNone) return &streaming_pass;
    const std::vector<uint32_t>& actions = loaded->queues[LoadedProgram::kPassQueue];
    size_t next = head[LoadedProgram::kPassQueue];
    if (enqueues_pass) --next;
    while (next < actions.size() && action(actions[next]).what != Do::pass) ++next;
    return next < actions.size() ? &actions[next] : nullptr;
}

void StepProgress::begin_rows(uint32_t action) {
    for (const uint32_t next : loaded->edges.takers_of(action)) {
        waited_for[next] = action;
        --missing[next];
    }
}

void StepProgress::complete(uint32_t action) {
    ++done;
    for (const uint32_t next : loaded->edges.ends.of(action)) {
        waited_for[next] = action;
        --missing[next];
    }
}

}  // namespace vocabpipe
