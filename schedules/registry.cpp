// SPDX-License-Identifier: Apache-2.0
// The table of all families, and all that they have in common: defaults and checks of options, and
// the steps of make_schedule() around the family's rule.
#include "vocabpipe/error.hpp"
#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/local_search.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/stage_layout.hpp"

#include "schedules/families.hpp"
#include "schedules/pair_neighbors.hpp"
#include "schedules/placement.hpp"

#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>

namespace vocabpipe {

namespace {

constexpr std::array kGenerators{
    Generator{.name = "1f1b",
              .summary = "one forward, one backward; at most p-r microbatches in flight on rank r",
              .warm_up_depth = true,
              .overlap_pairs = true,
              .make = one_f_one_b},
    Generator{.name = "gpipe",
              .summary = "all forwards, then all backwards; all microbatches in flight",
              .make = gpipe},
    Generator{.name = "eager-1f1b",
              .summary = "1f1b with a deeper warm-up, which hides the latency of messages",
              .warm_up_depth = true,
              .overlap_pairs = true,
              .make = eager_1f1b},
    Generator{.name = "interleaved",
              .summary = "1f1b over v stages per rank: 1/v of its bubble, v times its messages",
              .placement = Placement::loop,
              .chunks = 2,
              .any_chunks = true,
              .warm_up_depth = true,
              .group_size = true,
              .overlap_pairs = true,
              .make = interleaved},
    Generator{.name = "group-interleaved",
              .summary = "interleaved with split backwards: less memory in flight and less bubble",
              .placement = Placement::loop,
              .chunks = 2,
              .any_chunks = true,
              .splits_backward = true,
              .group_size = true,
              .make = group_interleaved},
    Generator{.name = "looped-bfs",
              .summary = "all microbatches of a stage, then the next stage: two visits per stage",
              .placement = Placement::loop,
              .chunks = 2,
              .any_chunks = true,
              .make = looped_bfs},
    Generator{.name = "zb",
              .summary = "zero bubble at a memory limit of p or more microbatches on every rank",
              .splits_backward = true,
              .memory_limit = true,
              .make = zb},
    Generator{.name = "zb-h1",
              .summary = "zero bubble at the peak memory of 1f1b: p microbatches on every rank",
              .splits_backward = true,
              .make = zb_h1},
    Generator{.name = "zb-h2",
              .summary = "no bubble at equal pass times: 2p-1 microbatches on every rank",
              .splits_backward = true,
              .make = zb_h2},
    Generator{.name = "interleaved-zb",
              .summary = "interleaved with split backwards; vp chunks on every rank",
              .placement = Placement::loop,
              .chunks = 2,
              .any_chunks = true,
              .splits_backward = true,
              .group_size = true,
              .make = interleaved_zb},
    Generator{
        .name = "zb-v",
        .summary = "two stages per rank in a V; no bubble with as many activations alive as 1f1b",
        .placement = Placement::v_shape,
        .chunks = 2,
        .splits_backward = true,
        .make = zb_v},
    Generator{.name = "v-half",
              .summary = "split backward, V placement; half the activations of 1f1b on every rank",
              .placement = Placement::v_shape,
              .chunks = 2,
              .splits_backward = true,
              .make = v_half},
    Generator{.name = "v-min",
              .summary = "split backward, V placement; a third of the activations of 1f1b",
              .placement = Placement::v_shape,
              .chunks = 2,
              .splits_backward = true,
              .make = v_min},
    Generator{.name = "v-search",
              .summary = "split backward, V placement; best pattern for the costs and memory limit",
              .placement = Placement::v_shape,
              .chunks = 2,
              .splits_backward = true,
              .searches = true,
              .memory_limit = true,
              .make = v_search},
    Generator{.name = "v-1f1b",
              .summary = "one backward pass, V placement; two thirds of the activations of 1f1b",
              .placement = Placement::v_shape,
              .chunks = 2,
              .make = v_one_f_one_b},
    Generator{.name = "dualpipe-v",
              .summary = "two stages per rank in a V; forwards and backwards in overlapped pairs",
              .placement = Placement::v_shape,
              .chunks = 2,
              .splits_backward = true,
              .overlap_pairs = true,
              .make = dualpipe_v},
};

void require_at_least(std::string_view option, int64_t value, int64_t least) {
    if (value >= least) return;
    throw UsageError(std::string(option) + " " + std::to_string(value) + ": must be at least " +
                     std::to_string(least));
}

void require_at_most(std::string_view option, int64_t value, int64_t most) {
    if (value <= most) return;
    throw UsageError(std::string(option) + " " + std::to_string(value) + ": must be at most " +
                     std::to_string(most));
}

void check(const ScheduleOptions& options) {
    require_at_least("ScheduleOptions::ranks", options.ranks, 1);
    // Stage numbers have 16 bits (Pass::stage).
    require_at_most("ScheduleOptions::ranks", options.ranks, std::numeric_limits<uint16_t>::max());
    require_at_least("ScheduleOptions::microbatches", options.microbatches, 1);
    // Far above any batch; keeps every count of the rules within an int.
    require_at_most("ScheduleOptions::microbatches", options.microbatches, 1 << 24);
    require_at_least("ScheduleOptions::vocab_size", options.vocab_size, 1);
    // Keeps vocab_size * ranks within 64 bits (ShardMap::even).
    require_at_most("ScheduleOptions::vocab_size", options.vocab_size, int64_t{1} << 40);
    require_at_least("RuleOptions::broadcast_margin", options.rule.broadcast_margin, 0);
    require_at_least("RuleOptions::chunks", options.rule.chunks, 0);
    require_at_least("RuleOptions::warm_up_depth", options.rule.warm_up_depth, 0);
    require_at_least("RuleOptions::group_size", options.rule.group_size, 0);
    require_at_least("RuleOptions::memory_limit", options.rule.memory_limit, 0);
    require_at_least("RuleOptions::search_moves", options.rule.search_moves, 0);
}

/// Making a list takes about 70 bytes per pass: refuses a mistyped number before it fills the
/// memory.
void check_size(const ScheduleOptions& options) {
    constexpr int64_t kMostPasses = 20'000'000;
    const int64_t stages = int64_t{options.ranks} * options.rule.chunks;
    // F, I and W of every stage, S, T, E and G of every rank, at most.
    const int64_t of_microbatch = 3 * stages + int64_t{4} * options.ranks;
    require_at_most("ScheduleOptions::ranks x RuleOptions::chunks", of_microbatch, kMostPasses);
    const int64_t most = kMostPasses / of_microbatch;
    if (options.microbatches <= most) return;
    throw UsageError("ScheduleOptions::microbatches " + std::to_string(options.microbatches) +
                     ": with " + std::to_string(stages) + " stages, a step has up to " +
                     std::to_string(of_microbatch * options.microbatches) +
                     " passes, but at most " + std::to_string(kMostPasses) +
                     " are supported; use at most " + std::to_string(most));
}

/// A search times every pass in every move, about 10 ns each.
void check_moves(const Schedule& schedule, int64_t moves) {
    constexpr int64_t kMostTimed = int64_t{1} << 38;  // three quarters of an hour
    int64_t passes = 0;
    for (const std::vector<Pass>& list : schedule.passes) passes += std::ssize(list);
    const int64_t most = std::min(kMostSearchMoves, kMostTimed / std::max<int64_t>(passes, 1));
    if (moves <= most) return;
    throw UsageError("RuleOptions::search_moves " + std::to_string(moves) + ": with " +
                     std::to_string(passes) + " passes, the search would take hours; use at most " +
                     std::to_string(most));
}

/// There must be costs for every stage and rank (or one that stands for all).
void check_costs(const PassCosts& costs, int stages, int ranks) {
    const auto check_table = [](const std::vector<PassCosts::OpCosts>& table, const char* of,
                                int count, std::initializer_list<Op> ops) {
        if (table.size() != 1 && table.size() != static_cast<size_t>(count)) {
            throw UsageError("costs are set for " + std::to_string(table.size()) + " " + of +
                             "s, but the schedule has " + std::to_string(count));
        }
        for (size_t i = 0; i < table.size(); ++i) {
            for (const Op op : ops) {
                const int64_t cost = table[i][static_cast<size_t>(op)];
                // 2^40 of any unit: sums over a step stay within 64 bits.
                if (cost >= 0 && cost <= int64_t{1} << 40) continue;
                throw UsageError("cost of " + std::string(traits(op).name) + " of " + of + " " +
                                 std::to_string(i) + " is " + std::to_string(cost) +
                                 ": must be from 0 to 2^40");
            }
        }
    };
    check_table(costs.stage, "stage", stages, {Op::F, Op::B, Op::I, Op::W, Op::R});
    check_table(costs.rank, "rank", ranks, {Op::E, Op::G, Op::S, Op::T});
    for (const int64_t latency : {costs.hop, costs.c0, costs.c1, costs.reduce, costs.gradient}) {
        require_at_least("cost of communication", latency, 0);
        require_at_most("cost of communication", latency, int64_t{1} << 40);
    }
}

void drop_passes_on_empty_shards(Schedule& schedule) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const bool no_input = schedule.input.rows(rank) == 0;
        const bool no_output = schedule.output.rows(rank) == 0;
        std::erase_if(schedule.passes[static_cast<size_t>(rank)], [&](const Pass& pass) {
            const bool input = pass.op == Op::E || pass.op == Op::G;
            return traits(pass.op).vocabulary && (input ? no_input : no_output);
        });
    }
}

/// Takes the rows of layers that the model does not have.
void leave_out_layers(Schedule& schedule, const ScheduleOptions& options) {
    const auto take = [](ShardMap& map) { std::ranges::fill(map.first_row, 0); };
    if (!options.input_layer) take(schedule.input);
    if (!options.output_layer) take(schedule.output);
}

void keep_forwards(Schedule& schedule) {
    for (std::vector<Pass>& list : schedule.passes) {
        std::erase_if(list, [](const Pass& pass) { return pass.op != Op::F; });
        for (Pass& pass : list) pass.with_next = false;
    }
}

}  // namespace

std::span<const Generator> generators() {
    return kGenerators;
}

const Generator& generator(std::string_view name) {
    const auto found = std::find_if(kGenerators.begin(), kGenerators.end(),
                                    [&](const Generator& g) { return g.name == name; });
    if (found == kGenerators.end()) {
        if (name == "dualpipe") {
            throw UsageError(
                "OrderSource::name dualpipe: its ranks hold two copies of the model's stages, but "
                "a stage "
                "must be on one rank; use dualpipe-v, which has the same overlapped pairs with one "
                "copy");
        }
        std::vector<std::string_view> known;
        for (const Generator& g : kGenerators) known.push_back(g.name);
        throw UsageError("OrderSource::name " + std::string(name) + ": " +
                         must_be_one_of(known, name));
    }
    return *found;
}

namespace {

/// The options, with the family's own values for those not given. Throws UsageError for impossible
/// ones.
ScheduleOptions resolve(const Generator& family, const ScheduleOptions& asked) {
    check(asked);
    ScheduleOptions options = asked;
    if (options.rule.chunks == 0) options.rule.chunks = family.chunks;
    if (options.rule.overlap_pairs && options.rule.warm_up_depth == 0 && family.warm_up_depth) {
        options.rule.warm_up_depth = 2;
    }
    if (options.rule.chunks != family.chunks && !family.any_chunks) {
        throw UsageError("RuleOptions::chunks " + std::to_string(options.rule.chunks) +
                         ": does not match " + std::string(family.name) + ", which has " +
                         std::to_string(family.chunks));
    }
    const auto refuse = [&](const std::string& option, bool given, bool Generator::*reads) {
        if (!given || family.*reads) return;
        std::vector<std::string_view> others;
        for (const Generator& g : kGenerators) {
            if (g.*reads) others.push_back(g.name);
        }
        throw UsageError(option + ": " + std::string(family.name) + " does not use it; only " +
                         joined(others) + " do");
    };
    const auto refuse_number = [&](const std::string& option, int value, bool Generator::*reads) {
        refuse(option + " " + std::to_string(value), value != 0, reads);
    };
    const RuleOptions& rule = options.rule;
    refuse_number("RuleOptions::warm_up_depth", rule.warm_up_depth, &Generator::warm_up_depth);
    refuse_number("RuleOptions::group_size", rule.group_size, &Generator::group_size);
    refuse_number("RuleOptions::memory_limit", rule.memory_limit, &Generator::memory_limit);
    refuse("RuleOptions::overlap_pairs", rule.overlap_pairs, &Generator::overlap_pairs);
    if (rule.overlap_pairs && family.placement == Placement::loop && sharded(options.vocab_mode)) {
        throw UsageError("RuleOptions::overlap_pairs: between the forwards and backwards of " +
                         std::string(family.name) + " come the vocabulary passes of " +
                         std::string(to_string(options.vocab_mode)) +
                         "; use 1f1b, or vocabulary mode none or redistributed");
    }
    // Stage numbers have 16 bits (Pass::stage).
    constexpr int kMostStages = std::numeric_limits<uint16_t>::max();
    if (options.rule.chunks > kMostStages / options.ranks) {
        throw UsageError(
            "RuleOptions::chunks " + std::to_string(options.rule.chunks) + ": must be at most " +
            std::to_string(kMostStages / options.ranks) + " on " + std::to_string(options.ranks) +
            " ranks, because a schedule has at most " + std::to_string(kMostStages) + " stages");
    }
    check_size(options);
    check_costs(options.costs, options.ranks * options.rule.chunks, options.ranks);
    return options;
}

}  // namespace

Schedule make_schedule(std::string_view name, const ScheduleOptions& asked) {
    const Generator& family = generator(name);
    const ScheduleOptions options = resolve(family, asked);
    return finish_schedule(family.make(options), options);
}

Schedule placement_of(std::string_view name, const ScheduleOptions& asked) {
    const Generator& family = generator(name);
    const ScheduleOptions options = resolve(family, asked);
    Schedule schedule;
    schedule.ranks = options.ranks;
    schedule.stages = options.ranks * options.rule.chunks;
    schedule.microbatches = options.microbatches;
    schedule.rank_of_stage = rank_of_stage(family.placement, options.ranks, options.rule.chunks);
    place_vocabulary(schedule, options.vocab_mode, options.vocab_size);
    leave_out_layers(schedule, options);
    return schedule;
}

Schedule finish_schedule(Schedule schedule, const ScheduleOptions& options) {
    if (options.rule.overlap_pairs) pair_neighbors(schedule);
    if (schedule.output.vocab_size() == 0) {
        if (options.forward_only) keep_forwards(schedule);
        const int barriers = extra_microbatches(options.vocab_mode) * options.rule.chunks;
        const int limit = options.rule.memory_limit == 0 ? 0 : options.rule.memory_limit + barriers;
        schedule = insert_vocabulary(schedule, {.mode = options.vocab_mode,
                                                .vocab_size = options.vocab_size,
                                                .costs = options.costs,
                                                .chunk_limit = limit});
    }
    leave_out_layers(schedule, options);
    drop_passes_on_empty_shards(schedule);
    if (options.rule.search_moves > 0) {
        check_moves(schedule, options.rule.search_moves);
        schedule =
            local_search(schedule, options.costs,
                         {.moves = options.rule.search_moves, .progress = options.search_progress});
    }
    return schedule;
}

std::vector<int> layers_per_stage(int num_layers, int stages, VocabMode mode,
                                  double output_layer_in_layers) {
    require_at_least("ModelConfig::num_layers", num_layers, 0);
    if (stages < 1) {
        throw UsageError("a schedule of " + std::to_string(stages) +
                         " stages: must have at least 1");
    }
    const double q = output_layer_in_layers;
    if (!std::isfinite(q) || q < 0) {
        throw UsageError("output layer of " + std::to_string(q) +
                         " transformer layers: must be a finite number, at least 0");
    }
    std::vector<int> layers(static_cast<size_t>(stages));
    if (mode != VocabMode::redistributed || stages == 1) {
        for (int stage = 0; stage < stages; ++stage) {
            layers[static_cast<size_t>(stage)] =
                num_layers / stages + (stage < num_layers % stages ? 1 : 0);
        }
        return layers;
    }
    // 1e-9: a rounding error must not push a whole quotient up to the next number.
    const double share = std::ceil((num_layers + q) / stages - q - 1e-9);
    const int last = static_cast<int>(std::max(0.0, share));
    const int others = stages - 1;
    // The remainder goes to the stages before the last, one each, from the back.
    for (int stage = 0; stage < others; ++stage) {
        const int extra = others - 1 - stage < (num_layers - last) % others ? 1 : 0;
        layers[static_cast<size_t>(stage)] = (num_layers - last) / others + extra;
    }
    layers.back() = last;
    return layers;
}

std::vector<int> layers_per_stage(int num_layers, std::span<const int> rank_of_stage,
                                  VocabMode mode, const LastStageWork& last) {
    const std::set<int> ranks(rank_of_stage.begin(), rank_of_stage.end());
    const auto stages = static_cast<int>(rank_of_stage.size());
    const bool redistributed = mode == VocabMode::redistributed;
    if (last.mtp_layers == 0 && (!redistributed || ranks.size() == rank_of_stage.size())) {
        return layers_per_stage(num_layers, stages, mode, last.output_layer);
    }
    return balanced_layers(num_layers, rank_of_stage,
                           {.layer = 1,
                            .output_layer = redistributed ? last.output_layer : 0,
                            .mtp_layers = last.mtp_layers},
                           mode);
}

}  // namespace vocabpipe
