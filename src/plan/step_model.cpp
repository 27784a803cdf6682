// SPDX-License-Identifier: Apache-2.0
#include "src/plan/step_model.hpp"

#include "schedules/placement.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

namespace {

constexpr int64_t kGradient = 4;  // bytes of fp32
constexpr int64_t kReport = 64;   // bytes of norms and losses of one rank

DType dtype_of(const PlanOptions& options) {
    return options.profile ? options.profile->sizes.dtype : DType::bf16;
}

/// Two moments in fp32, and a master weight where the weight has 16 bits.
int64_t optimizer_bytes(DType dtype) {
    return 2 * 4 + (dtype == DType::bf16 ? 4 : 0);
}

int64_t ns(double value) {
    return std::max<int64_t>(std::llround(value), 1);  // generators want costs of at least 1
}

Schedule place(const PlanOptions& options, const Candidate& candidate, int microbatches) {
    Schedule placement;
    placement.ranks = options.gpus;
    placement.stages = options.gpus * candidate.chunks;
    placement.microbatches = microbatches;
    placement.rank_of_stage =
        rank_of_stage(generator(candidate.schedule).placement, options.gpus, candidate.chunks);
    place_vocabulary(placement, candidate.vocab_mode, options.model.vocab_size);
    return placement;
}

/// Parameters of a rank: of its transformer stages, and rows of both vocabulary layers.
struct Parameters {
    int64_t stages = 0;
    int64_t embedding = 0;
    int64_t output = 0;
    bool shared = false;  ///< both layers hold the same rows here and the model ties them

    [[nodiscard]] int64_t stored() const {
        return stages + (shared ? embedding : embedding + output);
    }
    [[nodiscard]] int64_t differentiated() const { return stages + embedding + output; }
};

std::vector<Parameters> count_parameters(const TransformerShape& model, const Schedule& placement,
                                         const std::vector<int>& layers) {
    std::vector<Parameters> ranks(static_cast<size_t>(placement.ranks));
    for (size_t stage = 0; stage < layers.size(); ++stage) {
        Parameters& rank = ranks[static_cast<size_t>(placement.rank_of_stage[stage])];
        rank.stages += layers[stage] * model.layer_parameters();
        if (stage == 0) rank.stages += model.learned_positions * model.hidden_size;
        if (stage + 1 == layers.size()) {
            rank.stages += (model.layer_norm ? 2 : 1) * model.hidden_size;  // final norm
        }
    }
    for (int r = 0; r < placement.ranks; ++r) {
        Parameters& rank = ranks[static_cast<size_t>(r)];
        rank.embedding = placement.input.rows(r) * model.hidden_size;
        rank.output = placement.output.rows(r) * model.hidden_size;
        rank.shared = model.tied && placement.input == placement.output;
    }
    return ranks;
}

void set_costs(StepModel& step, const UnitCosts& units, const Candidate& candidate,
               const std::vector<Parameters>& parameters, const PlanOptions& options) {
    using enum Op;
    const auto set = [](TableCosts::OpCosts& costs, Op op, double value) {
        costs[static_cast<size_t>(op)] = ns(value);
    };
    const Schedule& placement = step.placement;
    const bool overlaps = placement.ranks > 1 && sharded(candidate.vocab_mode);
    const double slower = overlaps ? units.overlapped : 1;
    for (const int layers : candidate.layers_per_stage) {
        TableCosts::OpCosts stage{};
        const double all = layers * slower;
        set(stage, F, all * units.forward);
        set(stage, I, all * units.input_gradient);
        set(stage, W, all * units.weight_gradient);
        set(stage, B, all * units.backward);
        if (options.recompute != Recompute::none) set(stage, R, all * units.recompute);
        step.costs.stage_ns.push_back(stage);
    }
    const double vocabulary = static_cast<double>(options.model.vocab_size);
    // Three products: logits in S, the input gradient in S (one barrier) or T, the weight gradient
    // in T. Of the rest two thirds belong to S, which forms the softmax.
    const bool early = placement.barriers == Barriers::one;
    const double softmax =
        sharded(candidate.vocab_mode) ? units.softmax_per_row : units.whole_softmax_per_row;
    for (int r = 0; r < placement.ranks; ++r) {
        const auto rows = static_cast<double>(placement.output.rows(r));
        const double input_share = static_cast<double>(placement.input.rows(r)) / vocabulary;
        const Parameters& own = parameters[static_cast<size_t>(r)];
        TableCosts::OpCosts rank{};
        const double gradient = units.output_gradient.of(rows);
        const double score = units.logits.of(rows) + rows * softmax * 2 / 3;
        const double weight = units.output_weight_gradient.of(rows) + rows * softmax / 3;
        set(rank, S, rows == 0 ? 0 : units.vocabulary_pass + score + (early ? gradient : 0));
        set(rank, T, rows == 0 ? 0 : units.vocabulary_pass + weight + (early ? 0 : gradient));
        set(rank, E, input_share > 0 ? units.vocabulary_pass + units.embedding : 0);
        set(rank, G,
            input_share > 0 ? units.vocabulary_pass + input_share * units.embedding_gradient : 0);
        const double byte = units.per_parameter_byte;
        set(rank, Reduce, 3 * kGradient * static_cast<double>(own.embedding) * byte);
        set(rank, Report, kNormTraffic * static_cast<double>(own.differentiated()) * byte);
        set(rank, Update, kUpdateTraffic * static_cast<double>(own.stored()) * byte);
        step.costs.rank_ns.push_back(rank);
    }
}

/// Candidates whose passes were not measured have been skipped.
void use_pass_times(StepCosts& costs, const PlannedPassTimes& times) {
    using enum Op;
    for (size_t stage = 0; stage < times.stage_ns.size(); ++stage) {
        for (const Op op : {F, B, I, W, R}) {
            const int64_t measured = cost_in(times.stage_ns[stage], op);
            if (measured > 0) costs.stage_ns[stage][static_cast<size_t>(op)] = measured;
        }
    }
    for (size_t rank = 0; rank < times.rank_ns.size(); ++rank) {
        for (const Op op : {E, G, S, T, Reduce, Report, Update}) {
            const int64_t measured = cost_in(times.rank_ns[rank], op);
            if (measured >= 0) costs.rank_ns[rank][static_cast<size_t>(op)] = measured;
        }
    }
}

StepSizes sizes_of(const PlanOptions& options, const Schedule& placement,
                   const Candidate& candidate) {
    const TransformerShape& model = options.model;
    StepSizes sizes;
    sizes.tokens = options.micro_batch_size * options.seq_length;
    sizes.hidden = model.hidden_size;
    sizes.dtype = dtype_of(options);
    const int64_t element = size_of(sizes.dtype);
    sizes.tied = model.tied;
    sizes.report_bytes = kReport;
    const int64_t boundary = sizes.tokens * model.hidden_size * element;
    const int64_t gradients_of_layer = sizes.tokens * model.for_weight_bytes(element);
    for (size_t stage = 0; stage < candidate.layers_per_stage.size(); ++stage) {
        const int64_t layers = candidate.layers_per_stage[stage];
        const bool last = stage + 1 == candidate.layers_per_stage.size();
        StageBytes bytes;
        // The first layer's input is the stage's boundary, the last stage's norm has one of its
        // own.
        bytes.saved = layers * sizes.tokens * model.saved_bytes(element) +
                      ((last ? 1 : 0) - (layers > 0 ? 1 : 0)) * boundary;
        bytes.saved = std::max<int64_t>(bytes.saved, 0);
        divide_saved(bytes, options.recompute,
                     layers * sizes.tokens * model.recomputed_bytes(options.recompute, element));
        bytes.for_weight = layers * gradients_of_layer + 2 * boundary;
        bytes.forward_workspace = boundary;
        bytes.backward_workspace = (layers > 0 ? gradients_of_layer : 0) + 3 * boundary;
        bytes.input_gradient_workspace = boundary;
        sizes.stages.push_back(bytes);
    }
    for (int rank = 0; rank < placement.ranks; ++rank) {
        const int64_t logits = sizes.tokens * placement.output.rows(rank);
        // Exponentials stay from S to T; fp32 logits live within S.
        sizes.shards.push_back({.exp_logits = logits * element, .score_workspace = logits * 4});
    }
    return sizes;
}

}  // namespace

StepModel step_model(const PlanOptions& options, const UnitCosts& units, const Candidate& candidate,
                     int microbatches) {
    StepModel step{
        .placement = place(options, candidate, microbatches),
        .costs = options.profile ? StepCosts(options.profile->costs) : StepCosts(options.device)};
    const std::vector<Parameters> parameters =
        count_parameters(options.model, step.placement, candidate.layers_per_stage);
    set_costs(step, units, candidate, parameters, options);
    if (options.pass_times) use_pass_times(step.costs, *options.pass_times);
    step.sizes = sizes_of(options, step.placement, candidate);
    const auto reserve =
        static_cast<int64_t>(options.device.reserve_gib.value * static_cast<double>(1 << 30));
    for (int rank = 0; rank < options.gpus; ++rank) {
        const Parameters& own = parameters[static_cast<size_t>(rank)];
        step.persistent.push_back({.rank = rank,
                                   .weights = own.stored() * size_of(step.sizes.dtype),
                                   .gradients = own.differentiated() * kGradient,
                                   .optimizer = own.stored() * optimizer_bytes(step.sizes.dtype),
                                   .reserve = reserve});
    }
    step.generate = {.ranks = options.gpus,
                     .microbatches = microbatches,
                     .vocab_mode = candidate.vocab_mode,
                     .vocab_size = options.model.vocab_size,
                     .chunks = candidate.chunks,
                     .memory_limit = candidate.memory_limit};
    const bool recomputes = options.recompute != Recompute::none;
    PassCosts& costs = step.generate.costs;
    costs = PassCosts::of(step.costs, step.sizes, step.placement);
    costs.hop = step.costs.slowest_hop_ns(
        options.gpus, step.sizes.tokens * step.sizes.hidden * size_of(step.sizes.dtype));
    // The paper's lists leave C0 no slack; build them for its latency and one hop
    // (docs/schedules.md, `--broadcast-margin`), within what a backward and its R can give.
    const PassCosts order = recomputes ? with_recomputation(costs) : costs;
    step.generate.broadcast_margin = std::min(costs.c0 + costs.hop, order.mean(Op::B) / 2);
    return step;
}

}  // namespace vocabpipe
