// SPDX-License-Identifier: Apache-2.0
// Two ways to time a candidate: simulated() lowers and simulates the whole step, as a run would
// execute it; timed() only times the passes and adds the end of the step by formulas, for searches
// that are too large to simulate.
#include "src/plan/evaluate.hpp"

#include "src/model/blocks/model_layers.hpp"
#include "src/model/trained_tensors.hpp"
#include "src/plan/end_of_step.hpp"
#include "src/plan/list_memory.hpp"
#include "src/plan/step_model.hpp"
#include "src/step/costs/length_sizes.hpp"
#include "vocabpipe/microbatch_order.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/receive_early.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

using enum Op;

PassEnds ends_of(const Schedule& schedule, const PassTimes& times) {
    const auto ranks = static_cast<size_t>(schedule.ranks);
    const std::vector<int64_t> none(ranks, 0);
    PassEnds ends{.rank = none,
                  .stage = std::vector<int64_t>(static_cast<size_t>(schedule.stages), 0),
                  .input = none,
                  .output = none};
    for (size_t rank = 0; rank < ranks; ++rank) {
        const std::vector<Pass>& list = schedule.passes[rank];
        for (size_t i = 0; i < list.size(); ++i) {
            const int64_t end = times.end[rank][i];
            ends.rank[rank] = std::max(ends.rank[rank], end);
            switch (list[i].op) {
                case B:
                case W:
                    ends.stage[list[i].stage] = std::max(ends.stage[list[i].stage], end);
                    break;
                case G:
                    ends.input[rank] = end;
                    break;
                case T:
                    ends.output[rank] = end;
                    break;
                default:
                    break;
            }
        }
    }
    return ends;
}

/// Adds what is whole of stages that ranks share: two stages at a time, one of which is on its way,
/// or all of them. Passes do not wait for it here.
void add_shared_stages(const std::vector<GradientBucket>& buckets, int64_t width,
                       const ZeroOptions& zero, LiveBytes& live) {
    std::map<int, LiveBytes> stages;
    for (const GradientBucket& bucket : buckets) {
        LiveBytes& of = stages[bucket.stage];
        if (bucket.shards_weights) of.weights += bucket.first.back() * width;
        if (bucket.shards_gradients) of.gradients += bucket.first.back() * 4;
    }
    LiveBytes all, largest;
    for (const auto& [stage, of] : stages) {
        all.weights += of.weights;
        all.gradients += of.gradients;
        largest.weights = std::max(largest.weights, of.weights);
        largest.gradients = std::max(largest.gradients, of.gradients);
    }
    const bool each_use = zero.reshard_after == ReshardAfter::use;
    live.weights = each_use ? std::min(all.weights, 2 * largest.weights) : all.weights;
    live.gradients = each_use ? std::min(all.gradients, 2 * largest.gradients) : all.gradients;
}

/// FLOPs of the model per token of a step: three forwards, without those of frozen weights'
/// gradients and of the backwards below the lowest trained layer.
double step_flops_per_token(const ModelConfig& config, const std::vector<bool>& frozen) {
    const double forward = forward_flops_per_token(config);
    if (frozen.empty()) return 3 * forward;
    const ModelLayers layers(config);
    const TrainedTensors tensors(config, layers, frozen);
    double sum =
        2 * forward + (tensors.output() ? 1 : 0) * (forward - layers_flops_per_token(config));
    for (int layer = 0; layer < layers.count(); ++layer) {
        const BlockWork work = layers[layer].block.work(config.seq_length);
        const double products = work.flops() - work.heads_flops;
        // The gradients of attention's heads take two forwards, and are of no weight.
        if (layer < tensors.first_backward_layer())
            sum -= work.flops();
        else
            sum += work.heads_flops + tensors.layer(layer).share * products;
    }
    return sum;
}

}  // namespace

struct Evaluator::Outcome {
    int64_t step_ns = 0;
    double bubble = 0;
    std::vector<LiveBytes> live;  ///< [rank]
};

Evaluator::Evaluator(const PlanOptions& options)
    : options_(options),
      model_(options),
      simulate_{.cores = options.profile ? options.profile->cores : 0},
      flops_per_token_(options.profile ? 0 : step_flops_per_token(model_.config, options.frozen)) {}

Schedule Evaluator::order(const Candidate& candidate) const {
    return OrderCache().order(model_of(candidate), candidate);
}

PlanRow Evaluator::row(const Candidate& candidate, const Schedule& order,
                       Evaluation evaluation) const {
    return row_of(candidate, model_of(candidate), order, evaluation);
}

PlanRow Evaluator::row(const Candidate& candidate, Evaluation evaluation,
                       OrderCache& orders) const {
    const StepModel step = model_of(candidate);
    return row_of(candidate, step, orders.order(step, candidate), evaluation);
}

int64_t Evaluator::step_ns_of_lengths(const Candidate& candidate,
                                      const std::vector<ShorterLength>& shorter,
                                      std::vector<int> lengths, Evaluation evaluation) const {
    StepModel step = model_of(candidate);
    const Schedule order = OrderCache().order(step, candidate);
    MicrobatchLengths& of_step = step.generate.costs.lengths;
    for (const ShorterLength& length : shorter) {
        of_step.shorter.push_back(length.shares);
        step.sizes.shorter.push_back(
            length_sizes(step.sizes, length.seq_length, options_.seq_length));
    }
    of_step.of_microbatch = order_microbatches(order, step.generate.costs, std::move(lengths));
    step.costs.lengths = of_step;
    step.sizes.length_of_microbatch = of_step.of_microbatch;
    return outcome_of(step, order, evaluation, candidate.zero).step_ns;
}

RecordedRun Evaluator::record(const Candidate& candidate) const {
    const StepModel step = model_of(candidate);
    const Lowered step_programs =
        lowered(OrderCache().order(step, candidate), step, candidate.zero);
    std::vector<PersistentBytes> persistent;
    for (const PlannedMemory& memory : step.persistent) {
        persistent.push_back({.weights = static_cast<uint64_t>(memory.weights),
                              .gradients = static_cast<uint64_t>(memory.gradients),
                              .optimizer = static_cast<uint64_t>(memory.optimizer)});
    }
    return vocabpipe::record(simulate(step_programs, step.costs, simulate_).timeline,
                             step_programs.pipeline, to_string(candidate), persistent);
}

StepModel Evaluator::model_of(const Candidate& candidate) const {
    // A profile has the costs of all passes.
    const UnitCosts units = options_.profile ? UnitCosts() : unit_costs(model_, candidate);
    return step_model(options_, units, candidate);
}

Lowered Evaluator::lowered(const Schedule& schedule, const StepModel& step,
                           const ZeroOptions& zero) const {
    LowerOptions lowering{.receive_ahead = options_.receive_ahead, .zero = zero};
    if (step.costs.measured_on_hosts()) {
        lowering.bucket_piece = kBucketPieceOfHosts;
        lowering.overlap_pairs = !options_.trainer.blocking_exchanges && step.sizes.exchanges();
    }
    if (step.costs.exchange_permille > 0) lowering.overlap_pairs = true;
    return lower_step(schedule, step.sizes, step.costs, lowering, simulate_).lowered;
}

Evaluator::Outcome Evaluator::simulated(const Schedule& schedule, const StepModel& step,
                                        const ZeroOptions& zero) const {
    const Lowered step_programs = lowered(schedule, step, zero);
    const TimelineSummary all = simulate(step_programs, step.costs, simulate_).summary;
    Outcome outcome{.step_ns = all.step_ns, .bubble = all.bubble};
    for (const Program& program : step_programs.pipeline) {
        const auto bytes = [&](std::initializer_list<Purpose> purposes) {
            uint64_t sum = 0;
            for (const Purpose purpose : purposes) {
                sum += program.peak_by_purpose[static_cast<size_t>(purpose)];
            }
            return static_cast<int64_t>(sum);
        };
        outcome.live.push_back(
            {.activations = bytes({Purpose::boundary, Purpose::activation, Purpose::workspace}),
             .vocabulary = bytes({Purpose::vocabulary}),
             .communication =
                 bytes({Purpose::partial_sums, Purpose::report, Purpose::tied, Purpose::replicas}),
             .weights = bytes({Purpose::stage_weights}),
             .gradients = bytes({Purpose::stage_gradients})});
    }
    return outcome;
}

/// Passes as they follow from each other, and then the end of the step by formulas.
Evaluator::Outcome Evaluator::timed(const Schedule& schedule, const StepModel& step,
                                    const ZeroOptions& zero) {
    // Pairs of one stage whose weights or gradients ranks share run one after the other.
    const bool apart = zero.stage > 1 && schedule.stages == schedule.ranks;
    const int64_t exchange = apart ? 0 : step.costs.exchange_permille;
    const PassTimes times = time_passes(schedule, step.generate.costs, exchange);
    const EndOfStep end(step);
    Outcome outcome{.live = list_memory(schedule, step.sizes, exchange > 0)};
    for (size_t rank = 0; rank < step.sizes.buckets.size(); ++rank) {
        add_shared_stages(step.sizes.buckets[rank], size_of(step.sizes.dtype), zero,
                          outcome.live[rank]);
    }
    int64_t busy = 0;
    for (const std::vector<int64_t>& of_ranks : {times.busy, end.busy_ns()}) {
        busy = std::accumulate(of_ranks.begin(), of_ranks.end(), busy);
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        LiveBytes& live = outcome.live[static_cast<size_t>(rank)];
        const int64_t received = end.received_bytes();
        if (end.receives(rank) && received > live.total()) live = {.communication = received};
    }
    outcome.step_ns = end.step_ns(ends_of(schedule, times));
    outcome.bubble = 1 - static_cast<double>(busy) / (static_cast<double>(outcome.step_ns) *
                                                      static_cast<double>(schedule.ranks));
    return outcome;
}

Evaluator::Outcome Evaluator::outcome_of(const StepModel& step, const Schedule& order,
                                         Evaluation evaluation, const ZeroOptions& zero) const {
    return evaluation == Evaluation::simulation ? simulated(order, step, zero)
                                                : timed(order, step, zero);
}

PlanRow Evaluator::row_with(const Candidate& candidate, const StepModel& step,
                            const Schedule& order, Evaluation evaluation) const {
    const Outcome outcome = outcome_of(step, order, evaluation, candidate.zero);
    PlanRow row{.candidate = candidate,
                .evaluation = evaluation,
                .step_ns = outcome.step_ns,
                .bubble = outcome.bubble};
    const double seconds = static_cast<double>(outcome.step_ns) * 1e-9;
    const double tokens =
        static_cast<double>(options_.global_batch_size) * static_cast<double>(options_.seq_length);
    row.tokens_per_second = tokens / seconds;
    if (!options_.profile) {
        row.mfu = flops_per_token_ * tokens /
                  (seconds * options_.gpus * options_.device.peak_tflops.value * 1e12);
    }
    for (size_t rank = 0; rank < step.persistent.size(); ++rank) {
        PlannedMemory memory = step.persistent[rank];
        const LiveBytes& live = outcome.live[rank];
        memory.weights += live.weights;
        memory.gradients += live.gradients;
        memory.activations = live.activations;
        memory.vocabulary = live.vocabulary;
        memory.communication = live.communication;
        row.ranks.push_back(memory);
        if (memory.total() > row.worst.total()) row.worst = memory;
    }
    row.spare_bytes = options_.gpu_memory_bytes() - row.worst.total();
    return row;
}

/// The row; with ZeRO stage 3, with the fastest number of stages that are gathered ahead: one;
/// more, as long as it is faster and fits; none, where one does not fit.
PlanRow Evaluator::row_of(const Candidate& candidate, const StepModel& step, const Schedule& order,
                          Evaluation evaluation) const {
    if (candidate.zero.stage < 3 || evaluation != Evaluation::simulation) {
        return row_with(candidate, step, order, evaluation);
    }
    const auto with = [&](int stages) {
        Candidate ahead = candidate;
        ahead.zero.gather_ahead = stages;
        return row_with(ahead, step, order, evaluation);
    };
    PlanRow best = with(1);
    if (!best.fits()) return with(0);
    for (int stages = 2; stages < candidate.chunks; stages *= 2) {
        PlanRow row = with(stages);
        // A hundredth is not worth the memory.
        if (!row.fits() || row.step_ns > best.step_ns - best.step_ns / 100) break;
        best = std::move(row);
    }
    return best;
}

int64_t count_passes(const Candidate& candidate) {
    const int64_t ranks = candidate.mesh.pipeline;
    const int recomputes = candidate.recompute == Recompute::none ? 0 : 1;
    const int64_t transformer = ranks * candidate.chunks * (3 + recomputes);
    const int64_t vocabulary = sharded(candidate.vocab_mode) ? ranks * 4 : 4;
    return (transformer + vocabulary) * candidate.microbatches;
}

}  // namespace vocabpipe
