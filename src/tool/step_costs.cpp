// SPDX-License-Identifier: Apache-2.0
#include "src/tool/step_costs.hpp"

#include "src/model/blocks/model_layers.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace vocabpipe::tool {

namespace {

int64_t& of(TableCosts::OpCosts& costs, Op op) {
    return costs[static_cast<size_t>(op)];
}

int64_t scaled(int64_t value, double by) {
    return std::llround(static_cast<double>(value) * by);
}

/// Fraction of the output layer's products that S computes: scores, and with one barrier also the
/// input gradient (arXiv 2411.05288, sections 4.2 and 4.3).
double score_part(Barriers barriers) {
    return barriers == Barriers::one ? 2.0 / 3 : 1.0 / 3;
}

/// Cost of R, for a stage whose F costs `forward`. Norms and the activation read and write 12 h
/// elements of two bytes per token and layer (f = 4 h), F computes 24 h^2 FLOPs; a device computes
/// about 200 FLOPs in the time of a byte (A100 153, H100 295: dense bf16 over memory bandwidth of
/// their data sheets). Never 0, which stands for all of F.
int64_t selective_cost(int64_t forward, int64_t hidden_size) {
    constexpr double kFlopsPerByte = 200;
    const double part = std::min(1.0, kFlopsPerByte / static_cast<double>(hidden_size));
    return std::max<int64_t>(scaled(forward, part), 1);
}

/// A layer of the profiled model, for what is recomputed; heads do not matter there. A profile does
/// not record the family: assumes a GPT.
CountedLayer layer_of(const ProfiledModel& model) {
    ModelConfig config;
    config.hidden_size = model.hidden;
    config.ffn_hidden_size = model.ffn_hidden;
    config.num_attention_heads = 1;
    return {config, 0, {}};
}

/// Bytes that F of this layer leaves and a selective R makes again.
int64_t recomputed_bytes(const CountedLayer& layer, int64_t tokens, DType dtype) {
    Views costly, cheap(int64_t{1});
    SavedViews views{.costly = {costly, tokens, dtype}, .cheap = {cheap, tokens, dtype}};
    (void)layer.block.saved_views(views);
    return cheap.used();
}

}  // namespace

int64_t recompute_cost(int64_t forward, Recompute recompute, int64_t hidden_size) {
    if (recompute == Recompute::none) return 0;
    return recompute == Recompute::full ? forward : selective_cost(forward, hidden_size);
}

double recompute_ns_per_layer(const Profile& profile, Recompute recompute) {
    const BlockWork work = layer_of(profile.model).block.work(profile.model.seq_length);
    return vocabpipe::recompute_ns_per_layer(profile, recompute,
                                             static_cast<double>(work.moved.recompute));
}

StageCosts parse_stage_costs(const std::string& text, int ticks) {
    constexpr int64_t kMost = int64_t{1} << 36;  // a sixteenth of what make_schedule() allows
    StageCosts costs;
    int used = 0;
    int count = 0;
    if (std::sscanf(text.c_str(), "%" SCNd64 ",%" SCNd64 "%n", &costs.forward, &costs.backward,
                    &used) == 2) {
        count = 2;
        int more = 0;
        if (std::sscanf(text.c_str() + used, ",%" SCNd64 "%n", &costs.vocabulary, &more) == 1) {
            count = 3;
            used += more;
        }
    }
    const auto fits = [](int64_t value) { return value >= 0 && value <= kMost; };
    if (count == 0 || static_cast<size_t>(used) != text.size() || costs.forward < 1 ||
        costs.backward < 1 || !fits(costs.forward) || !fits(costs.backward) ||
        !fits(costs.vocabulary)) {
        throw UsageError("--costs " + text +
                         ": must be F,B or F,B,V in integers from 1 to 2^36 (V from 0), such as "
                         "12,24,4, or a profile file");
    }
    costs.forward *= ticks;
    costs.backward *= ticks;
    costs.vocabulary = count == 2 ? costs.forward / 3 : costs.vocabulary * ticks;
    return costs;
}

std::string costs_text(const ScheduleFlags& flags) {
    const StageCosts costs = parse_stage_costs(flags.costs, kTicksPerUnit);
    const auto figure = [](int64_t ticks) {
        std::string text = std::to_string(ticks / kTicksPerUnit);
        if (ticks % kTicksPerUnit == 0) return text;
        std::array<char, 16> part;
        std::snprintf(part.data(), part.size(), "%.2f",
                      static_cast<double>(ticks % kTicksPerUnit) / kTicksPerUnit);
        return text + (part.data() + 1);  // without its 0
    };
    std::string text = "F " + figure(costs.forward) + ", B " + figure(costs.backward) + ", V " +
                       figure(costs.vocabulary);
    if (flags.latency > 0) text += ", latency " + std::to_string(flags.latency);
    if (flags.hop > 0) text += ", hop " + std::to_string(flags.hop);
    return text;
}

void set_costs(ScheduledStep& step, const StageCosts& costs, const std::vector<int>& layers,
               const ScheduleFlags& flags, Recompute recompute) {
    const Schedule& schedule = step.schedule;
    const int stages = schedule.stages;
    // Costs are per rank's layers, so that schedules with other numbers of stages run the same
    // model.
    const double per_rank =
        layers.empty() ? static_cast<double>(stages) / schedule.ranks
                       : std::accumulate(layers.begin(), layers.end(), 0.0) / schedule.ranks;
    const int64_t tokens = flags.seq_length * flags.micro_batch_size;
    constexpr int64_t kMostElements = int64_t{1} << 40;  // of a boundary: more than any memory
    if (tokens > kMostElements / flags.hidden_size) {
        throw UsageError("--seq-length " + std::to_string(flags.seq_length) +
                         " with --micro-batch-size " + std::to_string(flags.micro_batch_size) +
                         " and --hidden-size " + std::to_string(flags.hidden_size) +
                         ": their product must be at most 2^40");
    }
    constexpr int64_t kBytes = 2;  // bf16
    const int64_t row = tokens * flags.hidden_size * kBytes;
    step.sizes.tokens = tokens;
    step.sizes.hidden = flags.hidden_size;
    step.sizes.dtype = DType::bf16;
    step.sizes.report_bytes = 64;  // norms and loss: a few numbers
    for (int stage = 0; stage < stages; ++stage) {
        const double part = (layers.empty() ? 1 : layers[static_cast<size_t>(stage)]) / per_rank;
        const double count =
            layers.empty() ? part : part * per_rank;  // layers, one per rank if not given
        TableCosts::OpCosts pass{};
        of(pass, Op::F) = scaled(costs.forward, part);
        of(pass, Op::B) = scaled(costs.backward, part);
        of(pass, Op::I) = of(pass, Op::B) / 2;
        of(pass, Op::W) = of(pass, Op::B) - of(pass, Op::I);
        of(pass, Op::R) = recompute_cost(of(pass, Op::F), recompute, flags.hidden_size);
        step.costs.stage_ns.push_back(pass);
        // Activations of this library's transformer layer with a feed-forward size of 4 h
        // (docs/memory.md): 8 h + 2 f per token for the backward, of which 2 h + f are outputs of
        // norms and of the activation, and 7 h + f for W.
        step.sizes.stages.push_back({.saved = scaled(16 * row, count),
                                     .for_weight = scaled(11 * row, count) + 2 * row,
                                     .forward_workspace = row,
                                     .backward_workspace = 13 * row,
                                     .input_gradient_workspace = row});
        divide_saved(step.sizes.stages.back(), recompute, scaled(6 * row, count));
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        TableCosts::OpCosts pass{};
        const auto share = [&](const ShardMap& map) {
            return static_cast<double>(map.rows(rank)) * schedule.ranks /
                   static_cast<double>(map.vocab_size());
        };
        of(pass, Op::S) = of(pass, Op::T) = scaled(costs.vocabulary, share(schedule.output));
        if (schedule.input.rows(rank) > 0) {
            of(pass, Op::E) = of(pass, Op::G) = costs.vocabulary / 4;  // rows of all tokens
        }
        step.costs.rank_ns.push_back(pass);
        step.sizes.shards.push_back({.exp_logits = tokens * schedule.output.rows(rank) * kBytes});
    }
    const int64_t ticks_per_unit = std::max(step.ticks_per_unit, 1);
    step.costs.latency_ns = flags.latency * ticks_per_unit;
    if (flags.hop > 0) {
        step.costs.bytes_per_ns =
            static_cast<double>(row) / static_cast<double>(flags.hop * ticks_per_unit);
    }
}

void set_costs(ScheduledStep& step, const Profile& profile, const std::vector<int>& layers) {
    const Schedule& schedule = step.schedule;
    step.ticks_per_unit = 0;
    step.costs = profile.costs;
    step.sizes = profile.sizes;
    const bool same_stages =
        profile.rank_of_stage == schedule.rank_of_stage && profile.model.layers_per_stage == layers;
    const bool same_shards = profile.input == schedule.input && profile.output == schedule.output;
    const bool same_split = profile.barriers == schedule.barriers;
    if (same_stages && same_shards && same_split) {
        step.persistent = profile.persistent;
        return;
    }
    if (!same_stages) {
        TableCosts::OpCosts sum{};
        StageBytes bytes;
        const double measured = std::max(profile.model.layers, 1);
        for (int stage = 0; stage < profile.stages(); ++stage) {
            const auto s = static_cast<size_t>(stage);
            for (size_t op = 0; op < sum.size(); ++op) sum[op] += profile.costs.stage_ns[s][op];
            bytes.saved += profile.sizes.stages[s].saved;
            bytes.recomputed += profile.sizes.stages[s].recomputed;
            bytes.for_weight += profile.sizes.stages[s].for_weight;
            const auto largest = [&](int64_t StageBytes::*of_op) {
                bytes.*of_op = std::max(bytes.*of_op, profile.sizes.stages[s].*of_op);
            };
            largest(&StageBytes::forward_workspace);
            largest(&StageBytes::backward_workspace);
            largest(&StageBytes::input_gradient_workspace);
            largest(&StageBytes::weight_gradient_workspace);
        }
        step.costs.stage_ns.clear();
        step.sizes.stages.clear();
        for (const int count : layers) {
            TableCosts::OpCosts pass{};
            for (size_t op = 0; op < sum.size(); ++op) {
                pass[op] = scaled(sum[op], count / measured);
            }
            step.costs.stage_ns.push_back(pass);
            StageBytes of_stage = bytes;  // workspace does not grow with layers
            of_stage.saved = scaled(bytes.saved, count / measured);
            of_stage.recomputed = scaled(bytes.recomputed, count / measured);
            of_stage.for_weight = scaled(bytes.for_weight, count / measured);
            step.sizes.stages.push_back(of_stage);
        }
    }
    // Totals over all measured ranks: the output layer's products scale with rows; other costs are
    // the same for every rank that has rows.
    TableCosts::OpCosts sum{};
    ShardBytes bytes;
    for (int rank = 0; rank < profile.ranks(); ++rank) {
        const auto r = static_cast<size_t>(rank);
        for (size_t op = 0; op < sum.size(); ++op) {
            const int64_t cost = profile.costs.rank_ns[r][op];
            const bool adds = static_cast<Op>(op) == Op::S || static_cast<Op>(op) == Op::T;
            sum[op] = adds ? sum[op] + cost : std::max(sum[op], cost);
        }
        bytes.exp_logits += profile.sizes.shards[r].exp_logits;
        bytes.score_workspace += profile.sizes.shards[r].score_workspace;
        bytes.weight_gradient_workspace += profile.sizes.shards[r].weight_gradient_workspace;
    }
    const int64_t products = of(sum, Op::S) + of(sum, Op::T);
    step.costs.rank_ns.clear();
    step.sizes.shards.clear();
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const double share = static_cast<double>(schedule.output.rows(rank)) /
                             static_cast<double>(profile.output.vocab_size());
        TableCosts::OpCosts pass = sum;
        of(pass, Op::S) = scaled(products, share * score_part(schedule.barriers));
        of(pass, Op::T) = scaled(products, share) - of(pass, Op::S);
        if (schedule.input.rows(rank) == 0) of(pass, Op::E) = of(pass, Op::G) = 0;
        step.costs.rank_ns.push_back(pass);
        step.sizes.shards.push_back(
            {.exp_logits = scaled(bytes.exp_logits, share),
             .score_workspace = scaled(bytes.score_workspace, share),
             .weight_gradient_workspace = scaled(bytes.weight_gradient_workspace, share)});
    }
    step.title += ", costs scaled from a profile of " + std::to_string(profile.ranks()) + " ranks";
}

void set_recomputation(ScheduledStep& step, const Profile& profile, const std::vector<int>& layers,
                       Recompute recompute) {
    if (recomputed_in(profile) == recompute) return;
    const int64_t selective =
        recomputed_bytes(layer_of(profile.model), step.sizes.tokens, step.sizes.dtype);
    const double ns = recompute_ns_per_layer(profile, recompute);
    for (size_t stage = 0; stage < layers.size(); ++stage) {
        divide_saved(step.sizes.stages[stage], recompute, layers[stage] * selective);
        TableCosts::OpCosts& pass = step.costs.stage_ns[stage];
        of(pass, Op::R) =
            recompute == Recompute::full
                ? of(pass, Op::F)
                : std::min(of(pass, Op::F), std::max<int64_t>(scaled(layers[stage], ns), 1));
    }
}

}  // namespace vocabpipe::tool
