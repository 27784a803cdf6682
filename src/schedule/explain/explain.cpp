// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/explain.hpp"

#include "src/schedule/explain/backtrace.hpp"
#include "src/schedule/rows_of_wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using explaining::Backtrace;
using explaining::Stretch;

void require_spans(const Timeline& timeline) {
    if (timeline.spans.empty()) {
        throw UsageError("explain: the timeline is empty; simulate or run a step first");
    }
}

ChainLink link_of(const Stretch& stretch, const std::vector<Program>& programs, int64_t origin) {
    const Program& program = programs[static_cast<size_t>(stretch.place.rank)];
    return {.rank = stretch.place.rank,
            .action = stretch.place.action,
            .name = program.name_of(program.actions[stretch.place.action]),
            .cause = stretch.cause,
            .begin_ns = stretch.begin_ns - origin,
            .end_ns = stretch.end_ns - origin,
            .why = stretch.why};
}

}  // namespace

std::string_view to_string(Cause cause) {
    switch (cause) {
        case Cause::compute:
            return "compute";
        case Cause::local:
            return "combine_softmax, ordered_sum";
        case Cause::transfer:
            return "transfer";
        case Cause::collective:
            return "collective";
        case Cause::memory:
            return "memory reuse";
        case Cause::posting:
            return "late receive";
        case Cause::overhead:
            return "overhead";
        case Cause::fixed:
            return "fixed";
    }
    return "unknown";
}

Explanation explain(const Timeline& timeline, const std::vector<Program>& programs, int rank,
                    int64_t at_ns) {
    require_spans(timeline);
    if (rank < 0 || static_cast<size_t>(rank) >= programs.size()) {
        throw UsageError("explain: rank " + std::to_string(rank) +
                         " does not exist, ranks are 0 to " + std::to_string(programs.size() - 1));
    }
    const Backtrace back(timeline, programs);
    const int64_t origin = back.first_begin_ns();
    const int64_t length = back.last_end_ns() - origin;
    if (at_ns < 0 || at_ns > length) {
        throw UsageError("explain: time " + std::to_string(at_ns) +
                         " ns is outside the step, which " + "lasts from 0 to " +
                         std::to_string(length) + " ns");
    }
    const Program& program = programs[static_cast<size_t>(rank)];
    const int64_t now = origin + at_ns;
    Explanation result;
    result.rank = rank;
    result.at_ns = at_ns;
    int64_t idle_since = origin;
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        const Span* span = back.span_of({rank, i});
        if (program.actions[i].lane != Lane::compute || span == nullptr) continue;
        if (span->end_ns <= now) {
            idle_since = span->end_ns;
            continue;
        }
        result.action = i;
        result.name = program.name_of(program.actions[i]);
        if (span->begin_ns <= now && now < span->end_ns) {
            result.state = Explanation::State::busy;
            result.begin_ns = span->begin_ns - origin;
            result.end_ns = span->end_ns - origin;
            for (const PieceWait& wait : timeline.piece_waits) {
                if (wait.rank != rank || wait.begin_ns > now || now >= wait.end_ns) continue;
                result.begin_ns = wait.begin_ns - origin;
                result.end_ns = wait.end_ns - origin;
                result.waits_for = rows_of_wait(program, wait);
            }
            return result;
        }
        result.state = Explanation::State::idle;
        result.begin_ns = idle_since - origin;
        result.end_ns = span->begin_ns - origin;
        for (const Stretch& stretch : back.from_begin_of({rank, i}, idle_since)) {
            result.chain.push_back(link_of(stretch, programs, origin));
        }
        return result;
    }
    result.state = Explanation::State::finished;
    result.begin_ns = idle_since - origin;
    result.end_ns = length;
    return result;
}

CriticalPath critical_path(const Timeline& timeline, const std::vector<Program>& programs) {
    require_spans(timeline);
    const Backtrace back(timeline, programs);
    const int64_t origin = back.first_begin_ns();
    CriticalPath path;
    path.total_ns = back.last_end_ns() - origin + timeline.fixed_ns;
    for (const Stretch& stretch : back.from_end_of(back.last())) {
        PathSegment segment{.begin_ns = stretch.begin_ns - origin,
                            .end_ns = stretch.end_ns - origin,
                            .cause = stretch.cause,
                            .rank = stretch.place.rank,
                            .action = stretch.place.action};
        if (segment.cause == Cause::compute) {
            const Program& program = programs[static_cast<size_t>(segment.rank)];
            segment.op = program.passes[program.actions[segment.action].item].op;
        }
        path.segments.push_back(segment);
    }
    if (timeline.fixed_ns > 0) {
        path.segments.push_back({.begin_ns = -timeline.fixed_ns, .cause = Cause::fixed});
    }
    std::reverse(path.segments.begin(), path.segments.end());
    for (const PathSegment& segment : path.segments) {
        auto share = std::find_if(path.shares.begin(), path.shares.end(), [&](const PathShare& s) {
            return s.cause == segment.cause && s.op == segment.op;
        });
        if (share == path.shares.end()) {
            const bool compute = segment.cause == Cause::compute;
            path.shares.push_back(
                {.name = std::string(compute ? traits(segment.op).name : to_string(segment.cause)),
                 .cause = segment.cause,
                 .op = segment.op});
            share = path.shares.end() - 1;
        }
        share->ns += segment.end_ns - segment.begin_ns;
    }
    for (PathShare& share : path.shares) {
        share.share = static_cast<double>(share.ns) / static_cast<double>(path.total_ns);
    }
    std::sort(path.shares.begin(), path.shares.end(), [](const PathShare& a, const PathShare& b) {
        return a.ns != b.ns ? a.ns > b.ns : a.name < b.name;
    });
    return path;
}

}  // namespace vocabpipe
