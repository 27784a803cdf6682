// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/trained_rank.hpp"

#include "src/step/length_programs.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace vocabpipe {

TrainedRank::TrainedRank(Communicator& communicator, Device& device, const StepPlan& plan,
                         const TrainedRankOptions& options)
    : TrainedRank(communicator, device, std::span(&plan, 1), options) {}

TrainedRank::TrainedRank(Communicator& communicator, Device& device,
                         std::span<const StepPlan> plans, const TrainedRankOptions& options)
    : communicator_(communicator),
      mesh_(plans.front().mesh()),
      stored_(plans.front().partition.records.columns.empty()
                  ? TokenRecords()
                  : plans.front().partition.made_records()),
      most_length_programs_(options.length_programs) {
    const StepPlan& plan = plans.front();
    const int rank = communicator.rank();
    communicator.agree([&] {
        model_ =
            std::make_unique<ModelRank>(plan.model, plan.partition, plan.schedule, rank, device);
        if (options.change_model) options.change_model(*model_);
        if (!plan.partition.optimizer) return;
        optimizer_ =
            std::make_unique<OptimizerStep>(*model_, plan.schedule, rank, options.optimizer);
    });
    // Collective itself, so not inside the agreement.
    executor_ = std::make_unique<Executor>(
        communicator, device, model_->modules(optimizer_.get()), plan.sizes,
        ExecutorOptions{.threads = plan.partition.threads_per_rank,
                        .poison_dead_buffers = options.poison_dead_buffers,
                        .abandon = options.abandon});
    load(plans);
    communicator.agree([&] {
        if (options.initialise) model_->initialise(executor_->context(), options.seed);
    });
}

TrainedRank::~TrainedRank() = default;

void TrainedRank::load(std::span<const StepPlan> plans) {
    for (const StepPlan& plan : plans) {
        if (plan.partition.zero_stage == plans.front().partition.zero_stage) continue;
        throw UsageError("TrainedRank: its plans have the ZeRO stages " +
                         std::to_string(plans.front().partition.zero_stage) + " and " +
                         std::to_string(plan.partition.zero_stage) +
                         ", but share one model; give all of them the same StepSchedule::zero");
    }
    for (size_t i = plans.size(); i-- > 0;) executor_->load(plans[i].lowered, i);
    if (plans.front().partition.shorter_lengths.empty()) return;
    length_programs_ = std::make_unique<LengthPrograms>(
        std::vector<StepPlan>(plans.begin(), plans.end()), most_length_programs_);
}

void TrainedRank::train_step(const StepBatch& batch, double learning_rate,
                             const TrainStepOptions& options) {
    train_step(batch.microbatches(), batch.counted_tokens(), learning_rate, options);
}

void TrainedRank::train_step(std::span<const Microbatch> microbatches, int64_t counted_tokens,
                             double learning_rate, const TrainStepOptions& options) {
    const auto has_weight = [](const Microbatch& m) { return m.loss_weight.has_value(); };
    if (mesh_.context > 1 && !std::ranges::all_of(microbatches, has_weight)) {
        throw UsageError(
            "train_step: context ranks do not see the gradient factors of each other's tokens; set "
            "Microbatch::loss_weight, as StepBatch does");
    }
    const int64_t step = position_.step + 1;
    optimizer().begin_step({.step = step,
                            .learning_rate = static_cast<float>(learning_rate),
                            .counted_tokens = counted_tokens,
                            .stop_request = options.stop_request});
    executor_->set_step(step);
    run_step(microbatches, options.plan);
    position_.step = step;
    for (const Microbatch& m : microbatches) position_.consumed_samples += m.sequences * mesh_.data;
}

StepResult TrainedRank::report() const {
    return optimizer().result();
}

OptimizerStep& TrainedRank::optimizer() const {
    if (optimizer_ != nullptr) return *optimizer_;
    throw UsageError("train_step: the plan has no optimizer; set StepWork::optimizer to true");
}

void TrainedRank::run(std::span<const Microbatch> microbatches, size_t plan) {
    run_step(microbatches, plan);
}

void TrainedRank::run_step(std::span<const Microbatch> microbatches, size_t plan) {
    program_ = plan;
    tokens_of_microbatch_.clear();
    for (const Microbatch& m : microbatches) {
        tokens_of_microbatch_.push_back(static_cast<size_t>(m.size()));
    }
    if (length_programs_) {
        std::vector<int64_t> seq_lengths;
        for (const Microbatch& m : microbatches) {
            seq_lengths.push_back(m.seq_length * mesh_.context);
        }
        program_ = length_programs_->find(*executor_, plan, seq_lengths);
    }
    executor_->run_step(microbatches, program_);
}

std::vector<float> TrainedRank::records(TokenRecord record) {
    if (!stored_.has(record)) {
        throw UsageError("record " + std::string(to_string(record)) +
                         " is not stored; ask for it in StepWork::records");
    }
    std::vector<float> mine;
    communicator_.agree([&] {
        const ConstTensor all = output() != nullptr ? output()->records() : ConstTensor();
        if (!all) return;
        const auto numbers = static_cast<size_t>(stored_.numbers_of(record));
        const auto first = static_cast<size_t>(stored_.index_of(record));
        const float* of_microbatch = all.as<float>();
        for (const size_t tokens : tokens_of_microbatch_) {
            const size_t to = mine.size();
            mine.resize(to + numbers * tokens);
            device().download(reinterpret_cast<const std::byte*>(of_microbatch + first * tokens),
                              std::as_writable_bytes(std::span(mine).subspan(to)));
            of_microbatch += stored_.size() * all.stride;
        }
    });
    const std::vector<std::vector<std::byte>> by_rank =
        communicator_.all_gather(std::as_bytes(std::span(mine)));
    const Mesh::Place here = mesh_.place(communicator_.rank());
    std::vector<float> all;
    for (int rank = 0; rank < std::ssize(by_rank); ++rank) {
        const std::vector<std::byte>& found = by_rank[static_cast<size_t>(rank)];
        const Mesh::Place place = mesh_.place(rank);
        if (found.empty() || place.data != here.data || place.context != here.context) continue;
        const std::span<const float> values(reinterpret_cast<const float*>(found.data()),
                                            found.size() / sizeof(float));
        if (record != TokenRecord::label_rank || all.empty()) {
            all.assign(values.begin(), values.end());
        } else {  // each rank has counted its own rows of the vocabulary
            std::ranges::transform(all, values, all.begin(), std::plus());
        }
    }
    return all;
}

std::vector<float> TrainedRank::results(const std::string& name) {
    std::vector<float> mine;
    communicator_.agree([&] {
        const ConstTensor all = model_->stage_result(name);
        if (!all) return;
        mine.resize(static_cast<size_t>(all.size()));
        device().download(all.as<std::byte>(), std::as_writable_bytes(std::span(mine)));
    });
    const std::vector<std::vector<std::byte>> by_rank =
        communicator_.all_gather(std::as_bytes(std::span(mine)));
    const Mesh::Place here = mesh_.place(communicator_.rank());
    for (int rank = 0; rank < std::ssize(by_rank); ++rank) {
        const std::vector<std::byte>& found = by_rank[static_cast<size_t>(rank)];
        if (found.empty() || mesh_.place(rank).data != here.data) continue;
        const auto* const first = reinterpret_cast<const float*>(found.data());
        return {first, first + found.size() / sizeof(float)};
    }
    throw UsageError("results: the model has no result " + name +
                     "; name it by ModelGraph::result(), and run a step first");
}

}  // namespace vocabpipe
