// SPDX-License-Identifier: Apache-2.0
// Turns a candidate into what lowering, simulation and the schedule families take: placement, costs
// of passes and transfers, sizes of buffers, and persistent memory per rank.
#include "src/plan/step_model.hpp"

#include "schedules/placement.hpp"
#include "src/plan/layer_products.hpp"
#include "src/plan/place_parameters.hpp"
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

Schedule place(const PlanOptions& options, const Candidate& candidate) {
    const int ranks = candidate.mesh.pipeline;
    Schedule placement;
    placement.ranks = ranks;
    placement.stages = ranks * candidate.chunks;
    placement.microbatches = candidate.microbatches;
    placement.rank_of_stage =
        rank_of_stage(generator(candidate.schedule).placement, ranks, candidate.chunks);
    place_vocabulary(placement, candidate.vocab_mode, options.model.vocab_size);
    return placement;
}

/// Bytes that Reduce moves on a rank to add up both gradients of a tied weight.
double reduce_traffic(const StepModel& step, int rank, const Candidate& candidate,
                      const PlanOptions& options) {
    const Schedule& placement = step.placement;
    const int64_t rows = std::max(placement.input.rows(rank), placement.output.rows(rank));
    const auto hidden = static_cast<double>(options.model.hidden_size);
    auto touched = static_cast<double>(largest_share(rows, candidate.mesh.tensor));
    // Each of two ranks reads its own and the other's gradient, and writes the sum.
    if (placement.input != placement.output) return 3 * kGradient * touched * hidden;
    // A rank with both layers also clears what it adds; hosts do so only in rows of tokens that
    // occur.
    if (step.costs.measured_on_hosts()) {
        const int64_t tokens =
            candidate.microbatches * candidate.micro_batch_size * options.seq_length;
        const double share = touched / static_cast<double>(options.model.vocab_size);
        touched = std::min(touched, static_cast<double>(tokens) * share);
    }
    return 4 * kGradient * touched * hidden;
}

void set_costs(StepModel& step, const UnitCosts& units, const Candidate& candidate,
               const std::vector<PlaceParameters>& parameters, const PlanOptions& options) {
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
        if (candidate.recompute != Recompute::none) set(stage, R, all * units.recompute);
        step.costs.stage_ns.push_back(stage);
    }
    const double vocabulary = static_cast<double>(options.model.vocab_size);
    // Three products: logits in S, the input gradient in S (one barrier) or T, the weight gradient
    // in T. Two thirds of the remaining work belong to S, which forms the softmax.
    const bool early = placement.barriers == Barriers::one;
    const double softmax =
        sharded(candidate.vocab_mode) ? units.softmax_per_row : units.whole_softmax_per_row;
    for (int r = 0; r < placement.ranks; ++r) {
        // Tensor ranks share the rows of a place, and work on all tokens.
        const auto rows =
            static_cast<double>(largest_share(placement.output.rows(r), candidate.mesh.tensor));
        const double input_share = static_cast<double>(placement.input.rows(r)) / vocabulary;
        const PlaceParameters& own = parameters[static_cast<size_t>(r)];
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
        set(rank, Reduce, reduce_traffic(step, r, candidate, options) * byte);
        set(rank, Report, kNormTraffic * static_cast<double>(own.reported()) * byte);
        set(rank, Update, kUpdateTraffic * static_cast<double>(own.updated()) * byte);
        step.costs.rank_ns.push_back(rank);
    }
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

/// Bytes of the table of rotary positions.
int64_t rotary_bytes(const TransformerShape& model, int64_t seq_length) {
    if (model.learned_positions > 0) return 0;
    return seq_length * (model.rotary_size > 0 ? model.rotary_size : model.head_size) * 4;
}

std::vector<StageBytes> stage_bytes(const PlanOptions& options, const Candidate& candidate,
                                    const StepSizes& sizes) {
    const TransformerShape& model = options.model;
    const Mesh& mesh = candidate.mesh;
    const int64_t element = size_of(sizes.dtype);
    const int64_t own = sizes.boundary_rows();
    const int64_t boundary = own * model.hidden_size * element;
    const double held = expert_load(model.moe, mesh, 1).row_bound;
    const int64_t gradients_of_layer = own * model.for_weight_bytes(element, held);
    // The tensor that a pass gathers from all tensor ranks; as large as what it receives from them.
    const int64_t gathered = mesh.tensor > 1 ? mesh.tensor * boundary : 0;
    // Rows on their way to experts of other ranks and back.
    const int64_t travelling = mesh.expert > 1 ? 2 * model.moe.per_token * boundary : 0;
    const int64_t scratch = own * model.scratch_columns(held) * element + 2 * gathered + travelling;
    std::vector<StageBytes> stages;
    for (size_t stage = 0; stage < candidate.layers_per_stage.size(); ++stage) {
        const int64_t layers = candidate.layers_per_stage[stage];
        const bool last = stage + 1 == candidate.layers_per_stage.size();
        StageBytes bytes;
        // The first layer's input is the stage's boundary, unless positions were added to it; the
        // last stage's norm has its own input, and statistics.
        const bool adds_positions = stage == 0 && model.learned_positions > 0;
        const int inputs = (last ? 1 : 0) - (layers > 0 && !adds_positions ? 1 : 0);
        bytes.saved = layers * own * model.saved_bytes(element, held) + inputs * boundary;
        if (last) bytes.saved += own * (model.layer_norm ? 2 : 1) * size_of(DType::fp32);
        bytes.saved = std::max<int64_t>(bytes.saved, 0);
        divide_saved(bytes, candidate.recompute,
                     layers * own * model.recomputed_bytes(candidate.recompute, element, held));
        bytes.for_weight = layers * gradients_of_layer + 2 * boundary;
        bytes.forward_workspace = scratch;
        // The gradient of a layer's output is one of the two boundary gradients that alternate.
        bytes.backward_workspace =
            (layers > 0 ? gradients_of_layer - boundary : 0) + scratch + 2 * boundary;
        bytes.input_gradient_workspace = scratch;
        // Shared experts need all of the scratch again, in case of several waves.
        bytes.weight_gradient_workspace = mesh.expert > 1 ? scratch : gathered;
        stages.push_back(bytes);
    }
    return stages;
}

StepSizes sizes_of(const PlanOptions& options, const Schedule& placement,
                   const Candidate& candidate) {
    const TransformerShape& model = options.model;
    StepSizes sizes;
    sizes.tokens = candidate.micro_batch_size * options.seq_length;
    sizes.hidden = model.hidden_size;
    sizes.dtype = dtype_of(options);
    sizes.replicas = candidate.mesh.data;
    sizes.tensor = candidate.mesh.tensor;
    sizes.expert = candidate.mesh.expert;
    sizes.has_experts.assign(candidate.layers_per_stage.size(), model.moe.layers > 0);
    sizes.tied = model.tied;
    sizes.report_bytes = kReport;
    sizes.stages = stage_bytes(options, candidate, sizes);
    for (int rank = 0; rank < placement.ranks; ++rank) {
        const int64_t logits =
            sizes.tokens * largest_share(placement.output.rows(rank), candidate.mesh.tensor);
        // Exponentials stay from S to T; fp32 logits live within S.
        sizes.shards.push_back(
            {.exp_logits = logits * size_of(sizes.dtype), .score_workspace = logits * 4});
    }
    return sizes;
}

}  // namespace

StepModel step_model(const PlanOptions& options, const UnitCosts& units,
                     const Candidate& candidate) {
    const Mesh& mesh = candidate.mesh;
    StepModel step{
        .placement = place(options, candidate),
        .costs = options.profile ? StepCosts(options.profile->costs) : StepCosts(options.device)};
    step.costs.slices = mesh.slices();
    const std::vector<PlaceParameters> parameters =
        count_parameters(options.model, step.placement, candidate);
    set_costs(step, units, candidate, parameters, options);
    if (options.pass_times) use_pass_times(step.costs, *options.pass_times);
    step.sizes = sizes_of(options, step.placement, candidate);
    const auto reserve =
        static_cast<int64_t>(options.device.reserve_gib.value * static_cast<double>(1 << 30));
    const int64_t rotary = rotary_bytes(options.model, options.seq_length);
    for (int rank = 0; rank < mesh.pipeline; ++rank) {
        const PlaceParameters& own = parameters[static_cast<size_t>(rank)];
        step.persistent.push_back({.rank = rank * mesh.slices(),
                                   .weights = own.stored() * size_of(step.sizes.dtype) + rotary,
                                   .gradients = own.differentiated() * kGradient,
                                   .optimizer = own.updated() * optimizer_bytes(step.sizes.dtype),
                                   .reserve = reserve});
        if (mesh.slices() > 1) step.sizes.buckets.push_back(own.buckets());
    }
    step.generate = {.ranks = mesh.pipeline,
                     .microbatches = candidate.microbatches,
                     .vocab_mode = candidate.vocab_mode,
                     .vocab_size = options.model.vocab_size,
                     .rule = {.chunks = candidate.chunks, .memory_limit = candidate.memory_limit}};
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
    // The paper's lists leave C0 no slack; build them for its latency and one hop
    // (docs/schedules.md, `--broadcast-margin`), at most half of a backward with its R.
    const PassCosts order = recomputes ? with_recomputation(costs) : costs;
    step.generate.rule.broadcast_margin = std::min(costs.c0 + costs.hop, order.mean(Op::B) / 2);
    return step;
}

}  // namespace vocabpipe
