// SPDX-License-Identifier: Apache-2.0
// Turns a candidate into what lowering, simulation and the schedule families take: placement, costs
// of passes and transfers, sizes of buffers, and persistent memory per rank.
#include "src/plan/step_model.hpp"

#include "schedules/placement.hpp"
#include "src/model/blocks/counted_depth.hpp"
#include "src/model/blocks/depth_memory.hpp"
#include "src/model/blocks/model_layers.hpp"
#include "src/model/blocks/stage_memory.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/model/shared_stages.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/model/trained_tensors.hpp"
#include "src/plan/candidates.hpp"
#include "src/plan/place_parameters.hpp"
#include "src/plan/planned_config.hpp"
#include "src/plan/profiled_model.hpp"
#include "src/plan/trainer_memory.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kSum = 4;      // bytes of fp32
constexpr int64_t kReport = 64;  // bytes of norms and losses of one rank

/// Two moments in fp32, and a master weight where the weight has 16 bits.
int64_t optimizer_bytes(DType dtype) {
    return 2 * 4 + (dtype == DType::bf16 ? 4 : 0);
}

int64_t gradients_of(const PlaceParameters& own, const PlannedTrainer& trainer,
                     const Candidate& candidate) {
    return own.kept_gradients(candidate.zero.stage) * size_of(trainer.gradients);
}

/// How ranks share the layers of a candidate.
LayerTeams teams_of(const Candidate& candidate) {
    const Mesh& mesh = candidate.mesh;
    return {.context = mesh.context,
            .context_exchange = {.form = candidate.context_form},
            .tensor = mesh.tensor,
            .expert = mesh.expert,
            .expert_tensor = candidate.expert_tensor};
}

int64_t ns(double value) {
    return std::max<int64_t>(std::llround(value), 1);  // generators want costs of at least 1
}

Schedule place(const Candidate& candidate, int64_t vocab_size) {
    const int ranks = candidate.mesh.pipeline;
    Schedule placement;
    placement.ranks = ranks;
    placement.stages = ranks * candidate.chunks;
    placement.rank_of_stage =
        rank_of_stage(generator(candidate.schedule).placement, ranks, candidate.chunks);
    place_vocabulary(placement, candidate.vocab_mode, vocab_size);
    return placement;
}

/// The model as a candidate's ranks share it, counted once for costs, sizes and memory.
struct CountedModel {
    CountedModel(const PlanOptions& options, const Candidate& candidate, const Schedule& placement)
        : config(planned_config(options)),
          layers(config, teams_of(candidate)),
          tensors(config, layers, options.frozen),
          depths_stage(mtp_stage(options, candidate)),
          parameters(count_parameters(config, tensors, placement, candidate, depths_stage)) {}

    ModelConfig config;  ///< with the sequences of the plan's steps
    ModelLayers layers;
    TrainedTensors tensors;
    int depths_stage;                         ///< mtp_stage()
    std::vector<PlaceParameters> parameters;  ///< [pipeline rank]
};

/// Bytes that Reduce moves on a rank to add up both gradients of a tied weight.
double reduce_traffic(const Schedule& placement, int rank, int tensor, int64_t hidden_size) {
    const int64_t rows = std::max(placement.input.rows(rank), placement.output.rows(rank));
    const auto hidden = static_cast<double>(hidden_size);
    const auto touched = static_cast<double>(largest_part(rows, tensor));
    // Each of two ranks reads its own and the other's gradient, and writes the sum.
    if (placement.input != placement.output) return 3 * kSum * touched * hidden;
    // A rank with both layers also clears what it adds.
    return 4 * kSum * touched * hidden;
}

/// The trained part of a layer's weights have gradients.
LayerTimes trained_times(const LayerTimes& whole, double share) {
    LayerTimes times = whole;
    times.weight_gradient *= share;
    times.backward -= (1 - share) * (whole.backward - whole.input_gradient);
    return times;
}

void set_costs(StepModel& step, const UnitCosts& units, const Candidate& candidate,
               const CountedModel& model, const PlannedTrainer& trainer) {
    using enum Op;
    const auto set = [](TableCosts::OpCosts& costs, Op op, double value) {
        costs[static_cast<size_t>(op)] = ns(value);
    };
    const Schedule& placement = step.placement;
    const bool overlaps = placement.ranks > 1 && sharded(candidate.vocab_mode);
    const double slower = overlaps ? units.overlapped : 1;
    int layer = 0;
    for (const int layers : candidate.layers_per_stage) {
        TableCosts::OpCosts stage{};
        LayerTimes all;
        for (const int end = layer + layers; layer < end; ++layer) {
            all.add(trained_times(units.layers[static_cast<size_t>(layer)],
                                  model.tensors.layer(layer).share));
        }
        if (std::ssize(step.costs.stage_ns) == model.depths_stage) all.add(units.mtp_layers);
        set(stage, F, slower * all.forward);
        set(stage, I, slower * all.input_gradient);
        set(stage, W, slower * all.weight_gradient);
        set(stage, B, slower * all.backward);
        if (candidate.recompute != Recompute::none) set(stage, R, slower * all.recompute);
        step.costs.stage_ns.push_back(stage);
    }
    const double vocabulary = static_cast<double>(model.config.vocab_size);
    // Three products: logits in S, the input gradient in S (one barrier) or T, the weight gradient
    // in T. Two thirds of the remaining work belong to S, which forms the softmax.
    const bool early = placement.barriers == Barriers::one;
    const double softmax =
        sharded(candidate.vocab_mode) ? units.softmax_per_row : units.whole_softmax_per_row;
    for (int r = 0; r < placement.ranks; ++r) {
        // Tensor ranks share the rows of a place, and work on all tokens.
        const auto rows =
            static_cast<double>(largest_part(placement.output.rows(r), candidate.mesh.tensor));
        const double input_share = static_cast<double>(placement.input.rows(r)) / vocabulary;
        const PlaceParameters& own = model.parameters[static_cast<size_t>(r)];
        TableCosts::OpCosts rank{};
        // Without a parallel loss each tensor rank forms the softmax of all rows of its place.
        const bool alone = !trainer.parallel_loss && candidate.mesh.tensor > 1;
        const auto held = static_cast<double>(placement.output.rows(r));
        const double softmax_rows = alone ? held : rows;
        const double gather = alone ? units.gathered_logits.of(held) : 0;
        const double gradient = units.output_gradient.of(rows);
        const double score = units.logits.of(rows) + gather + softmax_rows * softmax * 2 / 3;
        const double weight = (model.tensors.output() ? units.output_weight_gradient.of(rows) : 0) +
                              softmax_rows * softmax / 3;
        set(rank, S, rows == 0 ? 0 : units.vocabulary_pass + score + (early ? gradient : 0));
        set(rank, T, rows == 0 ? 0 : units.vocabulary_pass + weight + (early ? 0 : gradient));
        set(rank, E, input_share > 0 ? units.vocabulary_pass + units.embedding : 0);
        set(rank, G,
            input_share > 0 ? units.vocabulary_pass + input_share * units.embedding_gradient : 0);
        const double byte = units.per_parameter_byte;
        set(rank, Reduce,
            reduce_traffic(placement, r, candidate.mesh.tensor, model.config.hidden_size) * byte);
        set(rank, Report, kNormTraffic * static_cast<double>(own.reported()) * byte);
        set(rank, Update, kUpdateTraffic * static_cast<double>(own.updated(trainer.zero)) * byte);
        step.costs.rank_ns.push_back(rank);
    }
}

/// Makes every pass wait for the boundary that it sends.
void wait_for_messages(StepModel& step) {
    const std::vector<int>& rank_of_stage = step.placement.rank_of_stage;
    const int64_t boundary =
        step.sizes.boundary_rows() * step.sizes.hidden * size_of(step.sizes.dtype);
    const auto wait = [&](size_t stage, size_t receiver, std::initializer_list<Op> ops) {
        const int from = rank_of_stage[stage], to = rank_of_stage[receiver];
        if (from == to) return;
        const int64_t message =
            PipelineCosts(step.costs).transfer_ns(Do::send, {{from, to}, -1}, boundary);
        for (const Op op : ops) step.costs.stage_ns[stage][static_cast<size_t>(op)] += message;
    };
    for (size_t stage = 0; stage + 1 < rank_of_stage.size(); ++stage) {
        wait(stage, stage + 1, {Op::F});
        wait(stage + 1, stage, {Op::I, Op::B});
    }
}

/// Takes costs and sizes from the profile, as simulations of it do (src/step/costs/). With
/// replicas, each rank adds up and updates its part of the parameters. Returns the measured bytes
/// of a rank's parameters, where the step is placed as profiled.
std::vector<PersistentBytes> set_profiled(StepModel& step, const Profile& profile,
                                          const Candidate& candidate, const CountedModel& model) {
    using enum Op;
    StepPrice price =
        costs_of(profile, candidate.recompute).price(step.placement, candidate.layers_per_stage);
    step.costs.stage_ns = std::move(price.costs.stage_ns);
    step.costs.rank_ns = std::move(price.costs.rank_ns);
    step.sizes = std::move(price.sizes);
    step.sizes.replicas = candidate.mesh.data;
    if (candidate.mesh.data == 1) return std::move(price.persistent);
    Candidate alone = candidate;
    alone.mesh.data = 1;
    const std::vector<PlaceParameters> whole =
        count_parameters(model.config, model.tensors, step.placement, alone, -1);
    for (size_t rank = 0; rank < whole.size(); ++rank) {
        const auto share = [&](Op op, int64_t own, int64_t all) {
            int64_t& cost = step.costs.rank_ns[rank][static_cast<size_t>(op)];
            cost = ns(static_cast<double>(cost) * static_cast<double>(own) /
                      static_cast<double>(std::max<int64_t>(all, 1)));
        };
        share(Report, model.parameters[rank].reported(), whole[rank].reported());
        share(Update, model.parameters[rank].updated(1), whole[rank].updated(1));
    }
    return {};
}

/// Candidates without measured passes have been skipped before.
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

/// Sets what each stage needs, and whether it has experts.
void set_stages(StepSizes& sizes, const CountedModel& model, const PlannedTrainer& trainer,
                const Candidate& candidate) {
    const ModelConfig& config = model.config;
    // Attention's workspace is left out: 4 bytes per token and head on GPUs.
    kernels::Operators operators{};
    operators.attention_workspace_bytes = [](kernels::AttentionShape, DType, int) {
        return int64_t{0};
    };
    const ScratchFor use{.operators = operators,
                         .sequences = candidate.micro_batch_size,
                         .seq_length = config.seq_length / candidate.mesh.context,
                         .dtype = config.dtype,
                         .context = candidate.mesh.context,
                         .tensor = candidate.mesh.tensor};
    const auto bytes_of = [&](const std::vector<const ModelLayer*>& blocks, const Norm* norm,
                              bool embeds) {
        StageBytes bytes = StageMemory({.hidden_size = config.hidden_size,
                                        .embeds = embeds,
                                        .recompute = candidate.recompute,
                                        .expert = candidate.mesh.expert},
                                       blocks, norm, use)
                               .bytes();
        add_trainer_bytes(bytes, trainer, candidate, config, blocks);
        return bytes;
    };
    HeldParameters none;
    const Norm final_norm(final_norm_options(config), none);
    // Most stages are alike.
    std::map<std::tuple<std::vector<const ModelLayer*>, bool, bool>, StageBytes> known;
    const int stages = static_cast<int>(candidate.layers_per_stage.size());
    const int predicting = model.depths_stage;
    for (int stage = 0, layer = 0; stage < stages; ++stage) {
        const int end = layer + candidate.layers_per_stage[static_cast<size_t>(stage)];
        std::vector<const ModelLayer*> blocks;
        bool experts = stage == predicting && config.moe.in_layer(config.num_layers);
        for (; layer < end; ++layer) {
            blocks.push_back(&model.layers[layer].block);
            experts = experts || config.moe.in_layer(layer);
        }
        const bool embeds = stage == 0 && has_embedded_tokens(config);
        const bool last = stage + 1 == stages;
        const auto [found, added] = known.try_emplace({blocks, embeds, last});
        if (added) found->second = bytes_of(blocks, last ? &final_norm : nullptr, embeds);
        sizes.stages.push_back(found->second);
        sizes.has_experts.push_back(experts);
    }
    if (predicting < 0) return;
    StageBytes& main = sizes.stages[static_cast<size_t>(predicting)];
    const CountedDepth depth(config, teams_of(candidate));
    main = DepthMemory({.depths = config.mtp_num_layers,
                        .hidden_size = config.hidden_size,
                        .tokens = {.own = sizes.boundary_rows(), .all = sizes.tokens},
                        .dtype = config.dtype,
                        .recompute = candidate.recompute,
                        .main = main,
                        .layer = bytes_of({&depth.layer}, &depth.final_norm, false)},
                       depth.projection)
               .bytes();
}

StepSizes sizes_of(const CountedModel& model, const PlannedTrainer& trainer,
                   const Schedule& placement, const Candidate& candidate) {
    const ModelConfig& config = model.config;
    StepSizes sizes;
    sizes.tokens = candidate.micro_batch_size * config.seq_length / candidate.mesh.context;
    sizes.predicted_tokens = config.predicted_tokens();
    sizes.hidden = config.hidden_size;
    sizes.dtype = config.dtype;
    sizes.replicas = candidate.mesh.data;
    sizes.context = candidate.mesh.context;
    sizes.tensor = candidate.mesh.tensor;
    sizes.expert = candidate.mesh.expert;
    sizes.tied = config.tied && model.tensors.embedding();
    sizes.report_bytes = kReport;
    sizes.weight_pass_reads_weights = weight_pass_reads_weights(config, candidate.mesh.expert);
    set_stages(sizes, model, trainer, candidate);
    for (int rank = 0; rank < placement.ranks; ++rank) {
        const int64_t logits =
            sizes.output_rows() * largest_part(placement.output.rows(rank), candidate.mesh.tensor);
        // Exponentials stay from S to T; fp32 logits live within S.
        const int64_t loss =
            trainer.parallel_loss
                ? logits * 4
                : sizes.output_rows() * placement.output.rows(rank) * kUnfusedLossBytes;
        sizes.shards.push_back(
            {.exp_logits = logits * size_of(sizes.dtype), .score_workspace = loss});
    }
    return sizes;
}

}  // namespace

StepModel step_model(const PlanOptions& options, const UnitCosts& units, const Candidate& candidate,
                     bool bucket_parts) {
    const Mesh& mesh = candidate.mesh;
    StepModel step{.placement = place(candidate, options.model.config.vocab_size),
                   .costs = options.profile ? StepCosts(options.profile->costs)
                                            : StepCosts(options.device, options.trainer)};
    step.costs.slices = mesh.slices();
    const CountedModel model(options, candidate, step.placement);
    step.trained = model.tensors.parts(candidate.layers_per_stage);
    std::vector<PersistentBytes> measured;
    if (options.profile) {
        measured = set_profiled(step, *options.profile, candidate, model);
    } else {
        step.sizes = sizes_of(model, options.trainer, step.placement, candidate);
        set_costs(step, units, candidate, model, options.trainer);
        if (!options.trainer.overlap_messages) wait_for_messages(step);
        if (hides_exchanges(candidate)) {
            step.costs.exchange_permille = int64_t{10} * options.trainer.exchange_percent;
        }
    }
    if (options.pass_times) use_pass_times(step.costs, *options.pass_times);
    const auto reserve =
        static_cast<int64_t>(options.device.reserve_gib.value * static_cast<double>(1 << 30));
    const int64_t rotary = RotaryTables::bytes(model.config, mesh.context);
    for (int rank = 0; rank < mesh.pipeline; ++rank) {
        const PlaceParameters& own = model.parameters[static_cast<size_t>(rank)];
        PlannedMemory memory{
            .rank = rank * mesh.slices(),
            .weights = own.kept_weights(candidate.zero.stage) * size_of(model.config.dtype) +
                       own.correction_biases() * size_of(DType::fp32) + rotary,
            .gradients = gradients_of(own, options.trainer, candidate),
            .optimizer = own.updated(options.trainer.zero) * optimizer_bytes(model.config.dtype),
            .reserve = reserve};
        if (!measured.empty()) {
            const PersistentBytes& bytes = measured[static_cast<size_t>(rank)];
            memory.weights = static_cast<int64_t>(bytes.weights);
            memory.gradients = static_cast<int64_t>(bytes.gradients);
            memory.optimizer = static_cast<int64_t>(bytes.optimizer);
        }
        step.persistent.push_back(memory);
        if (mesh.slices() > 1) {
            step.sizes.buckets.push_back(own.buckets(bucket_parts, candidate.zero.stage));
        }
    }
    step.generate = {.ranks = mesh.pipeline,
                     .microbatches = candidate.microbatches,
                     .vocab_mode = candidate.vocab_mode,
                     .vocab_size = model.config.vocab_size,
                     .rule = {.chunks = candidate.chunks,
                              .memory_limit = candidate.memory_limit,
                              .overlap_pairs = candidate.overlap_pairs}};
    const bool recomputes = candidate.recompute != Recompute::none;
    PassCosts& costs = step.generate.costs;
    StepSizes of_slice = step.sizes;
    of_slice.tokens = step.sizes.boundary_rows();  // each slice sends and sums up its own rows
    costs = PassCosts::of(PipelineCosts(step.costs), of_slice, step.placement);
    const int64_t boundary = of_slice.tokens * of_slice.hidden * size_of(of_slice.dtype);
    costs.hop = step.costs.slowest_hop_ns(mesh.pipeline, boundary);
    if (mesh.tensor > 1) {  // S needs X of all slices together
        costs.c0 += step.costs.transfer_ns(
            Do::all_gather, {mesh.ranks_along(Axis::tensor, {}), -1, Axis::tensor}, boundary);
    }
    // Training from a profile gives C0 no slack by itself, and a plan from it predicts that.
    if (options.profile) return step;
    // The paper's lists leave C0 no slack; build them for its latency and one hop
    // (docs/schedules.md, `--broadcast-margin`), at most half of a backward with its R.
    const PassCosts order = recomputes ? with_recomputation(costs) : costs;
    step.generate.rule.broadcast_margin = std::min(costs.c0 + costs.hop, order.mean(Op::B) / 2);
    return step;
}

}  // namespace vocabpipe
