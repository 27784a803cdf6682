// SPDX-License-Identifier: Apache-2.0
#include "src/imported/what_if.hpp"

#include "src/imported/median.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace vocabpipe::imported {

namespace {

using OpCosts = TableCosts::OpCosts;
using enum Op;

constexpr size_t at(Op op) {
    return static_cast<size_t>(op);
}

/// Whole backward and its halves, whichever of them was measured.
void complete(OpCosts& costs) {
    if (costs[at(B)] == 0) costs[at(B)] = costs[at(I)] + costs[at(W)];
    if (costs[at(I)] == 0 && costs[at(W)] == 0) {
        costs[at(I)] = (costs[at(B)] + 1) / 2;
        costs[at(W)] = std::max<int64_t>(1, costs[at(B)] - costs[at(I)]);
    }
}

bool has_vocabulary(const Schedule& schedule) {
    return schedule.output.vocab_size() > 0;
}

/// The output layer's part of the last stage's passes: what F and B take longer than the median of
/// the other stages.
double estimated_share(const std::vector<OpCosts>& stages) {
    if (stages.size() < 3) return 0;
    int64_t last = 0, others = 0;
    for (const Op op : {F, B}) {
        std::vector<int64_t> values;
        for (size_t stage = 0; stage + 1 < stages.size(); ++stage) {
            values.push_back(stages[stage][at(op)]);
        }
        last += stages.back()[at(op)];
        others += median(std::move(values));
    }
    return last <= others ? 0 : 1 - static_cast<double>(others) / static_cast<double>(last);
}

/// The mean costs of the run, with the output layer apart from the last stage.
struct Parts {
    std::vector<OpCosts> stages;
    std::vector<int> rank_of_stage;
    int ranks = 0;
    int microbatches = 0;
    int64_t output_forward = 0, output_backward = 0;
    int64_t message_ns = 0;
};

/// Costs of a placement: the run's own where its stages are the same, else even parts of what each
/// rank has.
TableCosts costs_for(const Parts& parts, const Schedule& placed, VocabMode mode) {
    TableCosts costs;
    const auto ranks = static_cast<size_t>(parts.ranks);
    const std::vector<int>& own = parts.rank_of_stage;
    if (placed.rank_of_stage == own) {
        costs.stage_ns = parts.stages;
    } else {
        std::vector<OpCosts> of_rank(ranks, OpCosts{});
        for (size_t stage = 0; stage < own.size(); ++stage) {
            for (const Op op : {F, B, I, W}) {
                of_rank[static_cast<size_t>(own[stage])][at(op)] += parts.stages[stage][at(op)];
            }
        }
        const auto chunks = std::max<int64_t>(1, placed.stages / parts.ranks);
        for (const int rank : placed.rank_of_stage) {
            OpCosts& stage = costs.stage_ns.emplace_back(of_rank[static_cast<size_t>(rank)]);
            for (const Op op : {F, B, I, W}) {
                stage[at(op)] = std::max<int64_t>(1, stage[at(op)] / chunks);
            }
        }
    }
    costs.rank_ns.resize(ranks);
    const bool shared = sharded(mode);
    const int64_t owners = shared ? parts.ranks : 1;
    // With one barrier S also computes the gradient of its input, half of the backward.
    const int64_t moved = mode == VocabMode::one_barrier ? parts.output_backward / 2 : 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
        if (!shared && static_cast<int>(rank) != placed.rank_of_stage.back()) continue;
        costs.rank_ns[rank][at(S)] = (parts.output_forward + moved) / owners;
        costs.rank_ns[rank][at(T)] = (parts.output_backward - moved) / owners;
    }
    costs.latency_ns = parts.message_ns;
    return costs;
}

PassCosts order_costs(const TableCosts& costs, int64_t message_ns) {
    PassCosts order;
    order.stage = costs.stage_ns;
    order.rank = costs.rank_ns;
    order.hop = order.c0 = order.c1 = order.reduce = order.gradient = message_ns;
    return order;
}

std::vector<Alternative> alternatives(const Parts& parts) {
    std::vector<VocabMode> modes{VocabMode::none};
    if (parts.output_forward > 0) {
        modes = {VocabMode::none, VocabMode::one_barrier, VocabMode::two_barriers};
    }
    std::vector<Alternative> found;
    for (const Generator& family : generators()) {
        if (family.searches) continue;  // takes minutes, and simulate does it by name
        for (const VocabMode mode : modes) {
            ScheduleOptions options{.ranks = parts.ranks,
                                    .microbatches = parts.microbatches,
                                    .vocab_mode = mode,
                                    .vocab_size = int64_t{128} * parts.ranks};
            try {
                const TableCosts costs = costs_for(parts, placement_of(family.name, options), mode);
                options.costs = order_costs(costs, parts.message_ns);
                const Schedule schedule = make_schedule(family.name, options);
                const std::vector<int> peak = peak_chunks(schedule);
                const double chunks = static_cast<double>(schedule.stages) / schedule.ranks;
                found.push_back({.schedule = std::string(family.name),
                                 .mode = mode,
                                 .step_ns = replay_ns(schedule, costs),
                                 .activations = *std::ranges::max_element(peak) / chunks});
            } catch (const UsageError&) {
                // Not every family takes these ranks and microbatches.
            }
        }
    }
    std::ranges::stable_sort(found, {}, &Alternative::step_ns);
    return found;
}

/// The shortest pass of this kind and stage; 0 if there is none.
int64_t least_ns(const StepTimes& times, Op op, int stage) {
    const auto rank = static_cast<size_t>(times.schedule.rank_of_stage[static_cast<size_t>(stage)]);
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < times.pass_ns[rank].size(); ++i) {
        const Pass& pass = times.schedule.passes[rank][i];
        if (pass.op == op && pass.stage == stage) least = std::min(least, times.pass_ns[rank][i]);
    }
    return least == INT64_MAX ? 0 : least;
}

int64_t lower_bound(const StepTimes& times) {
    int64_t bound = 0;
    for (size_t rank = 0; rank < times.pass_ns.size(); ++rank) {
        int64_t work = 0;
        int lowest = times.schedule.stages;
        bool whole_backwards = true;
        for (size_t i = 0; i < times.pass_ns[rank].size(); ++i) {
            const Pass& pass = times.schedule.passes[rank][i];
            work += times.pass_ns[rank][i];
            if (traits(pass.op).has_stage) lowest = std::min<int>(lowest, pass.stage);
            whole_backwards &= pass.op == F || pass.op == B;
        }
        // Before its first pass a microbatch goes forward through the stages before, and after its
        // last one back through them.
        for (int stage = 0; stage < lowest; ++stage) {
            work += least_ns(times, F, stage);
            if (whole_backwards) work += least_ns(times, B, stage);
        }
        bound = std::max(bound, work);
    }
    return std::min(bound, times.measured_ns);
}

StepTimes without_gaps(StepTimes times) {
    for (std::vector<int64_t>& gaps : times.gap_ns) std::ranges::fill(gaps, 0);
    return times;
}

/// The times with none above the median of its kind and stage.
StepTimes even_times(const StepTimes& times) {
    StepTimes result = times;
    for (size_t rank = 0; rank < times.pass_ns.size(); ++rank) {
        const std::vector<Pass>& list = times.schedule.passes[rank];
        for (size_t i = 0; i < list.size(); ++i) {
            std::vector<int64_t> alike;
            for (size_t j = 0; j < list.size(); ++j) {
                if (list[j].op == list[i].op && list[j].stage == list[i].stage) {
                    alike.push_back(times.pass_ns[rank][j]);
                }
            }
            int64_t& ns = result.pass_ns[rank][i];
            ns = std::min(ns, median(std::move(alike)));
        }
    }
    return result;
}

/// The times with those of one rank scaled down to the median rank's, kind by kind.
StepTimes without_slow(const StepTimes& times, size_t slow) {
    const auto mean_of = [&](size_t rank, Op op) -> int64_t {
        int64_t sum = 0, count = 0;
        for (size_t i = 0; i < times.pass_ns[rank].size(); ++i) {
            if (times.schedule.passes[rank][i].op != op) continue;
            sum += times.pass_ns[rank][i];
            ++count;
        }
        return count == 0 ? 0 : sum / count;
    };
    StepTimes result = times;
    for (size_t op = 0; op < kOpTraits.size(); ++op) {
        std::vector<int64_t> means;
        for (size_t rank = 0; rank < times.pass_ns.size(); ++rank) {
            if (const int64_t mean = mean_of(rank, static_cast<Op>(op)); mean > 0) {
                means.push_back(mean);
            }
        }
        const int64_t own = mean_of(slow, static_cast<Op>(op));
        if (own == 0) continue;
        const int64_t usual = median(std::move(means));
        if (usual >= own) continue;
        for (size_t i = 0; i < result.pass_ns[slow].size(); ++i) {
            if (at(times.schedule.passes[slow][i].op) != op) continue;
            int64_t& ns = result.pass_ns[slow][i];
            ns = static_cast<int64_t>(static_cast<double>(ns) * static_cast<double>(usual) /
                                      static_cast<double>(own));
        }
    }
    return result;
}

}  // namespace

WhatIf what_if(const RecordedRun& run, const WhatIfOptions& options) {
    const StepTimes times = step_times(run);
    const TableCosts costs = times.mean_costs();
    WhatIf found{.measured_ns = times.measured_ns,
                 .own_ns = replay_own_ns(times),
                 .mean_ns = replay_ns(times.schedule, costs),
                 .bound_ns = lower_bound(times),
                 .gapless_ns = replay_own_ns(without_gaps(times)),
                 .even_ns = replay_own_ns(even_times(times))};
    for (size_t rank = 0; rank < times.pass_ns.size(); ++rank) {
        found.without_slow_rank_ns.push_back(replay_own_ns(without_slow(times, rank)));
    }
    // A run whose vocabulary passes are apart says what they cost, but not what others would.
    if (has_vocabulary(times.schedule) || times.schedule.forward_only()) return found;
    Parts parts{.stages = costs.stage_ns,
                .rank_of_stage = times.schedule.rank_of_stage,
                .ranks = times.schedule.ranks,
                .microbatches = times.schedule.microbatches,
                .message_ns = times.message_ns};
    for (OpCosts& stage : parts.stages) complete(stage);
    found.share_is_estimated = !options.output_layer_share;
    found.output_layer_share =
        options.output_layer_share ? *options.output_layer_share : estimated_share(parts.stages);
    if (found.output_layer_share > 0) {
        OpCosts& last = parts.stages.back();
        const auto part = [&](Op op) {
            const auto ns =
                static_cast<int64_t>(static_cast<double>(last[at(op)]) * found.output_layer_share);
            last[at(op)] = std::max<int64_t>(1, last[at(op)] - ns);
            return ns;
        };
        parts.output_forward = part(F);
        parts.output_backward = part(B);
        static_cast<void>(part(I));
        static_cast<void>(part(W));
    }
    found.alternatives = alternatives(parts);
    return found;
}

}  // namespace vocabpipe::imported
