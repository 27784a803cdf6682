// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/training_plan.hpp"

#include "src/model/parameters.hpp"
#include "src/support/text_layout.hpp"
#include "src/train/evaluate/evaluation.hpp"
#include "src/train/measure/process_memory.hpp"
#include "src/train/measure/run_report.hpp"
#include "src/train/options/check_options.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kUnit = 12;  // so that halves and thirds of small ratios stay whole

std::string mib_text(int64_t bytes) {
    return std::to_string((bytes + (1 << 19)) >> 20) + " MiB";
}

/// Of --schedule-costs F,B, or as good a guess.
PassCosts given_costs(const TrainOptions& options, Recompute recompute) {
    const auto [forward, backward] =
        options.schedule_costs.value_or(std::pair<int64_t, int64_t>{1, 2});
    PassCosts costs = PassCosts::uniform(kUnit * forward, kUnit * backward, kUnit * forward / 3);
    if (recompute == Recompute::selective) {
        costs.stage.front()[static_cast<size_t>(Op::R)] = 1;  // next to nothing
    }
    return costs;
}

bool is_schedule_file(const std::string& name) {
    return name.ends_with(".csv") || name.ends_with(".json");
}

double parameter_count(const ModelConfig& config) {
    double count = 0;
    for (const LogicalParameter& p : logical_parameters(config)) {
        count += static_cast<double>(p.rows * p.cols);
    }
    return count;
}

}  // namespace

TrainingPlan::TrainingPlan(const TrainOptions& options, std::vector<RankPlacement> placements,
                           const kernels::Operators& operators, CommunicationOrder communication)
    : options_(options),
      placements_(std::move(placements)),
      mesh_(mesh_of(options, static_cast<int>(placements_.size()))),
      batch_sizes_(options.global_batch_size, options.ramp_up,
                   options.micro_batch_size * mesh_.data),
      communication_(communication) {
    threads_ = options_.threads_per_rank;
    if (threads_ == 0) {
        threads_ = placements_.front().threads();
        for (const RankPlacement& p : placements_) threads_ = std::min(threads_, p.threads());
    }
    if (!options_.layout.empty()) read_layout();
    if (is_schedule_file(options_.schedule)) read_file();
    recompute_ = granularity(options_.recompute, recomputes_by_itself(), options_.schedule);
    make_schedules(given_costs(options_, recompute_), kUnit * options_.broadcast_margin);
    check_layers();
    partition_ = {.layers_per_stage = layers_of_stages(),
                  .micro_batch_size = options_.micro_batch_size,
                  .replicas = mesh_.data,
                  .threads_per_rank = threads_,
                  .recompute = recompute_,
                  .optimizer = !options_.evaluation.skip_train,
                  .training = !options_.evaluation.skip_train,
                  .operators = &operators};
    sizes_ = step_sizes(options_.model, partition_, schedule());
    if (options_.cost_file.empty()) {
        costs_ = flop_costs(options_.model, partition_, schedule());
        costs_.replicas = mesh_.data;
        costs_.communication = communication_;
        lower_all();
    } else {
        rebuild(costs_of_file());
    }
}

std::vector<int> TrainingPlan::layers_of_stages() const {
    if (layout_) return layout_->layers;
    const ModelConfig& m = options_.model;
    if (options_.end_layers.given()) {
        return layers_with_ends(m.num_layers, schedule().rank_of_stage, options_.end_layers);
    }
    // Of a layer's F and B; its R comes on top.
    const PassCosts costs = given_costs(options_, recompute_);
    const auto trained = static_cast<double>(costs.mean(Op::F) + costs.mean(Op::B));
    const double again = recompute_ == Recompute::none ? 0 : static_cast<double>(costs.mean(Op::R));
    return layers_per_stage(m.num_layers, schedule().rank_of_stage, options_.vocab_mode,
                            output_layer_in_layers(m) * trained / (trained + again));
}

PassCosts TrainingPlan::rebuild(const TableCosts& measured) {
    costs_ = measured;
    costs_.communication = communication_;
    costs_.replicas = 1;  // the schedule is one pipeline's
    PassCosts costs = PassCosts::of(costs_, sizes_, schedule());
    costs_.replicas = mesh_.data;
    make_schedules(costs, options_.broadcast_margin);
    lower_all();
    return costs;
}

void TrainingPlan::make_schedules(const PassCosts& costs, int64_t broadcast_margin) {
    steps_.clear();
    const auto add = [this](int microbatches, Schedule schedule) {
        steps_.push_back(
            {.microbatches = microbatches, .schedule = std::move(schedule), .programs = {}});
    };
    Schedule full = schedule_for(costs, broadcast_margin, microbatches());
    Schedule evaluation = evaluation_schedule(full);
    if (!options_.evaluation.skip_train) {
        add(microbatches(), std::move(full));
        for (const int m : batch_sizes_.smaller()) add(m, schedule_for(costs, broadcast_margin, m));
    }
    if (evaluates(options_)) add(microbatches(), std::move(evaluation));
}

void TrainingPlan::lower_all() {
    for (PlannedStep& step : steps_) {
        const LowerOptions how{.receive_ahead = options_.receive_ahead,
                               .reductions = options_.reductions};
        step.programs = options_.receive_ahead == 0
                            ? lower_receiving_early(step.schedule, sizes_, costs_, how).programs
                            : lower(step.schedule, sizes_, costs_, how);
    }
}

size_t TrainingPlan::slot_of(int microbatches) const {
    const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const PlannedStep& step) {
        return step.microbatches == microbatches;
    });
    return static_cast<size_t>(found - steps_.begin());
}

void TrainingPlan::read_layout() {
    const std::string flag = "--pipeline-model-parallel-layout " + options_.layout;
    layout_ = parse_stage_layout(options_.layout, {.ranks = mesh_.pipeline,
                                                   .chunks = options_.chunks,
                                                   .num_layers = options_.model.num_layers});
    if (layout_->sharded_input != layout_->sharded_output) {
        throw UsageError(flag +
                         ": shards one of embedding and output layer; write V for both, or E and "
                         "L");
    }
    const bool whole =
        options_.vocab_mode == VocabMode::none || options_.vocab_mode == VocabMode::redistributed;
    if (layout_->sharded_output == whole) {
        throw UsageError(flag + ": does not fit --vocab-mode " +
                         std::string(to_string(options_.vocab_mode)) + "; write " +
                         (whole ? "E and L for whole layers" : "V for sharded ones") +
                         ", or choose another mode");
    }
}

void TrainingPlan::read_file() {
    ScheduleFile file = read_schedule(options_.schedule, {.ranks = mesh_.pipeline});
    const auto refuse = [this](const std::string& what) {
        throw InputFileError(options_.schedule + ": " + what);
    };
    if (options_.ramp_up) {
        refuse("has " + std::to_string(file.schedule.microbatches) +
               " microbatches, --rampup-batch-size needs schedules of several numbers; leave it "
               "out, or use a built-in schedule");
    }
    if (file.schedule.microbatches != microbatches()) {
        refuse("has " + std::to_string(file.schedule.microbatches) +
               " microbatches; --global-batch-size " + std::to_string(options_.global_batch_size) +
               " / --micro-batch-size " + std::to_string(options_.micro_batch_size) + " gives " +
               std::to_string(microbatches()) + ", both must be the same");
    }
    if (file.schedule.forward_only()) refuse("has no backward passes; training needs them");
    const int64_t rows = file.schedule.output.vocab_size();
    if (rows != 0 && rows != options_.model.vocab_size) {
        refuse("shards " + std::to_string(rows) + " vocabulary rows, --vocab-size is " +
               std::to_string(options_.model.vocab_size) + "; both must be the same");
    }
    if (options_.chunks != 0 || options_.layers_per_chunk != 0) {
        refuse(
            "says by itself which stages a rank has; leave out --chunks and "
            "--num-layers-per-virtual-pipeline-stage");
    }
    file_ = std::move(file.schedule);
    notes_ = std::move(file.notes);
}

Schedule TrainingPlan::schedule_for(const PassCosts& costs, int64_t broadcast_margin,
                                    int microbatches) const {
    const auto order = [&](const PassCosts& under) {
        return make_order(under, broadcast_margin, microbatches);
    };
    const bool inserts = recompute_ != Recompute::none && !recomputes_by_itself();
    return inserts ? with_recomputation(costs, order) : order(costs);
}

bool TrainingPlan::recomputes_by_itself() const {
    return file_ && has_recomputation(*file_);
}

Schedule TrainingPlan::make_order(const PassCosts& costs, int64_t broadcast_margin,
                                  int microbatches) const {
    if (file_) {
        return finish_schedule(*file_, {.vocab_mode = options_.vocab_mode,
                                        .vocab_size = options_.model.vocab_size,
                                        .costs = costs,
                                        .search_moves = options_.search_moves});
    }
    return make_schedule(options_.schedule, {.ranks = mesh_.pipeline,
                                             .microbatches = microbatches,
                                             .vocab_mode = options_.vocab_mode,
                                             .vocab_size = options_.model.vocab_size,
                                             .chunks = chunks(),
                                             .warm_up_depth = options_.warm_up_depth,
                                             .group_size = options_.group_size,
                                             .memory_limit = options_.memory_limit,
                                             .costs = costs,
                                             .broadcast_margin = broadcast_margin,
                                             .search_moves = options_.search_moves});
}

int TrainingPlan::chunks() const {
    if (layout_) return static_cast<int>(layout_->layers.size()) / mesh_.pipeline;
    if (options_.layers_per_chunk == 0) return options_.chunks;
    const int64_t round = int64_t{options_.layers_per_chunk} * mesh_.pipeline;
    if (options_.model.num_layers % round == 0) {
        return static_cast<int>(options_.model.num_layers / round);
    }
    throw UsageError(
        "--num-layers-per-virtual-pipeline-stage " + std::to_string(options_.layers_per_chunk) +
        ": --num-layers " + std::to_string(options_.model.num_layers) + " is no multiple of " +
        std::to_string(round) + ", that many on each of " + std::to_string(mesh_.pipeline) +
        " ranks; use --chunks, which allows uneven stages");
}

int64_t TrainingPlan::boundary_bytes() const {
    return sizes_.tokens * sizes_.hidden * size_of(sizes_.dtype);
}

PersistentBytes TrainingPlan::persistent(int rank) const {
    return persistent_bytes(options_.model, partition_, schedule(), rank);
}

PersistentBytes TrainingPlan::persistent_alone(int pipeline_rank) const {
    ModelPartition alone = partition_;
    alone.replicas = 1;
    return persistent_bytes(options_.model, alone, schedule(), pipeline_rank);
}

int64_t TrainingPlan::snapshot_bytes(int rank) const {
    if (!options_.async_save) return 0;
    return static_cast<int64_t>(stored_bytes(options_.model, partition_, schedule(), rank));
}

bool TrainingPlan::one_process() const {
    return options_.ranks_are_threads && !placement(0).memory;
}

int64_t TrainingPlan::kernel_bytes(int rank) const {
    return placement(rank).memory || (one_process() && rank != 0) ? 0 : kHostKernelBytes;
}

int64_t TrainingPlan::predicted_bytes(int rank) const {
    const auto& memory = placement(rank).memory;
    int64_t bytes =
        memory ? static_cast<int64_t>(memory->most_allocated) : placement(rank).resident_bytes;
    for (int other = 0; other < ranks(); ++other) {
        if (other != rank && !one_process()) continue;
        bytes += planned_bytes(other) + kernel_bytes(other);
    }
    return bytes;
}

int64_t TrainingPlan::planned_bytes(int rank) const {
    uint64_t arena = 0;  // of all programs, which share it
    for (const PlannedStep& step : steps_) {
        arena = std::max(arena, step.programs[static_cast<size_t>(rank)].arena_bytes);
    }
    return persistent(rank).total() + static_cast<int64_t>(arena) +
           (placement(rank).memory ? 0 : snapshot_bytes(rank));
}

/// Several stages per rank need as many layers, unless flags say which have none.
void TrainingPlan::check_layers() const {
    if (layout_ && std::ssize(layout_->layers) != schedule().stages) {
        throw UsageError("--pipeline-model-parallel-layout " + options_.layout + ": has " +
                         std::to_string(layout_->layers.size()) + " stages, the schedule has " +
                         std::to_string(schedule().stages) + "; both must be the same");
    }
    if (options_.model.num_layers >= schedule().stages || layout_ || options_.end_layers.given() ||
        options_.vocab_mode == VocabMode::redistributed) {
        return;
    }
    throw UsageError("--num-layers " + std::to_string(options_.model.num_layers) +
                     ": must be at least the number of stages, " +
                     std::to_string(schedule().stages) + " (" + options_.schedule + ", " +
                     std::to_string(schedule().stages / schedule().ranks) +
                     " per rank); use more layers or fewer stages");
}

/// Of --schedule-costs FILE, which must have measured this very split.
TableCosts TrainingPlan::costs_of_file() const {
    const Profile profile = read_profile(options_.cost_file);
    const auto refuse = [&](const std::string& what, const auto& theirs, const auto& ours) {
        if (theirs == ours) return;
        throw UsageError("--schedule-costs " + options_.cost_file + ": was measured with " + what +
                         "; measure with the flags of this run, or use auto");
    };
    const auto number = [&](const std::string& what, int64_t theirs, int64_t ours) {
        refuse(what + " " + std::to_string(theirs) + ", not " + std::to_string(ours), theirs, ours);
    };
    number("ranks", profile.ranks(), schedule().ranks);
    number("stages", profile.stages(), schedule().stages);
    number("tokens per microbatch", profile.sizes.tokens, sizes_.tokens);
    number("hidden size", profile.sizes.hidden, sizes_.hidden);
    number("feed-forward size", profile.model.ffn_hidden, options_.model.ffn_hidden_size);
    number("attention heads", profile.model.heads, options_.model.num_attention_heads);
    number("vocabulary", profile.model.vocab, options_.model.vocab_size);
    if (recompute_ != Recompute::none) {
        const Recompute theirs = recomputed_in(profile);
        refuse("--recompute-granularity " + std::string(to_string(theirs)) + ", not " +
                   std::string(to_string(recompute_)),
               theirs, recompute_);
    }
    refuse("other layers per stage", profile.model.layers_per_stage, partition_.layers_per_stage);
    refuse("another placement of the stages", profile.rank_of_stage, schedule().rank_of_stage);
    refuse("other embedding rows per rank", profile.input, schedule().input);
    refuse("other output rows per rank", profile.output, schedule().output);
    // Biases, norms, gates, heads of keys and values: another family or shape.
    std::vector<PersistentBytes> mine;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) mine.push_back(persistent_alone(rank));
    // Evaluation alone holds less than the training that was measured.
    if (!options_.evaluation.skip_train) {
        refuse("a model of other weights", profile.persistent, mine);
    }
    return profile.costs;
}

/// Those of GPUs, which are beside what the ranks compute in.
void TrainingPlan::check_snapshots(int of_rank) const {
    int64_t planned = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
        if (placement(rank).memory && placement(rank).host == placement(of_rank).host) {
            planned += snapshot_bytes(rank);
        }
    }
    const int64_t available = available_memory();
    if (planned <= available) return;
    throw OutOfMemoryError("--async-save: the copies of the ranks on " + placement(of_rank).host +
                           " need " + mib_text(planned) + " of host memory, " +
                           mib_text(available) + " are available; leave it out, or use more hosts");
}

void TrainingPlan::check_memory(int of_rank) const {
    if (placement(of_rank).memory && options_.async_save) check_snapshots(of_rank);
    const RankPlacement& place = placement(of_rank);
    int64_t planned = 0;
    int64_t largest = 0;
    int largest_rank = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
        if (placement(rank).host != place.host || placement(rank).device != place.device) continue;
        const int64_t bytes = planned_bytes(rank);
        planned += bytes;
        if (bytes > largest) {
            largest = bytes;
            largest_rank = rank;
        }
    }
    const int64_t available =
        place.memory ? static_cast<int64_t>(place.memory->free) : available_memory();
    if (planned <= available) return;
    const std::string where = place.memory ? place.host + ", " + place.device : place.host;
    throw OutOfMemoryError(
        where + ": the plan needs " + mib_text(planned) + " (most on rank " +
        std::to_string(largest_rank) + ": " + mib_text(largest) + "), " + mib_text(available) +
        " are available; reduce --micro-batch-size, --hidden-size or --num-layers, use more "
        "hosts, or --vocab-mode one_barrier");
}

void TrainingPlan::print() const {
    const std::string recomputation =
        recompute_ == Recompute::none
            ? ""
            : ", " + std::string(to_string(recompute_)) + " recomputation";
    const std::string ranks_text = mesh_.data == 1 ? std::to_string(mesh_.pipeline) + " ranks"
                                                   : std::to_string(mesh_.data) + " replicas x " +
                                                         std::to_string(mesh_.pipeline) + " ranks";
    std::array<char, 64> parameters;
    std::snprintf(parameters.data(), parameters.size(), "%.2f M parameters",
                  parameter_count(options_.model) / 1e6);
    const std::string head =
        options_.schedule + ", vocab mode " + std::string(to_string(options_.vocab_mode)) + ", " +
        ranks_text + " x " + counted(threads_, "thread") + ", " +
        counted(microbatches(), "microbatch", "microbatches") + " of " +
        std::to_string(options_.micro_batch_size) + " x " +
        std::to_string(options_.model.seq_length) + " tokens" + (mesh_.data == 1 ? "" : " each") +
        ", " + (options_.model.dtype == DType::bf16 ? "bf16" : "fp32") + ", " + parameters.data() +
        recomputation;
    std::printf("%s\n", wrap_text(head, 2).c_str());
    TextTable table;
    // What a thread takes of its process cannot be measured, and is not predicted.
    table.row({"rank", "stages", "layers", "embedding", "output",
               one_process() ? "planned" : "predicted", "device", "host"},
              {false, true, false, false, false, false, true, true});
    table.row({"", "", "", "rows", "rows", "MiB", "", ""});
    for (int rank = 0; rank < ranks(); ++rank) {
        const int in_pipeline = mesh_.pipeline_rank(rank);
        int layers = 0;
        std::string stages;
        for (size_t s = 0; s < partition_.layers_per_stage.size(); ++s) {
            if (schedule().rank_of_stage[s] != in_pipeline) continue;
            layers += partition_.layers_per_stage[s];
            stages += (stages.empty() ? "" : ",") + std::to_string(s);
        }
        std::array<char, 32> bytes;
        std::snprintf(
            bytes.data(), bytes.size(), "%.1f",
            static_cast<double>(one_process() ? planned_bytes(rank) : predicted_bytes(rank)) /
                (1 << 20));
        table.row({std::to_string(rank), stages, std::to_string(layers),
                   std::to_string(schedule().input.rows(in_pipeline)),
                   std::to_string(schedule().output.rows(in_pipeline)), bytes.data(),
                   placement(rank).device, placement(rank).host});
    }
    std::printf("%s", table.text().c_str());
    if (one_process()) {
        std::printf("process of all ranks: predicted %.1f MiB\n",
                    static_cast<double>(predicted_bytes(0)) / (1 << 20));
    }
    if (options_.async_save) {
        std::string text;
        for (int rank = 0; rank < ranks(); ++rank) {
            text += (rank == 0 ? " rank " : ", rank ") + std::to_string(rank) + " " +
                    mib_text(snapshot_bytes(rank));
        }
        text = "copies for --async-save, in host memory" +
               std::string(placement(0).memory ? "" : " and in the plan") + ":" + text;
        std::printf("%s\n", wrap_text(text, 2).c_str());
    }
    for (const std::string& note : notes_) {
        std::printf("%s\n", wrap_text(options_.schedule + ": " + note, 2).c_str());
    }
    std::fflush(stdout);
}

Profile TrainingPlan::profile(const TableCosts& costs, std::vector<Op> derived,
                              std::vector<LinkSample> links) const {
    const ModelConfig& m = options_.model;
    Profile profile;
    profile.host = placements_.front().host;
    profile.device = placements_.front().device;
    if (!placements_.front().memory) {
        profile.device += ", " + std::to_string(threads_) + " threads per rank";
    }
    profile.date = options_.date;
    profile.command = options_.command;
    profile.model = {.layers = m.num_layers,
                     .hidden = m.hidden_size,
                     .ffn_hidden = m.ffn_hidden_size,
                     .heads = m.num_attention_heads,
                     .seq_length = m.seq_length,
                     .micro_batch_size = options_.micro_batch_size,
                     .vocab = m.vocab_size,
                     .layers_per_stage = partition_.layers_per_stage};
    profile.rank_of_stage = schedule().rank_of_stage;
    profile.input = schedule().input;
    profile.output = schedule().output;
    profile.barriers = schedule().barriers;
    profile.costs = costs;
    profile.derived = std::move(derived);
    profile.sizes = sizes_;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        profile.persistent.push_back(persistent_alone(rank));
        for (const Op op : {Op::Report, Op::Update}) {  // of the whole rank, as one replica does it
            profile.costs.rank_ns[static_cast<size_t>(rank)][static_cast<size_t>(op)] *= mesh_.data;
        }
    }
    profile.costs.replicas = 1;
    profile.sizes.replicas = 1;
    profile.sizes.buckets.clear();
    profile.links = std::move(links);
    return profile;
}

}  // namespace vocabpipe
