// SPDX-License-Identifier: Apache-2.0
#include "src/train/profile/profile_machine.hpp"

#include "src/runtime/executor_internals.hpp"
#include "src/runtime/wait.hpp"
#include "src/step/random_batch.hpp"
#include "src/train/measure/measure_links.hpp"
#include "src/train/measure/pass_meter.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/plan/plan_profile.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "src/train/plan/run_rank.hpp"
#include "src/train/plan/training_plan.hpp"
#include "src/train/run/run_limits.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

namespace vocabpipe {

namespace {

/// The schedule with whole backwards, or with W right after I, whatever the family chose. Both are
/// valid where the other is: a split W runs at its earliest time, a whole backward has none.
Schedule with_backwards(Schedule schedule, bool split) {
    for (std::vector<Pass>& list : schedule.passes) {
        std::vector<Pass> result;
        for (Pass pass : list) {
            pass.with_next = false;  // pairs may have come apart
            const bool backward = pass.op == Op::B || pass.op == Op::I;
            if (pass.op == Op::W) continue;
            if (backward) pass.op = split ? Op::I : Op::B;
            result.push_back(pass);
            if (backward && split) result.push_back({Op::W, pass.stage, pass.microbatch});
        }
        list = std::move(result);
    }
    return schedule;
}

void check_profiled(const TrainOptions& options, int ranks) {
    check_options(options, ranks);
    for (const auto& [flag, kind, size] :
         {std::tuple("--context-parallel-size ", "context", options.context_parallel_size),
          {"--expert-model-parallel-size ", "expert", options.expert_model_parallel_size},
          {"--expert-tensor-parallel-size ", "expert", options.expert_tensor_parallel_size}}) {
        if (size == 1) continue;
        throw UsageError(flag + std::to_string(size) + ": profiles describe ranks without " + kind +
                         " ranks; use 1");
    }
}

class Profiler {
public:
    Profiler(Communicator& communicator, const TrainOptions& options,
             const MeasureProgress& progress)
        : communicator_(communicator),
          options_(options),
          progress_(progress),
          rank_(communicator.rank()),
          limits_(options, rank_) {}

    Profile run() {
        check_same_options(communicator_, options_);
        communicator_.agree([this] { check_profiled(options_, communicator_.size()); });
        std::vector<RankPlacement> placements = find_placements(communicator_);
        device_ = open_device(communicator_, options_, placements);
        communicator_.agree([&] {
            plan_.emplace(options_, std::move(placements), device_->operators(),
                          device_->communication_order());
            check_memory(*plan_, rank_);
            for (const bool split : {false, true}) {
                steps_[split] = plan_step(options_.model, plan_->partition(),
                                          with_backwards(plan_->schedule(), split), plan_->costs(),
                                          {.reductions = options_.reductions});
            }
        });
        trained_ = allocate_rank(communicator_, options_, *plan_, *device_);
        batch_.emplace(options_.model, options_.micro_batch_size, plan_->microbatches(),
                       options_.seed);
        const TableCosts whole = time_passes(steps_[false], "steps with whole backwards");
        TableCosts costs = time_passes(steps_[true], "steps with split backwards");
        for (size_t stage = 0; stage < costs.stage_ns.size(); ++stage) {
            for (const Op op : {Op::F, Op::B}) {
                costs.stage_ns[stage][static_cast<size_t>(op)] =
                    whole.stage_ns[stage][static_cast<size_t>(op)];
            }
        }
        costs.rank_ns = whole.rank_ns;
        costs.fixed_ns = whole.fixed_ns;
        costs.communication = plan_->costs().communication;
        costs.local_bytes_per_ns = whole.local_bytes_per_ns;
        std::vector<LinkSample> links = time_links(costs);
        derive_missing(costs);  // all passes ran, but stages without layers may have cost 0
        return profile_of(*plan_, costs, {}, std::move(links));
    }

private:
    /// A trainer's step, but with the batch made beforehand.
    TableCosts time_passes(const StepPlan& plan, const char* phase) {
        trained_->load(std::span(&plan, 1));
        PassMeter meter;
        for (int64_t step = 0; step <= options_.train_iters; ++step) {
            const int64_t begin = now_ns();
            trained_->train_step(batch_->microbatches(), batch_->counted_tokens(), options_.lr,
                                 {.stop_request = limits_.request(false)});
            meter.add_step(trained_->executor().timeline(), trained_->executor().program(),
                           now_ns() - begin);
            end_if_told();
            if (progress_) progress_(phase, step, options_.train_iters);
        }
        return meter.gather(communicator_, plan_->mesh(), plan_->schedule().stages, false).wall;
    }

    /// Ends all ranks after the same step, whichever of them got the signal.
    void end_if_told() {
        const int64_t step = trained_->position().step;
        const double requests = trained_->report().stop_requests;
        if (limits_.reason(step, requests) != StopReason::terminated) return;
        const int signal = limits_.ending_signal();
        throw AgreedError(exit_code_of(signal), name_of_signal(signal) + ": ended after step " +
                                                    std::to_string(step) +
                                                    "; no profile was written");
    }

    std::vector<LinkSample> time_links(TableCosts& costs) {
        const int64_t boundary = plan_->boundary_bytes();
        const int64_t statistics = plan_->sizes().tokens * plan_->sizes().statistics * 4;
        std::vector<int64_t> bytes{8, 4096, 65536, int64_t{1} << 20, boundary, statistics};
        std::sort(bytes.begin(), bytes.end());
        bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
        std::vector<LinkSample> links =
            measure_links(communicator_, *device_,
                          ExecutorInternals::transport(trained_->executor()),
                          {.bytes = bytes, .collectives = true})
                .median;
        fit_links(links, boundary, costs);
        return links;
    }

    Communicator& communicator_;
    const TrainOptions& options_;
    const MeasureProgress& progress_;
    int rank_;
    RunLimits limits_;
    std::unique_ptr<Device> device_;
    std::optional<TrainingPlan> plan_;
    std::array<StepPlan, 2> steps_;  ///< [whether backwards are split]
    std::unique_ptr<TrainedRank> trained_;
    std::optional<RandomBatch> batch_;
};

}  // namespace

Profile profile_machine(Communicator& communicator, const TrainOptions& options,
                        const MeasureProgress& progress) {
    return Profiler(communicator, options, progress).run();
}

}  // namespace vocabpipe
