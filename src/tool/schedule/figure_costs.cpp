// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/figure_costs.hpp"

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

/// Cost of R, for a stage whose F costs `forward`. Norms and the activation read and write 12 h
/// elements of two bytes per token and layer (f = 4 h), F computes 24 h^2 FLOPs; a device computes
/// about 200 FLOPs in the time of a byte (A100 153, H100 295: dense bf16 over memory bandwidth of
/// their data sheets). Never 0, which stands for all of F.
int64_t selective_cost(int64_t forward, int64_t hidden_size) {
    constexpr double kFlopsPerByte = 200;
    const double part = std::min(1.0, kFlopsPerByte / static_cast<double>(hidden_size));
    return std::max<int64_t>(scaled(forward, part), 1);
}

/// Cost of R after an F of `forward`; 0 for none.
int64_t recompute_cost(int64_t forward, Recompute recompute, int64_t hidden_size) {
    if (recompute == Recompute::none) return 0;
    return recompute == Recompute::full ? forward : selective_cost(forward, hidden_size);
}

}  // namespace

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

int ticks_per_unit(const ScheduleFlags& flags) {
    return flags.figures_are_ns || !flags.pass_times.empty() ? 0 : kTicksPerUnit;
}

FigureCosts::FigureCosts(const ScheduleFlags& flags, Recompute recompute)
    : flags_(flags),
      recompute_(recompute),
      figures_(parse_stage_costs(flags.costs, std::max(ticks_per_unit(flags), 1))) {}

std::vector<int> FigureCosts::layers_per_stage(std::span<const int> rank_of_stage,
                                               VocabMode mode) const {
    const int layers = flags_.num_layers;
    if (layers == 0) {
        if (mode != VocabMode::redistributed) return {};
        throw UsageError(
            "--vocab-mode redistributed: requires --num-layers, because the layers that move "
            "depend on it");
    }
    const StageCosts ticks = parse_stage_costs(flags_.costs, kTicksPerUnit);
    const int64_t again = recompute_cost(ticks.forward, recompute_, flags_.hidden_size);
    const double output =  // in transformer layers
        2.0 * static_cast<double>(ticks.vocabulary) * layers /
        static_cast<double>(ticks.forward + ticks.backward + again);
    return vocabpipe::layers_per_stage(layers, rank_of_stage, mode, output);
}

StepPrice FigureCosts::price(const Schedule& schedule, const std::vector<int>& layers) const {
    const StageCosts& costs = figures_;
    const ScheduleFlags& flags = flags_;
    StepPrice step;
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
        of(pass, Op::R) = recompute_cost(of(pass, Op::F), recompute_, flags.hidden_size);
        step.costs.stage_ns.push_back(pass);
        // Activations of this library's transformer layer with a feed-forward size of 4 h
        // (docs/memory.md): 8 h + 2 f per token for the backward, of which 2 h + f are outputs of
        // norms and of the activation, and 7 h + f for W.
        step.sizes.stages.push_back({.saved = scaled(16 * row, count),
                                     .for_weight = scaled(11 * row, count) + 2 * row,
                                     .forward_workspace = row,
                                     .backward_workspace = 13 * row,
                                     .input_gradient_workspace = row});
        divide_saved(step.sizes.stages.back(), recompute_, scaled(6 * row, count));
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
    const int64_t ticks = std::max(ticks_per_unit(flags), 1);
    step.costs.latency_ns = flags.latency * ticks;
    if (flags.hop > 0) {
        step.costs.bytes_per_ns = static_cast<double>(row) / static_cast<double>(flags.hop * ticks);
    }
    step.costs.layers_per_stage = mean_layers(layers, stages);
    step.order = PassCosts::of(step.costs, step.sizes, schedule);
    return step;
}

}  // namespace vocabpipe::tool
