// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/c/interface.hpp"
#include "vocabpipe/error.hpp"

#include <optional>

using namespace vocabpipe;
using namespace vocabpipe::bindings;
namespace c = vocabpipe::bindings::c;

namespace {

/// "auto" for 0.
std::string number_or_auto(int32_t number) {
    return number == 0 ? "auto" : std::to_string(number);
}

}  // namespace

extern "C" {

vp_status vp_simulate(const vp_schedule* schedule, const vp_costs* costs,
                      const vp_simulate_options* options, vp_timeline** timeline) {
    return c::guarded([&] {
        c::require(timeline, "timeline");
        c::require(schedule, "schedule");
        const vp_simulate_options from = c::given(options, "options");
        c::hand_over(timeline, simulated_step(schedule->described, c::costs_of(costs),
                                              {.wait_for_reports = from.no_optimizer_barrier == 0,
                                               .cores = from.cores,
                                               .receive_ahead = number_or_auto(from.receive_ahead),
                                               .tile_pieces = number_or_auto(from.tile_pieces)}));
    });
}

vp_status vp_timeline_read(const char* path, vp_timeline** timeline) {
    return c::guarded([&] {
        c::require(timeline, "timeline");
        c::require(path, "path");
        c::hand_over(timeline, recorded_step(path));
    });
}

void vp_timeline_free(vp_timeline* timeline) {
    delete timeline;
}

vp_status vp_timeline_summary(const vp_timeline* timeline, vp_step_summary* summary) {
    return c::guarded([&] {
        c::require(timeline, "timeline");
        const StepTimeline& step = timeline->step;
        c::give(summary,
                {.size = 0,
                 .ranks = step.run.ranks,
                 .in_ns = step.run.ticks_per_unit == 0,
                 .makespan = step.time(step.summary.makespan_ns),
                 .step = step.time(step.summary.step_ns),
                 .bubble = step.summary.bubble,
                 .spans = step.run.slices.size()},
                "summary");
    });
}

vp_status vp_timeline_rank(const vp_timeline* timeline, int32_t rank, vp_rank_summary* summary) {
    return c::guarded([&] {
        c::require(timeline, "timeline");
        const StepTimeline& step = timeline->step;
        if (rank < 0 || rank >= std::ssize(step.summary.ranks)) {
            throw UsageError("rank " + std::to_string(rank) + ": must be from 0 to " +
                             std::to_string(step.summary.ranks.size() - 1));
        }
        const auto at = static_cast<size_t>(rank);
        const RankSummary& of_rank = step.summary.ranks[at];
        int64_t peak = -1;
        if (step.simulated) {
            peak = static_cast<int64_t>(step.simulated->simulation.memory[at].peak_bytes);
        }
        c::give(summary,
                {.size = 0,
                 .busy = step.time(of_rank.busy_ns),
                 .span = step.time(of_rank.span_ns),
                 .bubble = of_rank.bubble,
                 .peak_bytes = peak},
                "summary");
    });
}

vp_status vp_timeline_span(const vp_timeline* timeline, size_t index, vp_span* span) {
    return c::guarded([&] {
        c::require(timeline, "timeline");
        const StepTimeline& step = timeline->step;
        if (index >= step.run.slices.size()) {
            throw UsageError("index " + std::to_string(index) + ": the step has " +
                             std::to_string(step.run.slices.size()) + " spans, from 0 on");
        }
        const RecordedRun::Slice& slice = step.run.slices[index];
        const bool numbered = slice.number != RecordedRun::kNone;
        c::give(span,
                {.size = 0,
                 .rank = slice.rank,
                 .microbatch = numbered ? static_cast<int32_t>(slice.number) : -1,
                 .name = step.run.names[slice.name].c_str(),
                 .lane = to_string(slice.lane).data(),
                 .begin = step.time(slice.begin_ns),
                 .end = step.time(slice.end_ns)},
                "span");
    });
}

vp_status vp_timeline_explain(const vp_timeline* timeline, int32_t rank, double at, char** text) {
    return c::guarded([&] {
        c::require(text, "text");
        c::require(timeline, "timeline");
        const bool whole = rank == -1;
        *text =
            c::owned_text(explained(timeline->step, whole ? std::nullopt : std::optional<int>(rank),
                                    whole ? std::nullopt : std::optional<double>(at)));
    });
}

vp_status vp_timeline_page(const vp_timeline* timeline, char** html) {
    return c::guarded([&] {
        c::require(html, "html");
        c::require(timeline, "timeline");
        *html = c::owned_text(page(timeline->step));
    });
}

}  // extern "C"
