// SPDX-License-Identifier: Apache-2.0
#include "src/train/plan/training_plan.hpp"

#include "src/model/parameter_groups.hpp"
#include "src/model/parameters.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/plan/plan_profile.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kUnit = 12;  // so that halves and thirds of small ratios stay whole

/// The costs in --schedule-costs F,B; 1,2 if they are not given.
PassCosts given_costs(const TrainOptions& options, Recompute recompute) {
    const auto [forward, backward] =
        options.schedule_costs.value_or(std::pair<int64_t, int64_t>{1, 2});
    PassCosts costs = PassCosts::uniform(kUnit * forward, kUnit * backward, kUnit * forward / 3);
    if (recompute == Recompute::selective) {
        costs.stage.front()[static_cast<size_t>(Op::R)] = 1;  // next to nothing
    }
    return costs;
}

/// What passes cost by the FLOPs of their layers, until they are measured. Nothing is known of
/// links.
PassCosts costs_by_flops(const StepPlan& placed) {
    PassCosts costs = PassCosts::of(placed.costs, placed.sizes, placed.schedule);
    costs.hop = costs.c0 = costs.c1 = costs.reduce = costs.gradient = 0;
    return costs;
}

bool is_schedule_file(const std::string& name) {
    return name.ends_with(".csv") || name.ends_with(".json");
}

}  // namespace

TrainingPlan::TrainingPlan(const TrainOptions& options, std::vector<RankPlacement> placements,
                           const kernels::Operators& operators, CommunicationOrder communication,
                           std::vector<int64_t> shorter_lengths)
    : options_(options),
      placements_(std::move(placements)),
      mesh_(mesh_of(options, static_cast<int>(placements_.size()))),
      batch_sizes_(options.global_batch_size, options.ramp_up,
                   options.micro_batch_size * mesh_.data),
      cluster_{.ranks = mesh_.pipeline,
               .replicas = mesh_.data,
               .context = mesh_.context,
               .tensor = mesh_.tensor,
               .expert = mesh_.expert,
               .expert_tensor = options.expert_tensor_parallel_size,
               .threads_per_rank = options.threads_per_rank,
               .operators = &operators,
               .communication = communication},
      shorter_lengths_(std::move(shorter_lengths)) {
    if (cluster_.threads_per_rank == 0) {
        cluster_.threads_per_rank = placements_.front().threads();
        for (const RankPlacement& p : placements_) {
            cluster_.threads_per_rank = std::min(cluster_.threads_per_rank, p.threads());
        }
    }
    if (has_lengths() && !options_.profile.empty()) {
        throw UsageError("--profile " + options_.profile +
                         ": measures passes of microbatches of one length; remove the flag or "
                         "--length-buckets");
    }
    if (!options_.layout.empty()) read_layout();
    if (is_schedule_file(options_.schedule)) read_file();
    recompute_ =
        granularity(options_.recompute, file_ && has_recomputation(*file_), options_.schedule);
    const Schedule placed = place().schedule;
    check_layers(placed);
    if (layout_) layers_ = layout_->layers;
    if (options_.end_layers.given()) {
        layers_ =
            layers_with_ends(options_.model.num_layers, placed.rank_of_stage, options_.end_layers);
    }
    if (!options_.cost_file.empty()) cluster_.costs = costs_of_file(options_, place());
    if (!options_.schedule_costs && options_.cost_file.empty()) {
        first_costs_ = costs_by_flops(place());
    }
    if (!options_.overlap_table.empty()) {
        cluster_.overlap = read_overlap_table(options_.overlap_table);
    }
    make_steps();
}

const PassCosts& TrainingPlan::rebuild(const TableCosts& measured) {
    cluster_.costs = measured;
    make_steps();
    return steps_.front().order_costs;
}

void TrainingPlan::make_steps() {
    const bool trains = !options_.evaluation.skip_train;
    std::vector<StepPlan> steps;
    const auto add = [&](int microbatches) {
        steps.push_back(plan_step(options_.model, cluster_, order(), work(microbatches)));
    };
    add(microbatches());
    if (trains) {
        for (const int m : batch_sizes_.smaller()) add(m);
    }
    training_steps_ = steps.size();
    for (size_t i = 0; i < training_steps_ && trains && options_.loss.compares_pairs(); ++i) {
        steps.push_back(forward_of(steps[i]));
    }
    if (trains && options_.replay_interval > 0) {
        StepWork replayed = work(replayed_microbatches());
        replayed.optimizer = false;
        replay_index_ = steps.size();
        steps.push_back(plan_step(options_.model, cluster_, order(), replayed));
    }
    if (trains && evaluates(options_)) steps.push_back(forward_of(steps.front()));
    steps_ = std::move(steps);
}

StepPlan TrainingPlan::forward_of(const StepPlan& training) const {
    return plan_step(training.model, training.partition, evaluation_schedule(training.schedule),
                     training.costs,
                     {.receive_ahead = options_.receive_ahead,
                      .reductions = options_.reductions,
                      .pieces = training.lowering.pieces,
                      .zero = training.lowering.zero});
}

/// As many as fill the pipeline, so that every rank runs all its passes and no family of schedules
/// refuses the number; all of them where these do not divide the batch, or a file lists the passes.
int TrainingPlan::replayed_microbatches() const {
    const std::vector<int> smaller = batch_sizes_.smaller();
    const int least = smaller.empty() ? microbatches() : smaller.front();
    return file_ || least % mesh_.pipeline != 0 ? least : mesh_.pipeline;
}

StepPlan TrainingPlan::place() const {
    return place_step(options_.model, cluster_, order(), work(microbatches()));
}

StepWork TrainingPlan::work(int microbatches) const {
    const bool trains = !options_.evaluation.skip_train;
    return {.microbatches = microbatches,
            .micro_batch_size = options_.micro_batch_size,
            .shorter_lengths = shorter_lengths_,
            .evaluation = !trains,
            .optimizer = trains,
            .training = trains,
            .records = {.columns = trains && options_.loss.compares_pairs()
                                       ? TokenRecords{TokenRecord::logprob}
                                       : TokenRecords()},
            .loss = trains ? options_.loss.make() : nullptr,
            .frozen = trains ? frozen_parameters(options_.optimizer.groups,
                                                 logical_parameters(options_.model))
                             : std::vector<bool>()};
}

StepSchedule TrainingPlan::order() const {
    RuleOptions rule = options_.rule;
    rule.chunks = chunks();
    if (!cluster_.costs && !first_costs_) rule.broadcast_margin *= kUnit;
    return {.name = options_.schedule,
            .passes = file_ ? &*file_ : nullptr,
            .vocab_mode = options_.vocab_mode,
            .rule = rule,
            .recompute = recompute_,
            .layers_per_stage = layers_,
            .costs = first_costs_ ? *first_costs_ : given_costs(options_, recompute_),
            .receive_ahead = options_.receive_ahead,
            .reductions = options_.reductions,
            .zero = options_.zero,
            .pieces = options_.blocking_exchanges ? 1 : options_.tile_pieces,
            .moe_row_factor = options_.moe_row_factor,
            .context_form = options_.context_form,
            .overlap_pairs = !options_.blocking_exchanges};
}

size_t TrainingPlan::index_of(int microbatches) const {
    const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const StepPlan& step) {
        return step.microbatches() == microbatches;
    });
    return static_cast<size_t>(found - steps_.begin());
}

void TrainingPlan::read_layout() {
    layout_ = parse_stage_layout(options_.layout, {.ranks = mesh_.pipeline,
                                                   .chunks = options_.rule.chunks,
                                                   .num_layers = options_.model.num_layers,
                                                   .mtp_layers = options_.model.mtp_num_layers,
                                                   .vocab_mode = options_.vocab_mode});
    if (layout_->mtp_layers > 0 && layout_->mtp_stage + 1 != std::ssize(layout_->layers)) {
        throw UsageError("--pipeline-model-parallel-layout " + options_.layout +
                         ": has m before the last stage, which only plan can; put m into the last "
                         "stage, before L or V");
    }
}

void TrainingPlan::read_file() {
    ScheduleFile file = read_schedule(options_.schedule, {.ranks = mesh_.pipeline});
    const auto refuse = [this](const std::string& what) {
        throw InputFileError(options_.schedule + ": " + what);
    };
    if (options_.ramp_up) {
        refuse("has " + std::to_string(file.schedule.microbatches) +
               " microbatches, but --rampup-batch-size needs schedules with several numbers of "
               "microbatches; remove the flag or use a built-in schedule");
    }
    if (file.schedule.microbatches != microbatches()) {
        refuse("has " + std::to_string(file.schedule.microbatches) +
               " microbatches, but --global-batch-size " +
               std::to_string(options_.global_batch_size) + " / --micro-batch-size " +
               std::to_string(options_.micro_batch_size) + " gives " +
               std::to_string(microbatches()) + "; both must be equal");
    }
    if (file.schedule.forward_only()) refuse("has no backward passes, which training requires");
    const int64_t rows = file.schedule.output.vocab_size();
    if (rows != 0 && rows != options_.model.vocab_size) {
        refuse("shards " + std::to_string(rows) + " vocabulary rows, but --vocab-size is " +
               std::to_string(options_.model.vocab_size) + "; both must be equal");
    }
    if (options_.rule.chunks != 0 || options_.layers_per_chunk != 0) {
        refuse(
            "already defines the stages of each rank; remove --chunks and "
            "--num-layers-per-virtual-pipeline-stage");
    }
    file_ = std::move(file.schedule);
    notes_ = std::move(file.notes);
}

int TrainingPlan::chunks() const {
    if (layout_) return static_cast<int>(layout_->layers.size()) / mesh_.pipeline;
    if (options_.layers_per_chunk == 0) return options_.rule.chunks;
    const int64_t round = int64_t{options_.layers_per_chunk} * mesh_.pipeline;
    if (options_.model.num_layers % round == 0) {
        return static_cast<int>(options_.model.num_layers / round);
    }
    throw UsageError(
        "--num-layers-per-virtual-pipeline-stage " + std::to_string(options_.layers_per_chunk) +
        ": --num-layers " + std::to_string(options_.model.num_layers) + " is not a multiple of " +
        std::to_string(round) + " (that many on each of " + std::to_string(mesh_.pipeline) +
        " ranks); use --chunks, which allows uneven stages");
}

int64_t TrainingPlan::boundary_bytes() const {
    return sizes().boundary_rows() * sizes().hidden * size_of(sizes().dtype);
}

/// UsageError if there are fewer layers than stages, unless flags say which stages have none.
void TrainingPlan::check_layers(const Schedule& placed) const {
    if (layout_ && std::ssize(layout_->layers) != placed.stages) {
        throw UsageError("--pipeline-model-parallel-layout " + options_.layout + ": has " +
                         std::to_string(layout_->layers.size()) + " stages, but the schedule has " +
                         std::to_string(placed.stages) + "; both must be equal");
    }
    if (options_.model.num_layers >= placed.stages || layout_ || options_.end_layers.given() ||
        options_.vocab_mode == VocabMode::redistributed) {
        return;
    }
    throw UsageError("--num-layers " + std::to_string(options_.model.num_layers) +
                     ": must be at least the number of stages, " + std::to_string(placed.stages) +
                     " (" + options_.schedule + ", " +
                     std::to_string(placed.stages / placed.ranks) +
                     " per rank); use more layers or fewer stages");
}

bool TrainingPlan::one_process() const {
    return options_.ranks_are_threads && !placement(0).memory;
}

const RankPlacement* TrainingPlan::shared_cores() const {
    for (const RankPlacement& p : placements_) {
        if (!p.memory && p.ranks_sharing * threads() > p.cores) return &p;
    }
    return nullptr;
}

}  // namespace vocabpipe
