// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/recorded_run.hpp"

#include "src/schedule/ops.hpp"
#include "src/schedule/run_recorder.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// Merges changes of equal time and use; drops those that cancel out.
std::vector<RecordedRun::MemoryChange> merged(const RankMemory& memory, int64_t origin) {
    std::vector<RecordedRun::MemoryChange> changes;
    const auto add = [&](int64_t at, MemoryUse use, int64_t bytes) {
        changes.push_back({at, static_cast<uint32_t>(use), bytes});
    };
    add(0, MemoryUse::weights, static_cast<int64_t>(memory.persistent.weights));
    add(0, MemoryUse::gradients, static_cast<int64_t>(memory.persistent.gradients));
    add(0, MemoryUse::optimizer, static_cast<int64_t>(memory.persistent.optimizer));
    for (const MemoryChange& change : memory.changes) {
        add(change.at_ns - origin, change.use, change.bytes);
    }
    const auto key = [](const RecordedRun::MemoryChange& change) {
        return std::pair(change.at_ns, change.purpose);
    };
    std::sort(changes.begin(), changes.end(),
              [&](const auto& a, const auto& b) { return key(a) < key(b); });
    std::vector<RecordedRun::MemoryChange> result;
    for (const RecordedRun::MemoryChange& change : changes) {
        if (!result.empty() && key(result.back()) == key(change)) {
            result.back().bytes += change.bytes;
        } else {
            result.push_back(change);
        }
    }
    std::erase_if(result, [](const auto& change) { return change.bytes == 0; });
    return result;
}

}  // namespace

RecordedRun record(const Timeline& timeline, const std::vector<Program>& programs,
                   const std::string& title, std::span<const PersistentBytes> persistent,
                   const std::optional<Mesh>& mesh) {
    int64_t origin = INT64_MAX;
    for (const Span& span : timeline.spans) origin = std::min(origin, span.begin_ns);
    RunRecorder recorder(title);
    for (const Span& span : timeline.spans) {
        const Program& program = programs[span.rank];
        const Action& action = program.actions[span.action];
        recorder.add({.begin_ns = span.begin_ns - origin,
                      .end_ns = span.end_ns - origin,
                      .cpu_ns = span.cpu_ns,
                      .order = is_communication(action.what) ? action.order : RecordedRun::kNone,
                      .rank = span.rank,
                      .lane = span.lane},
                     program.name_of(action), span.action, span.waited_for);
    }
    RecordedRun run = std::move(recorder).take(static_cast<int>(programs.size()));
    if (mesh) run.mesh = *mesh;
    run.fixed_ns = timeline.fixed_ns;
    run.barrier = summarize(timeline, programs).barrier;
    for (size_t use = 0; use < kMemoryUses; ++use) {
        run.purposes.emplace_back(to_string(static_cast<MemoryUse>(use)));
    }
    for (const RankMemory& memory : memory_over_time(timeline, programs, persistent)) {
        run.memory.push_back(merged(memory, origin));
    }
    return run;
}

TimelineSummary summarize(const RecordedRun& run) {
    Timeline timeline;
    timeline.spans.reserve(run.slices.size());
    for (const RecordedRun::Slice& slice : run.slices) {
        timeline.spans.push_back({.rank = slice.rank,
                                  .lane = slice.lane,
                                  .begin_ns = slice.begin_ns,
                                  .end_ns = slice.end_ns,
                                  .cpu_ns = slice.cpu_ns});
    }
    timeline.fixed_ns = run.fixed_ns;
    TimelineSummary summary =
        summarize(timeline, std::vector<Program>(static_cast<size_t>(run.ranks)));
    summary.barrier = run.barrier;
    summary.step_ns =
        (run.barrier ? summary.makespan_ns : summary.largest_span_ns) + summary.fixed_ns;
    return summary;
}

}  // namespace vocabpipe
