// SPDX-License-Identifier: Apache-2.0
// Plans a step: places, prices and orders it (costs/cost_source.hpp), and lowers the order to
// programs.
#include "vocabpipe/step_plan.hpp"

#include "src/step/costs/cost_source.hpp"
#include "src/step/split_layers.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/step_pieces.hpp"
#include "vocabpipe/trained_parts.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Costs for ordering passes before any are measured.
PassCosts nominal_costs(const StepSchedule& schedule) {
    if (schedule.costs) return *schedule.costs;
    PassCosts costs;
    if (schedule.recompute == Recompute::selective) {
        costs.stage.front()[static_cast<size_t>(Op::R)] = 1;  // next to nothing
    }
    return costs;
}

OrderSource source_of(const StepSchedule& schedule) {
    const bool own = schedule.passes != nullptr && has_recomputation(*schedule.passes);
    return {.name = schedule.name,
            .passes = schedule.passes,
            .recompute = schedule.recompute != Recompute::none && !own};
}

/// A model without one of the vocabulary layers has the other one whole.
VocabMode vocab_mode_of(const ModelConfig& model, const StepSchedule& schedule) {
    return model.embeds_tokens && model.has_output_layer ? schedule.vocab_mode : VocabMode::none;
}

ScheduleOptions order_options(const ModelConfig& model, const StepCluster& cluster,
                              const StepSchedule& schedule, const StepWork& work) {
    return {.ranks = cluster.ranks,
            .microbatches = work.microbatches,
            .vocab_mode = vocab_mode_of(model, schedule),
            .vocab_size = model.vocab_size,
            .input_layer = model.embeds_tokens,
            .output_layer = model.has_output_layer,
            .rule = schedule.rule,
            .costs = nominal_costs(schedule)};
}

/// The only place where the library's own trainers make programs.
void make_programs(StepPlan& plan, const LowerOptions& options, const TableCosts& costs) {
    EarlyReceives made = lower_step(plan.schedule, plan.sizes, costs, options);
    plan.lowered = std::move(made.lowered);
    plan.lowering = options;
    plan.lowering.receive_ahead = made.receive_ahead;
    plan.lowering.pieces = made.pieces;
}

/// StepSizes::length_of_microbatch from StepWork::seq_lengths.
std::vector<int> indices_of(std::span<const int64_t> seq_lengths, const ModelConfig& model,
                            const ModelPartition& partition, int microbatches) {
    if (!seq_lengths.empty() && std::cmp_not_equal(seq_lengths.size(), microbatches)) {
        throw UsageError("StepWork::seq_lengths: has lengths for " +
                         std::to_string(seq_lengths.size()) + " microbatches, but the step has " +
                         std::to_string(microbatches));
    }
    const std::vector<int64_t>& shorter = partition.shorter_lengths;
    std::vector<int> indices;
    for (const int64_t length : seq_lengths) {
        const auto found = std::ranges::find(shorter, length);
        if (length != model.seq_length && found == shorter.end()) {
            throw UsageError("StepWork::seq_lengths: " + std::to_string(length) +
                             " is neither --seq-length " + std::to_string(model.seq_length) +
                             " nor one of StepWork::shorter_lengths");
        }
        indices.push_back(
            length == model.seq_length ? 0 : static_cast<int>(found - shorter.begin()) + 1);
    }
    // One length: the programs that a step without lengths has.
    if (std::ranges::all_of(indices, [](int k) { return k == 0; })) return {};
    return indices;
}

/// MicrobatchLengths::shorter for ModelPartition::shorter_lengths.
std::vector<LengthShares> shorter_shares(const ModelConfig& model,
                                         const ModelPartition& partition) {
    std::vector<LengthShares> shares;
    for (const int64_t length : partition.shorter_lengths) {
        shares.push_back(length_shares(model, partition.recompute, length));
    }
    return shares;
}

/// Chosen by pass times that were measured or follow from measured rates; 1 if nothing is known of
/// links. 0: lower_step() chooses by the plan's own costs.
int pieces_of(const StepPlan& plan, const StepCluster& cluster, const StepSchedule& schedule,
              const LowerOptions& options) {
    if (schedule.pieces != 0) return schedule.pieces;
    if (!cluster.overlap) return cluster.costs ? 0 : 1;
    TableCosts costs = plan.costs;
    if (cluster.costs) {
        costs.piece_ns = piece_price(*cluster.overlap);
    } else {
        costs = costs_at_rates(plan.costs, kNominalFlopsPerNs, *cluster.overlap);
    }
    return choose_step_pieces(plan.schedule, plan.sizes, costs, options);
}

/// Tokens per microbatch of one context rank.
int64_t tokens_of(const ModelConfig& model, const StepCluster& cluster, const StepWork& work) {
    return work.micro_batch_size * model.seq_length / cluster.context;
}

/// For exchanges of tensor ranks: from the table, for the largest product of their layers.
int tensor_pieces_of(const ModelConfig& model, const StepCluster& cluster,
                     const StepSchedule& schedule, const StepWork& work) {
    if (schedule.pieces != 0) return schedule.pieces;
    if (cluster.tensor == 1 || !cluster.overlap) return 1;
    return pieces_for(*cluster.overlap, {.op = OverlapOp::all_gather_gemm,
                                         .rows = tokens_of(model, cluster, work),
                                         .inner = model.hidden_size,
                                         .columns = model.mlp_columns() / cluster.tensor,
                                         .members = cluster.tensor,
                                         .element_bytes = static_cast<int>(size_of(model.dtype))});
}

/// For exchanges of expert ranks: from the table, for the largest product whose rows are dispatched
/// (the gates' forward) and the largest whose rows are combined (the gates' backward).
ExpertPieces expert_pieces_of(const ModelConfig& model, const StepCluster& cluster,
                              const StepSchedule& schedule, const StepWork& work) {
    if (schedule.pieces != 0) return {.dispatch = schedule.pieces, .combine = schedule.pieces};
    if (cluster.expert == 1 || !cluster.overlap) return {};
    TileShape shape{.op = OverlapOp::dispatch_gemm,
                    .rows = tokens_of(model, cluster, work) / cluster.tensor *
                            static_cast<int64_t>(model.moe.top_k) * cluster.expert_tensor,
                    .inner = model.hidden_size,
                    .columns = 2 * model.expert_ffn_hidden_size() / cluster.expert_tensor,
                    .members = cluster.expert,
                    .element_bytes = static_cast<int>(size_of(model.dtype))};
    ExpertPieces pieces{.dispatch = pieces_for(*cluster.overlap, shape)};
    shape.op = OverlapOp::gemm_combine;
    std::swap(shape.inner, shape.columns);
    pieces.combine = pieces_for(*cluster.overlap, shape);
    return pieces;
}

ContextExchange context_exchange_of(const StepSchedule& schedule) {
    ContextExchange exchange{.form = schedule.context_form};
    if (schedule.pieces != 0) exchange.panels = schedule.pieces;
    return exchange;
}

/// What a step runs of the model: an evaluation has no depths of multi-token prediction.
ModelConfig run_model(ModelConfig model, bool evaluation) {
    if (evaluation) model.mtp_num_layers = 0;
    return model;
}

/// [layer] Of a model of the user's, the last with a whole output layer. Layers without products
/// cost next to nothing.
std::vector<double> costs_of_layers(const ModelConfig& model, bool shards_vocabulary) {
    std::vector<double> costs = layer_flops_per_token(model);
    for (double& cost : costs) cost += 1;
    if (!shards_vocabulary) {
        costs.back() += forward_flops_per_token(model) - layers_flops_per_token(model);
    }
    return costs;
}

/// Costs and sizes of a model on a cluster: from FLOPs, or as measured there.
class ModelCosts final : public CostSource {
public:
    /// All must outlive it.
    ModelCosts(const ModelConfig& model, const StepCluster& cluster, const StepSchedule& schedule,
               const StepWork& work)
        : model_(model), cluster_(cluster), schedule_(schedule), work_(work) {}

    /// As given; else balanced by the output layer's cost, in transformer layers with their R.
    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override {
        if (!schedule_.layers_per_stage.empty()) return schedule_.layers_per_stage;
        if (model_.model_forward) {
            return split_layers(costs_of_layers(model_, sharded(mode)),
                                static_cast<int>(rank_of_stage.size()));
        }
        const PassCosts costs = nominal_costs(schedule_);
        const auto trained = static_cast<double>(costs.mean(Op::F) + costs.mean(Op::B));
        const double again =
            schedule_.recompute == Recompute::none ? 0 : static_cast<double>(costs.mean(Op::R));
        // A model without layers has custom stages.
        const double output = model_.num_layers == 0
                                  ? 0
                                  : output_layer_in_layers(model_) * trained / (trained + again);
        return vocabpipe::layers_per_stage(
            model_.num_layers, rank_of_stage, mode,
            {.output_layer = output, .mtp_layers = mtp_in_layers(model_)});
    }

    [[nodiscard]] ModelPartition partition(std::vector<int> layers) const {
        return {.layers_per_stage = std::move(layers),
                .micro_batch_size = work_.micro_batch_size,
                .shorter_lengths = work_.shorter_lengths,
                .replicas = cluster_.replicas,
                .zero_stage = schedule_.zero.stage,
                .context = cluster_.context,
                .context_exchange = context_exchange_of(schedule_),
                .tensor = cluster_.tensor,
                .expert = cluster_.expert,
                .expert_tensor = cluster_.expert_tensor,
                .moe_row_factor = schedule_.moe_row_factor,
                .expert_pieces = expert_pieces_of(model_, cluster_, schedule_, work_),
                .tensor_pieces = tensor_pieces_of(model_, cluster_, schedule_, work_),
                .threads_per_rank = cluster_.threads_per_rank,
                .recompute = schedule_.recompute,
                .optimizer = work_.optimizer,
                .training = work_.training,
                .records = work_.records,
                .loss = work_.loss,
                .hidden_sums = work_.hidden_sums,
                .frozen = work_.frozen,
                .operators = cluster_.operators,
                .stage_bytes = schedule_.stage_bytes};
    }

    /// The order follows measured costs; without any, those that the schedule asks for.
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override {
        const ModelPartition partition = this->partition(layers);
        StepPrice price;
        price.sizes = step_sizes(run_model(model_, work_.evaluation), partition, placed);
        price.sizes.length_of_microbatch =
            indices_of(work_.seq_lengths, model_, partition, work_.microbatches);
        price.costs = cluster_.costs ? *cluster_.costs : flop_costs(model_, partition, placed);
        price.costs.communication = cluster_.communication;  // of this cluster, not of the profile
        price.costs.layers_per_stage = model_.num_layers / static_cast<double>(placed.stages);
        price.costs.lengths = {.shorter = shorter_shares(model_, partition), .of_microbatch = {}};
        price.order = nominal_costs(schedule_);
        price.order.lengths = price.costs.lengths;
        if (cluster_.costs) {
            price.costs.slices = 1;  // the order is one pipeline's
            price.order = PassCosts::of(price.costs, price.sizes, placed);
        }
        price.costs.lengths.of_microbatch = price.sizes.length_of_microbatch;
        price.costs.slices = partition.mesh(placed.ranks).slices();
        return price;
    }

private:
    const ModelConfig& model_;
    const StepCluster& cluster_;
    const StepSchedule& schedule_;
    const StepWork& work_;
};

void check_stages(const char* what, size_t given, int stages) {
    if (given == 0 || given == static_cast<size_t>(stages)) return;
    throw UsageError(std::string(what) + " are set for " + std::to_string(given) +
                     " stages, but the schedule has " + std::to_string(stages) +
                     "; both must be equal");
}

}  // namespace

StepPlan place_step(const ModelConfig& model, const StepCluster& cluster,
                    const StepSchedule& schedule, const StepWork& work) {
    Schedule placed =
        placement_of(source_of(schedule), order_options(model, cluster, schedule, work));
    check_stages("layers_per_stage", schedule.layers_per_stage.size(), placed.stages);
    check_stages("stage_bytes", schedule.stage_bytes.size(), placed.stages);
    const ModelCosts costs(model, cluster, schedule, work);
    PricedStep step = price_step(costs, std::move(placed), vocab_mode_of(model, schedule));
    return {.model = model,
            .partition = costs.partition(step.layers),
            .schedule = std::move(step.schedule),
            .sizes = std::move(step.price.sizes),
            .costs = std::move(step.price.costs),
            .order_costs = std::move(step.price.order)};
}

StepPlan plan_step(const ModelConfig& model, const StepCluster& cluster,
                   const StepSchedule& schedule, const StepWork& work) {
    StepPlan plan = place_step(model, cluster, schedule, work);
    ScheduleOptions options = order_options(model, cluster, schedule, work);
    options.costs = plan.order_costs;
    Schedule order = make_order(source_of(schedule), options);
    plan.schedule =
        work.evaluation
            ? evaluation_schedule(std::move(order))
            : without_frozen_passes(std::move(order), trained_parts(plan.model, plan.partition));
    LowerOptions lowering{.receive_ahead = schedule.receive_ahead,
                          .reductions = schedule.reductions,
                          .zero = schedule.zero};
    // Only hosts have lanes; GPUs have streams, or launches with NCCL.
    if (cluster.communication == CommunicationOrder::lanes) {
        lowering.bucket_piece = kBucketPieceOfHosts;
        lowering.overlap_pairs = schedule.overlap_pairs && plan.sizes.exchanges();
    }
    lowering.pieces = pieces_of(plan, cluster, schedule, lowering);
    make_programs(plan, lowering, plan.costs);
    return plan;
}

StepPlan with_lengths(StepPlan plan, std::span<const int64_t> seq_lengths) {
    plan.sizes.length_of_microbatch =
        indices_of(seq_lengths, plan.model, plan.partition, plan.microbatches());
    plan.costs.lengths.of_microbatch = plan.sizes.length_of_microbatch;
    const auto arenas = [&] {
        std::vector<uint64_t> bytes;
        for (const Program& program : plan.lowered.pipeline) bytes.push_back(program.arena_bytes);
        return bytes;
    };
    const std::vector<uint64_t> room = arenas();
    plan.lowering.as_longest = false;
    make_programs(plan, plan.lowering, plan.costs);
    if (std::ranges::equal(arenas(), room, std::less_equal())) return plan;
    TableCosts of_longest = plan.costs;
    of_longest.lengths.of_microbatch.clear();
    plan.lowering.as_longest = true;
    make_programs(plan, plan.lowering, of_longest);
    return plan;
}

StepPlan plan_step(const ModelConfig& model, const ModelPartition& partition, Schedule schedule,
                   const TableCosts& costs, const LowerOptions& options) {
    StepPlan plan{
        .model = model, .partition = partition, .schedule = std::move(schedule), .costs = costs};
    plan.sizes =
        step_sizes(run_model(model, plan.schedule.forward_only()), partition, plan.schedule);
    plan.costs.lengths.shorter = shorter_shares(model, partition);
    make_programs(plan, options, plan.costs);
    return plan;
}

}  // namespace vocabpipe
