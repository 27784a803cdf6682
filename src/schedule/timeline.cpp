// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/timeline.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// Whether the optimizer step waits for the reports of all ranks.
bool waits_for_all(const std::vector<Program>& programs) {
    for (const Program& program : programs) {
        const bool updates = !program.passes.empty() && program.passes.back().op == Op::Update;
        if (!updates) return false;
    }
    return !programs.empty();
}

}  // namespace

TimelineSummary summarize(const Timeline& timeline, const std::vector<Program>& programs) {
    TimelineSummary summary;
    summary.ranks.resize(programs.size());
    std::vector<std::pair<int64_t, int64_t>> compute(programs.size(), {INT64_MAX, INT64_MIN});
    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;
    for (const Span& span : timeline.spans) {
        first = std::min(first, span.begin_ns);
        last = std::max(last, span.end_ns);
        if (span.lane != Lane::compute && span.lane != Lane::local) continue;
        summary.ranks[span.rank].busy_ns += span.cpu_ns;
        if (span.lane == Lane::compute) {
            auto& [begin, end] = compute[span.rank];
            begin = std::min(begin, span.begin_ns);
            end = std::max(end, span.end_ns);
        }
    }
    if (timeline.spans.empty()) return summary;
    summary.makespan_ns = last - first;
    summary.barrier = !timeline.early_update && waits_for_all(programs);
    summary.fixed_ns = timeline.fixed_ns;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        RankSummary& of_rank = summary.ranks[rank];
        if (compute[rank].first != INT64_MAX) {
            of_rank.span_ns = compute[rank].second - compute[rank].first;
        }
        if (summary.makespan_ns > 0) {
            // In simulated time combine_softmax runs in parallel with a pass, so busy can exceed
            // the makespan.
            of_rank.bubble = std::max(0.0, 1.0 - static_cast<double>(of_rank.busy_ns) /
                                                     static_cast<double>(summary.makespan_ns));
        }
        summary.largest_span_ns = std::max(summary.largest_span_ns, of_rank.span_ns);
        summary.bubble += of_rank.bubble / static_cast<double>(programs.size());
    }
    summary.step_ns =
        (summary.barrier ? summary.makespan_ns : summary.largest_span_ns) + summary.fixed_ns;
    return summary;
}

}  // namespace vocabpipe
