// SPDX-License-Identifier: Apache-2.0
// Two ways to time a candidate: simulated() lowers and simulates the whole step, as a run would
// execute it; timed() only times the passes and adds the end of the step by formulas, for searches
// that are too large to simulate.
#include "src/plan/evaluate.hpp"

#include "src/model/tensor_shard.hpp"
#include "src/plan/list_memory.hpp"
#include "src/plan/planned_config.hpp"
#include "src/plan/step_model.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/simulate.hpp"

#include <algorithm>
#include <numeric>

namespace vocabpipe {

namespace {

using enum Op;

struct Outcome {
    int64_t step_ns = 0;
    double bubble = 0;
    std::vector<LiveBytes> live;  ///< [rank]
};

SimulateOptions simulate_options(const PlanOptions& options) {
    return {.cores = options.profile ? options.profile->cores : 0};
}

Lowered lower_candidate(const Schedule& schedule, const StepModel& step,
                        const PlanOptions& options) {
    LowerOptions lowering{.receive_ahead = options.receive_ahead};
    if (step.costs.measured_on_hosts()) lowering.bucket_piece = kBucketPieceOfHosts;
    return lower_step(schedule, step.sizes, step.costs, lowering, simulate_options(options))
        .lowered;
}

Outcome simulated(const Schedule& schedule, const StepModel& step, const PlanOptions& options) {
    const SimulateOptions how = simulate_options(options);
    const Lowered lowered = lower_candidate(schedule, step, options);
    const auto summary = [&](const std::vector<Program>& programs) {
        return simulate(programs, step.costs, how).summary;
    };
    const bool alone = lowered.mesh.slices() == 1;
    const TimelineSummary all = alone ? summary(lowered.pipeline) : summary(lowered.all());
    Outcome outcome{.step_ns = all.step_ns, .bubble = all.bubble};
    for (const Program& program : lowered.pipeline) {
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
             .communication = bytes(
                 {Purpose::partial_sums, Purpose::report, Purpose::tied, Purpose::replicas})});
    }
    return outcome;
}

/// Communication for a rank's weights that others have, too: adding up their gradients, and
/// gathering the parts that each rank updated.
struct Exchange {
    int64_t sum_ns = 0, gather_ns = 0;
};
Exchange exchange_of(const StepModel& step, int rank) {
    Exchange exchange;
    const Mesh mesh = step.sizes.mesh(step.placement.ranks);
    if (mesh.slices() == 1) return exchange;
    for (const GradientBucket& bucket : step.sizes.buckets[static_cast<size_t>(rank)]) {
        const int64_t members = mesh.size_of(bucket.axis);
        if (members == 1) continue;
        const Group group{mesh.ranks_along(bucket.axis, {.pipeline = rank}), -1, bucket.axis};
        const int64_t elements = bucket.first.back();
        const int64_t own = elements / members;
        exchange.sum_ns += step.costs.transfer_ns(Do::all_to_all, group, elements * 4) +
                           step.costs.local_ns(Do::ordered_sum, (elements + own) * 4);
        exchange.gather_ns +=
            step.costs.transfer_ns(Do::all_gather_v, group, own * size_of(step.sizes.dtype));
    }
    return exchange;
}

/// On every rank Report, its all-gather and the optimizer step follow the passes. Before them come
/// the sums of a tied weight's gradients from two ranks.
Outcome timed(const Schedule& schedule, const StepModel& step) {
    const PassTimes times = time_passes(schedule, step.generate.costs);
    Outcome outcome{.live = list_memory(schedule, step.sizes)};
    const Mesh mesh = step.sizes.mesh(schedule.ranks);
    const auto rank_pass = [&](int rank, Op op) {
        return step.costs.pass_ns(rank * mesh.slices(), {.op = op});
    };
    std::vector<int64_t> busy = times.busy;
    int64_t gathered = 0;
    std::vector<int64_t> ends(static_cast<size_t>(schedule.ranks), 0);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const auto r = static_cast<size_t>(rank);
        if (!times.end[r].empty()) ends[r] = times.end[r].back();
    }
    if (step.sizes.tied) {
        const bool coincide = schedule.input == schedule.output;
        const int in = schedule.input.owners().front();
        const int out = schedule.output.owners().front();
        const int64_t bytes =
            largest_part(schedule.input.vocab_size(), mesh.tensor) * step.sizes.hidden * 4;
        int64_t arrive = 0;
        if (!coincide) {
            // Both directions, one after the other in their common lane.
            arrive = std::max(ends[static_cast<size_t>(in)], ends[static_cast<size_t>(out)]) +
                     2 * PipelineCosts(step.costs).transfer_ns(Do::send, {{in, out}, -1}, bytes);
        }
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            if (schedule.input.rows(rank) == 0 && schedule.output.rows(rank) == 0) continue;
            const auto r = static_cast<size_t>(rank);
            const int64_t cost = rank_pass(rank, Reduce);
            ends[r] = std::max(ends[r], arrive) + cost;
            busy[r] += cost;
            // The other rank's gradient arrives after the activations are freed.
            LiveBytes& live = outcome.live[r];
            if (!coincide && bytes > live.total()) live = {.communication = bytes};
        }
    }
    std::vector<Exchange> exchanges;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const auto r = static_cast<size_t>(rank);
        exchanges.push_back(exchange_of(step, rank));
        busy[r] += rank_pass(rank, Report) + rank_pass(rank, Update);
        gathered = std::max(gathered, ends[r] + exchanges[r].sum_ns + rank_pass(rank, Report));
    }
    if (mesh.size() > 1) {
        std::vector<int> everyone(static_cast<size_t>(mesh.size()));
        std::iota(everyone.begin(), everyone.end(), 0);
        gathered += step.costs.transfer_ns(Do::all_gather, {everyone, -1}, step.sizes.report_bytes);
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const int64_t updated = gathered + rank_pass(rank, Update);
        outcome.step_ns =
            std::max(outcome.step_ns, updated + exchanges[static_cast<size_t>(rank)].gather_ns);
    }
    outcome.step_ns += step.costs.fixed_step_ns();
    const double all = static_cast<double>(std::accumulate(busy.begin(), busy.end(), int64_t{0}));
    outcome.bubble =
        1 - all / (static_cast<double>(outcome.step_ns) * static_cast<double>(schedule.ranks));
    return outcome;
}

StepModel model_of(const PlanOptions& options, const Candidate& candidate) {
    // A profile has the costs of all passes.
    const UnitCosts units = options.profile ? UnitCosts() : unit_costs(options, candidate);
    return step_model(options, units, candidate);
}

Schedule order_passes(const StepModel& step, const Candidate& candidate) {
    return make_order(
        {.name = candidate.schedule, .recompute = candidate.recompute != Recompute::none},
        step.generate);
}

PlanRow row_of(const PlanOptions& options, const Candidate& candidate, const StepModel& step,
               const Schedule& order, Evaluation evaluation) {
    const Outcome outcome =
        evaluation == Evaluation::simulation ? simulated(order, step, options) : timed(order, step);
    PlanRow row{.candidate = candidate, .step_ns = outcome.step_ns, .bubble = outcome.bubble};
    const double seconds = static_cast<double>(outcome.step_ns) * 1e-9;
    const double tokens =
        static_cast<double>(options.global_batch_size) * static_cast<double>(options.seq_length);
    row.tokens_per_second = tokens / seconds;
    if (!options.profile) {
        row.mfu = 3 * forward_flops_per_token(planned_config(options)) * tokens /
                  (seconds * options.gpus * options.device.peak_tflops.value * 1e12);
    }
    for (size_t rank = 0; rank < step.persistent.size(); ++rank) {
        PlannedMemory memory = step.persistent[rank];
        const LiveBytes& live = outcome.live[rank];
        memory.activations = live.activations;
        memory.vocabulary = live.vocabulary;
        memory.communication = live.communication;
        row.ranks.push_back(memory);
        if (memory.total() > row.worst.total()) row.worst = memory;
    }
    const double gib =
        options.memory_gib > 0 ? options.memory_gib : options.device.memory_gib.value;
    row.spare_bytes = static_cast<int64_t>(gib * static_cast<double>(1 << 30)) - row.worst.total();
    return row;
}

}  // namespace

Schedule order_passes(const PlanOptions& options, const Candidate& candidate) {
    return order_passes(model_of(options, candidate), candidate);
}

PlanRow evaluate(const PlanOptions& options, const Candidate& candidate, const Schedule& order,
                 Evaluation evaluation) {
    return row_of(options, candidate, model_of(options, candidate), order, evaluation);
}

PlanRow evaluate(const PlanOptions& options, const Candidate& candidate, Evaluation evaluation) {
    const StepModel step = model_of(options, candidate);
    return row_of(options, candidate, step, order_passes(step, candidate), evaluation);
}

RecordedRun record_step(const PlanOptions& options, const Candidate& candidate) {
    const StepModel step = model_of(options, candidate);
    const Lowered lowered = lower_candidate(order_passes(step, candidate), step, options);
    const std::vector<Program> programs = lowered.all();
    std::vector<PersistentBytes> persistent;
    for (int rank = 0; rank < lowered.mesh.size(); ++rank) {
        const PlannedMemory& memory =
            step.persistent[static_cast<size_t>(lowered.mesh.place(rank).pipeline)];
        persistent.push_back({.weights = static_cast<uint64_t>(memory.weights),
                              .gradients = static_cast<uint64_t>(memory.gradients),
                              .optimizer = static_cast<uint64_t>(memory.optimizer)});
    }
    return record(simulate(programs, step.costs, simulate_options(options)).timeline, programs,
                  to_string(candidate), persistent, lowered.mesh);
}

int64_t count_passes(const Candidate& candidate) {
    const int64_t ranks = candidate.mesh.pipeline;
    const int recomputes = candidate.recompute == Recompute::none ? 0 : 1;
    const int64_t transformer = ranks * candidate.chunks * (3 + recomputes);
    const int64_t vocabulary = sharded(candidate.vocab_mode) ? ranks * 4 : 4;
    return (transformer + vocabulary) * candidate.microbatches * candidate.mesh.slices();
}

}  // namespace vocabpipe
