// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/c/interface.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <limits>
#include <utility>
#include <vector>

namespace vocabpipe::bindings::c {

namespace {

std::vector<std::vector<Pass>> lists_of(int32_t ranks, const vp_pass* const* passes,
                                        const size_t* counts) {
    if (ranks < 1) throw UsageError("ranks " + std::to_string(ranks) + ": must be at least 1");
    require(passes, "passes");
    require(counts, "counts");
    std::vector<std::vector<Pass>> lists(static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < lists.size(); ++rank) {
        if (counts[rank] > 0) require(passes[rank], "passes of a rank");
        for (size_t at = 0; at < counts[rank]; ++at) {
            const vp_pass& pass = passes[rank][at];
            lists[rank].push_back({.op = op_from(std::string_view(&pass.op, 1)),
                                   .stage = pass.stage,
                                   .microbatch = pass.microbatch,
                                   .with_next = pass.with_next != 0});
        }
    }
    return lists;
}

}  // namespace

Costs costs_of(const vp_costs* costs) {
    const vp_costs from = given(costs, "costs");
    const bool figures = from.forward != 0 || from.backward != 0 || from.vocabulary != 0;
    std::string text;
    if (figures) text = std::to_string(from.forward) + "," + std::to_string(from.backward);
    if (from.vocabulary != 0) {
        text += "," + std::to_string(std::max<int64_t>(from.vocabulary, 0));
    }
    if (figures && from.pass_times != nullptr) {
        throw UsageError("forward, backward: pass_times says what passes take; give one of them");
    }
    if (from.num_layers < 0 || from.num_layers > std::numeric_limits<int>::max()) {
        throw UsageError("num_layers " + std::to_string(from.num_layers) +
                         ": must be from 0 to 2^31 - 1");
    }
    Costs result{.figures = {.costs = text,
                             .latency = from.latency,
                             .hop = from.hop,
                             .num_layers = static_cast<int>(from.num_layers),
                             .hidden_size = from.hidden_size},
                 .pass_times = text_or(from.pass_times)};
    if (from.seq_length != 0) result.figures.seq_length = from.seq_length;
    if (from.micro_batch_size != 0) result.figures.micro_batch_size = from.micro_batch_size;
    return result;
}

}  // namespace vocabpipe::bindings::c

using namespace vocabpipe;
using namespace vocabpipe::bindings;
namespace c = vocabpipe::bindings::c;

extern "C" {

const char* vp_families(void) {
    static const std::string names = [] {
        std::string all;
        for (const Generator& family : generators()) all += std::string(family.name) + "\n";
        return all;
    }();
    return names.c_str();
}

vp_status vp_schedule_make(const vp_schedule_options* options, const vp_costs* costs,
                           vp_schedule** schedule) {
    return c::guarded([&] {
        c::require(schedule, "schedule");
        c::require(options, "options");
        const vp_schedule_options from = c::given(options, "options");
        c::require(from.name, "name");
        c::hand_over(
            schedule,
            made_schedule(from.name,
                          {.ranks = from.ranks,
                           .microbatches = from.microbatches,
                           .vocab_mode = vocab_mode_from(c::text_or(from.vocab_mode, "none")),
                           .vocab_size = from.vocab_size,
                           .rule = {.chunks = from.chunks,
                                    .warm_up_depth = from.warm_up_depth,
                                    .group_size = from.group_size,
                                    .memory_limit = from.memory_limit,
                                    .broadcast_margin = from.broadcast_margin,
                                    .search_moves = from.search_moves,
                                    .overlap_pairs = from.overlap_pairs != 0},
                           .forward_only = from.forward_only != 0},
                          recompute_from(c::text_or(from.recompute, "none")), c::costs_of(costs)));
    });
}

vp_status vp_schedule_from_passes(int32_t ranks, const vp_pass* const* passes, const size_t* counts,
                                  int64_t vocab_size, const char* barriers,
                                  vp_schedule** schedule) {
    return c::guarded([&] {
        c::require(schedule, "schedule");
        c::hand_over(schedule, listed_schedule(c::lists_of(ranks, passes, counts), "user",
                                               vocab_size, c::text_or(barriers, "in_line")));
    });
}

vp_status vp_schedule_insert_vocabulary(const vp_schedule* base, const char* vocab_mode,
                                        int64_t vocab_size, const vp_costs* costs,
                                        vp_schedule** schedule) {
    return c::guarded([&] {
        c::require(schedule, "schedule");
        c::require(base, "base");
        c::require(vocab_mode, "vocab_mode");
        c::hand_over(schedule, with_vocabulary(base->described, vocab_mode_from(vocab_mode),
                                               vocab_size, 0, c::costs_of(costs)));
    });
}

vp_status vp_schedule_parse(const char* text, const char* format, vp_schedule** schedule) {
    return c::guarded([&] {
        c::require(schedule, "schedule");
        c::require(text, "text");
        c::require(format, "format");
        c::hand_over(schedule, parsed_schedule(text, "text", format));
    });
}

vp_status vp_schedule_print(const vp_schedule* schedule, const char* format, char** text) {
    return c::guarded([&] {
        c::require(text, "text");
        c::require(schedule, "schedule");
        c::require(format, "format");
        *text = c::owned_text(printed_schedule(schedule->described, format));
    });
}

void vp_schedule_free(vp_schedule* schedule) {
    delete schedule;
}

int32_t vp_schedule_ranks(const vp_schedule* schedule) {
    return schedule->described.schedule.ranks;
}

int32_t vp_schedule_stages(const vp_schedule* schedule) {
    return schedule->described.schedule.stages;
}

int32_t vp_schedule_microbatches(const vp_schedule* schedule) {
    return schedule->described.schedule.microbatches;
}

int32_t vp_schedule_rank_of_stage(const vp_schedule* schedule, int32_t stage) {
    const std::vector<int>& ranks = schedule->described.schedule.rank_of_stage;
    return stage >= 0 && stage < std::ssize(ranks) ? ranks[static_cast<size_t>(stage)] : -1;
}

size_t vp_schedule_passes(const vp_schedule* schedule, int32_t rank, vp_pass* passes, size_t room) {
    const std::vector<std::vector<Pass>>& lists = schedule->described.schedule.passes;
    if (rank < 0 || rank >= std::ssize(lists)) return 0;
    const std::vector<Pass>& list = lists[static_cast<size_t>(rank)];
    for (size_t at = 0; at < std::min(room, list.size()); ++at) {
        passes[at] = {.op = traits(list[at].op).name.front(),
                      .with_next = list[at].with_next,
                      .stage = list[at].stage,
                      .microbatch = list[at].microbatch};
    }
    return list.size();
}

}  // extern "C"
