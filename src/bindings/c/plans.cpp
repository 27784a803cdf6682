// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/c/interface.hpp"
#include "src/bindings/plan_request.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/split_text.hpp"
#include "vocabpipe/error.hpp"

#include <string_view>
#include <utility>
#include <vector>

using namespace vocabpipe;
using namespace vocabpipe::bindings;
namespace c = vocabpipe::bindings::c;

namespace {

/// "a,b,c"; none for NULL and "".
std::vector<std::string> entries(const char* list) {
    if (list == nullptr || *list == '\0') return {};
    const std::vector<std::string_view> parts = split_text(list);
    return {parts.begin(), parts.end()};
}

template <typename Number = int>
std::vector<Number> numbers(const char* name, const char* list) {
    std::vector<Number> result;
    for (const std::string& text : entries(list)) {
        const std::optional<Number> number = parse_number<Number>(text);
        if (!number) {
            throw UsageError(std::string(name) + " " + list +
                             ": must be numbers separated by commas");
        }
        result.push_back(*number);
    }
    return result;
}

}  // namespace

extern "C" {

vp_status vp_plan_make(const vp_plan_options* options, vp_plan** plan) {
    return c::guarded([&] {
        c::require(plan, "plan");
        c::require(options, "options");
        const vp_plan_options from = c::given(options, "options");
        PlanRequest request{
            .model = c::text_or(from.model),
            .gpu = c::text_or(from.gpu),
            .profile = c::text_or(from.profile),
            .gpus = from.gpus,
            .global_batch_size = from.global_batch_size,
            .seq_length = from.seq_length,
            .tensor = numbers("tensor", from.tensor),
            .context = numbers("context", from.context),
            .pipeline = numbers("pipeline", from.pipeline),
            .data = numbers("data", from.data),
            .expert = numbers("expert", from.expert),
            .expert_tensor = numbers("expert_tensor", from.expert_tensor),
            .chunks = numbers("chunks", from.chunks),
            .micro_batch_size = numbers<int64_t>("micro_batch_size", from.micro_batch_size),
            .recompute = entries(from.recompute),
            .schedules = entries(from.schedules),
            .vocab_modes = entries(from.vocab_modes),
            .overlap_pairs = from.overlap_pairs != 0,
            .all_sizes = from.all_sizes != 0};
        if (from.vocab_size != 0) request.vocab_size = from.vocab_size;
        if (from.memory_gib != 0) request.memory_gib = from.memory_gib;
        Plan made = make_plan(options_of(request));
        made.remedies = find_remedies(made);
        c::hand_over(plan, std::move(made));
    });
}

void vp_plan_free(vp_plan* plan) {
    delete plan;
}

size_t vp_plan_rows(const vp_plan* plan) {
    return plan->plan.rows.size();
}

vp_status vp_plan_get_row(const vp_plan* plan, size_t index, vp_plan_row* row) {
    return c::guarded([&] {
        c::require(plan, "plan");
        const PlanRow& of = row_of(plan->plan, static_cast<int64_t>(index));
        const Candidate& candidate = of.candidate;
        c::give(row,
                {.size = 0,
                 .schedule = candidate.schedule.c_str(),
                 .vocab_mode = to_string(candidate.vocab_mode).data(),
                 .recompute = to_string(candidate.recompute).data(),
                 .chunks = candidate.chunks,
                 .pipeline = candidate.mesh.pipeline,
                 .tensor = candidate.mesh.tensor,
                 .context = candidate.mesh.context,
                 .data = candidate.mesh.data,
                 .expert = candidate.expert_groups(),
                 .expert_tensor = candidate.expert_tensor,
                 .microbatches = candidate.microbatches,
                 .micro_batch_size = candidate.micro_batch_size,
                 .step_ns = of.step_ns,
                 .tokens_per_second = of.tokens_per_second,
                 .mfu = of.mfu,
                 .bubble = of.bubble,
                 .total_bytes = of.worst.total(),
                 .spare_bytes = of.spare_bytes,
                 .overlap_pairs = candidate.overlap_pairs ? 1 : 0},
                "row");
    });
}

vp_status vp_plan_command(const vp_plan* plan, size_t index, char** text) {
    return c::guarded([&] {
        c::require(text, "text");
        c::require(plan, "plan");
        const PlanRow& row = row_of(plan->plan, static_cast<int64_t>(index));
        *text = c::owned_text(train_command(plan->plan.options, row.candidate));
    });
}

vp_status vp_plan_json(const vp_plan* plan, char** text) {
    return c::guarded([&] {
        c::require(text, "text");
        c::require(plan, "plan");
        *text = c::owned_text(plan_json(plan->plan));
    });
}

}  // extern "C"
