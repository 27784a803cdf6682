// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/recorded_run.hpp"

#include "src/schedule/communication.hpp"
#include "src/schedule/run_recorder.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// Changes of the bytes alive: one per moment and purpose, those that cancel out left out.
std::vector<RecordedRun::MemoryChange> memory_of(const Program& program,
                                                 const std::vector<const Span*>& span_of,
                                                 int64_t origin) {
    std::vector<std::pair<int64_t, int64_t>> life(program.buffers.size(), {INT64_MAX, INT64_MIN});
    for (size_t i = 0; i < program.actions.size(); ++i) {
        if (span_of[i] == nullptr) continue;
        for (const uint32_t operand : program.operands_of(program.actions[i])) {
            if (operand == kNoBuffer) continue;
            life[operand].first = std::min(life[operand].first, span_of[i]->begin_ns);
            life[operand].second = std::max(life[operand].second, span_of[i]->end_ns);
        }
    }
    std::vector<RecordedRun::MemoryChange> changes;
    for (size_t b = 0; b < program.buffers.size(); ++b) {
        const Buffer& buffer = program.buffers[b];
        if (life[b].first == INT64_MAX || buffer.space != Buffer::Space::arena) continue;
        const auto purpose = static_cast<uint32_t>(buffer.purpose);
        const auto bytes = static_cast<int64_t>(buffer.bytes);
        changes.push_back({life[b].first - origin, purpose, bytes});
        changes.push_back({life[b].second - origin, purpose, -bytes});
    }
    const auto key = [](const RecordedRun::MemoryChange& change) {
        return std::pair(change.at_ns, change.purpose);
    };
    std::sort(changes.begin(), changes.end(),
              [&](const auto& a, const auto& b) { return key(a) < key(b); });
    std::vector<RecordedRun::MemoryChange> merged;
    for (const RecordedRun::MemoryChange& change : changes) {
        if (!merged.empty() && key(merged.back()) == key(change)) {
            merged.back().bytes += change.bytes;
        } else {
            merged.push_back(change);
        }
    }
    std::erase_if(merged, [](const auto& change) { return change.bytes == 0; });
    return merged;
}

}  // namespace

RecordedRun record(const Timeline& timeline, const std::vector<Program>& programs,
                   const std::string& title) {
    int64_t origin = INT64_MAX;
    for (const Span& span : timeline.spans) origin = std::min(origin, span.begin_ns);
    std::vector<std::vector<const Span*>> span_of(programs.size());
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        span_of[rank].assign(programs[rank].actions.size(), nullptr);
    }
    RunRecorder recorder(title);
    for (const Span& span : timeline.spans) {
        span_of[span.rank][span.action] = &span;
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
    for (int purpose = 0; purpose < kPurposes; ++purpose) {
        run.purposes.emplace_back(to_string(static_cast<Purpose>(purpose)));
    }
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        run.memory.push_back(memory_of(programs[rank], span_of[rank], origin));
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
    return summarize(timeline, std::vector<Program>(static_cast<size_t>(run.ranks)));
}

}  // namespace vocabpipe
