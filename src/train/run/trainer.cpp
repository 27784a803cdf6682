// SPDX-License-Identifier: Apache-2.0
// A training run on one rank: checks and plans everything, allocates, takes steps until a limit,
// then reports. Requests to save or to end travel in the report of a step, so that all ranks act
// after the same step.
#include "src/train/run/trainer.hpp"

#include "src/model/adapters.hpp"
#include "src/model/parameter_groups.hpp"
#include "src/model/parameters.hpp"
#include "src/runtime/wait.hpp"
#include "src/step/same_on_every_rank.hpp"
#include "src/step/shared_folder.hpp"
#include "src/support/process_memory.hpp"
#include "src/support/text_layout.hpp"
#include "src/support/tokenizer_files.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "src/train/data/tokenizer_beside.hpp"
#include "src/train/evaluate/evaluation.hpp"
#include "src/train/log/run_log.hpp"
#include "src/train/log/run_outputs.hpp"
#include "src/train/measure/end_report.hpp"
#include "src/train/measure/run_meter.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/options/choose_schedule.hpp"
#include "src/train/plan/plan_table.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "src/train/plan/planned_step.hpp"
#include "src/train/plan/run_rank.hpp"
#include "src/train/plan/training_plan.hpp"
#include "src/train/run/grace_note.hpp"
#include "src/train/run/resume.hpp"
#include "src/train/run/run_data.hpp"
#include "src/train/run/run_limits.hpp"
#include "src/train/run/skipped_steps.hpp"
#include "src/train/run/step_saver.hpp"
#include "src/train/verify/step_replay.hpp"
#include "src/train/verify/verify_against_one_rank.hpp"
#include "vocabpipe/arrange_samples.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/microbatch_order.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Where the samples of a step go that have several lengths. The order of lengths follows from the
/// first plans, not from measurements of the run: it decides which bits a step has.
ArrangeSamples arrangement(const TrainingPlan& plan) {
    if (!plan.has_lengths()) return {};
    struct Order {
        Schedule schedule;
        PassCosts costs;
    };
    std::vector<Order> orders;
    for (const StepPlan& step : plan.steps()) orders.push_back({step.schedule, step.order_costs});
    std::vector<int64_t> lengths{plan.options().model.seq_length};
    const std::vector<int64_t>& shorter = plan.partition().shorter_lengths;
    lengths.insert(lengths.end(), shorter.begin(), shorter.end());
    return arrange_by_length(std::move(lengths), [orders = std::move(orders)](std::vector<int> of) {
        const auto& order = *std::ranges::find(orders, std::ssize(of), [](const Order& one) {
            return int64_t{one.schedule.microbatches};
        });
        return order_microbatches(order.schedule, order.costs, std::move(of));
    });
}

/// The first step includes compiling kernels; the last of these steps is measured. Without lengths:
/// a measured pass is a mean over microbatches, which then differ.
constexpr int64_t kStepsBeforeCosts = 3;

class Trainer {
public:
    Trainer(Communicator& communicator, const TrainOptions& options)
        : communicator_(communicator),
          options_(options),
          rank_(communicator.rank()),
          start_memory_(process_memory().resident),
          limits_(options, rank_),
          grace_(options.save.empty() ? std::nullopt : options.grace_seconds,
                 options.grace_is_fixed),
          log_(options, rank_),
          skipped_(options, log_) {}

    /// If a lost rank ends the run, the error names the last saved step.
    void run() {
        try {
            prepare();
            take_steps_and_report();
        } catch (const CommunicationError& error) {
            if (!saver_) throw;
            throw CommunicationError(
                error.what() + std::string("; the last saved step: ") +
                (saver_->last() ? std::to_string(saver_->last()->step) : "none of this run"));
        }
    }

private:
    void take_steps_and_report() {
        const StopReason stop = options_.evaluation.skip_train ? evaluate_only() : take_steps();
        std::string of_products;
        if (stop == StopReason::none && options_.after_training && trains()) {
            of_products = options_.after_training(communicator_, *device_);
        }
        end_files();
        if (!trains()) return;
        end_early(stop);
        report_run(*plan_, *trained_, meter_,
                   {.first_loss = first_loss_,
                    .last_loss = last_loss_,
                    .tokens_per_step = batch_tokens_,
                    .plan = plan_of_last_step(),
                    .program = trained_->program(),
                    .start_memory = start_memory_,
                    .snapshot_bytes =
                        saver_ ? static_cast<int64_t>(saver_->snapshot_bytes()) : int64_t{0}});
        skipped_.report(step() - start_.step);
        print_note(of_products);
    }

    [[nodiscard]] StepPlan plan_of_last_step() const {
        const StepPlan& plan = plan_->steps()[index_];
        return plan_->has_lengths() ? with_lengths(plan, seq_lengths_) : plan;
    }
    [[nodiscard]] bool trains() const { return !options_.evaluation.skip_train; }
    /// The last step that completed.
    [[nodiscard]] int64_t step() const { return trained_->position().step; }

    // --- before the first step

    void prepare() {
        check_same_options(communicator_, options_);
        communicator_.agree([this] {
            check_options(options_, communicator_.size());
            learning_rate_ = learning_rate_schedule(options_);
        });
        if (!options_.load.empty()) open_checkpoint();
        std::vector<RankPlacement> placements = find_placements(communicator_, start_memory_);
        device_ = open_device(communicator_, options_, placements);
        communicator_.agree([&] { check(std::move(placements)); });
        if (!options_.save.empty()) check_shared_folder(communicator_, "--save", options_.save);
        check_same_on_every_rank(communicator_, data_->fingerprint(), ExitCode::input_file,
                                 "use the same files on every rank");
        if (rank_ == 0) print_plan();
        // Its ranks end before those of the run begin, so the run starts as without it.
        if (options_.verify_steps > 0) verify();
        trained_ = allocate_rank(communicator_, options_, *plan_, *device_,
                                 [this] { return limits_.own_signal() != 0; });
        trained_->set_position(start_);
        planned_.emplace(*trained_, *plan_);
        if (trains()) consumed_tokens_ = data_->tokens_before(start_.consumed_samples);
        if (!options_.save.empty()) {
            communicator_.agree([this] {
                saver_.emplace(communicator_, options_, trained_->model(),
                               save_folder_ ? &*save_folder_ : nullptr, tokenizer(), log_);
            });
        }
        if (checkpoint_) load();
        // Last, because it truncates existing files: a run that is refused must change none. An
        // evaluation repeats no step.
        communicator_.agree([this] {
            log_.open(trains() ? start_.step + 1 : INT64_MAX);
            if (!save_folder_) return;
            print_damaged(damaged_, options_.save);
            save_folder_->set_aside();
        });
        if (evaluates(options_)) {
            evaluation_.emplace(*plan_, *trained_, data_->take_evaluation_data(),
                                [this] { return limits_.own_signal() != 0; });
        }
    }

    /// Before any file is opened for writing: a checkpoint that cannot be loaded must not cost a
    /// file.
    void open_checkpoint() {
        OpenedCheckpoint opened = vocabpipe::open_checkpoint(communicator_, options_);
        checkpoint_ = std::move(opened.checkpoint);
        damaged_ = std::move(opened.damaged);
        const std::optional<TrainingState>& state = checkpoint_->state();
        if (state) start_ = {.step = state->step, .consumed_samples = state->consumed_samples};
    }

    /// All checks that need no memory for a model.
    void check(std::vector<RankPlacement> placements) {
        // The data decide the lengths of sequences. With one length the plan is checked first,
        // because opening and packing data may take long.
        const bool by_lengths = !options_.data.length_buckets.empty();
        if (by_lengths) data_.emplace(options_, rank_);
        std::vector<int64_t> shorter;
        if (by_lengths) shorter.assign(data_->lengths().begin() + 1, data_->lengths().end());
        plan_.emplace(options_, std::move(placements), device_->operators(),
                      device_->communication_order(), std::move(shorter));
        check_memory(*plan_, rank_);
        if (!by_lengths) data_.emplace(options_, rank_);
        check_whole_pairs();
        if (trains()) data_->start_loading(plan_->mesh(), arrangement(*plan_));
        if (checkpoint_ && trains()) check_same_subset(*checkpoint_, data_->subset());
        if (rank_ != 0) return;
        const std::string traces = trace_path(options_, plan_->mesh());
        check_outputs(options_, input_files(), traces);
        probe_outputs(options_, traces);
        if (options_.save.empty()) return;
        const bool continues = checkpoint_ && checkpoint_->state();
        std::vector<int64_t> damaged;
        for (const DamagedStep& step : damaged_) damaged.push_back(step.step);
        save_folder_.emplace(options_.save, start_.step,
                             continues ? checkpoint_->folder() : std::string(), damaged);
        if (!save_folder_->locked()) {
            log_.print_line("note: --save " + options_.save +
                            ": its file system has no locks, so nothing keeps a second run out");
        }
    }

    /// A run on other samples may have ended between two that are a pair now.
    void check_whole_pairs() const {
        if (!trains() || !options_.loss.compares_pairs()) return;
        if (start_.consumed_samples % 2 == 0) return;
        throw InputFileError("--load " + options_.load + ": goes on after " +
                             std::to_string(start_.consumed_samples) +
                             " samples, within a pair of --loss dpo; use --finetune, which loads "
                             "the weights alone");
    }

    /// Files that no output may replace.
    [[nodiscard]] std::vector<std::string> input_files() const {
        std::vector<std::string> files = data_->files();
        files.insert(files.end(), options_.files_read.begin(), options_.files_read.end());
        files.push_back(options_.schedule);
        files.push_back(options_.cost_file);
        files.push_back(options_.overlap_table);
        if (!checkpoint_) return files;
        for (const auto& entry : std::filesystem::directory_iterator(checkpoint_->folder())) {
            files.push_back(entry.path().string());
        }
        return files;
    }

    /// Saved with every step: the data's tokenizer, else that of the initial model.
    [[nodiscard]] TokenizerFiles tokenizer() const {
        TokenizerFiles found = tokenizer_beside(options_.data);
        if (!found.empty() || !checkpoint_) return found;
        return tokenizer_files_in(checkpoint_->folder());
    }

    void print_plan() const {
        vocabpipe::print_plan(*plan_);
        const std::string groups =
            describe_adapters(options_.model) +
            describe_parameter_groups(options_.optimizer.groups, logical_parameters(options_.model),
                                      options_.optimizer.weight_decay);
        std::printf("%s", wrap_text(groups, 2).c_str());
        for (const std::string& line : data_->packing()) {
            std::printf("%s\n", wrap_text("  " + line, 4).c_str());
        }
        if (!options_.note.empty()) std::printf("%s\n", wrap_text(options_.note, 2).c_str());
        std::fflush(stdout);
    }

    /// The flags, number of ranks and data that decide the bits of a run.
    [[nodiscard]] std::vector<std::string> bit_flags() const {
        std::vector<std::string> flags = vocabpipe::bit_flags(options_, plan_->mesh());
        for (std::string& flag : data_->flags()) flags.push_back(std::move(flag));
        return flags;
    }

    void verify() {
        const std::string found = verify_against_one_rank(
            communicator_, *device_, *plan_,
            {.samples = data_->samples(),
             .arrange = arrangement(*plan_),
             .per_microbatch = options_.micro_batch_size * plan_->mesh().data,
             .start = start_,
             .checkpoint = checkpoint_.get()},
            data_->batches(), learning_rate_);
        log_.print_line(wrap_text(found, 2));
    }

    void load() {
        communicator_.agree([this] {
            trained_->model().initialise_adapters(trained_->context(), options_.seed);
            checkpoint_->fill(trained_->model(), trained_->context());
        });
        if (rank_ == 0) print_checkpoint(*checkpoint_, bit_flags());
        checkpoint_.reset();
    }

    // --- steps

    StopReason take_steps() {
        StopReason stop = StopReason::none;
        while (stop == StopReason::none && step() < options_.train_iters) {
            StepResult result;
            try {
                result = take_step();
            } catch (const StepAbandoned&) {
                save_before_abandoned("step " + std::to_string(step() + 1));
                return StopReason::terminated;
            }
            stop = limits_.reason(step(), result.stop_requests);
            if (saver_) saver_->poll();
            if (!skipped_.add(*trained_, result, counted_tokens_)) {
                if (saver_) saver_->finish();
                skipped_.throw_found();
            }
            if (saver_ && (saver_->due(step()) || limits_.save_due(result.stop_requests) ||
                           stop != StopReason::none)) {
                save();
            }
            const bool hurry = stop == StopReason::terminated || stop == StopReason::requested;
            if (!hurry && evaluation_ && evaluation_->due(step()) && !evaluate()) {
                save_before_abandoned("its evaluation");
                return StopReason::terminated;
            }
            // The run ends anyway.
            if (step() == options_.train_iters && !hurry) stop = StopReason::none;
            if (stop == StopReason::none && step() == start_.step + kStepsBeforeCosts &&
                step() < options_.train_iters && !options_.schedule_costs &&
                options_.cost_file.empty() && !plan_->has_lengths()) {
                reorder();
            }
        }
        return stop;
    }

    StepResult take_step() {
        const int64_t begin = now_ns();
        use_batch_size();
        const StepPlan& plan = plan_->steps()[index_];
        const StepBatch& batch =
            data_->batches().load(trained_->position().consumed_samples, plan.microbatches());
        batch_size_ = batch.global_batch_size();
        batch_tokens_ = batch.tokens();
        consumed_tokens_ += batch_tokens_;
        seq_lengths_.assign(batch.seq_lengths().begin(), batch.seq_lengths().end());
        counted_tokens_ = batch.counted_tokens();
        const int64_t consumed = trained_->position().consumed_samples + batch_size_;
        if (step() + 1 < options_.train_iters) {
            data_->batches().prefetch(consumed, plan_->batch_sizes().microbatches(consumed));
        }
        const int64_t before = trained_->position().consumed_samples;
        const double lr = learning_rate_.after(learning_rate_.by_samples ? before : step());
        const int64_t forward_begin = now_ns();
        planned_->begin(batch, index_);
        forward_seconds_ = static_cast<double>(now_ns() - forward_begin) * 1e-9;
        if (options_.replay_interval > 0 && (step() + 1) % options_.replay_interval == 0) {
            const StepPlan& replayed = plan_->steps()[plan_->replay_index()];
            StepReplay(*trained_, plan_->replay_index())
                .run(planned_->microbatches().first(static_cast<size_t>(replayed.microbatches())),
                     step() + 1);
        }
        planned_->train(lr, limits_.request(log_.failed()));
        const int64_t duration = now_ns() - begin;

        StepResult result = planned_->report();
        if (counted_tokens_ == 0) result.loss = std::numeric_limits<double>::quiet_NaN();
        const double seconds = static_cast<double>(duration) * 1e-9;
        limits_.step_took(seconds);
        if (step() == start_.step + 2 && saver_) {
            print_note(grace_.of_step(longest_wait(), saver_->file_bytes()));
        }
        meter_.add_step(*trained_, duration);
        if (step() == start_.step + 1) first_loss_ = result.loss;
        last_loss_ = result.loss;
        const PreferenceMeans* const pairs = planned_->pairs();
        log_.add({.step = step(),
                  .loss = result.loss,
                  .grad_norm = result.grad_norm,
                  .lr = lr,
                  .tokens_per_second = static_cast<double>(batch_tokens_) / seconds,
                  .step_seconds = seconds,
                  .updated = result.updated,
                  .global_batch_size = batch_size_,
                  .consumed_samples = consumed,
                  .consumed_tokens = consumed_tokens_,
                  .routers = result.routers,
                  .depth_losses = result.depth_losses,
                  .pairs = pairs != nullptr ? std::optional(*pairs) : std::nullopt},
                 /*ends=*/step() == options_.train_iters ||
                     limits_.reason(step(), result.stop_requests) != StopReason::none);
        return result;
    }

    /// Seconds for which a signal may wait in a step like the last one on this rank: those of its
    /// longest pass, or of the forward-only step before it, which is not abandoned.
    [[nodiscard]] double longest_wait() {
        int64_t longest = 0;
        for (const Span& span : trained_->executor().timeline(trained_->program()).spans) {
            if (span.lane == Lane::compute)
                longest = std::max(longest, span.end_ns - span.begin_ns);
        }
        return std::max(static_cast<double>(longest) * 1e-9, forward_seconds_);
    }

    /// Saves after the step or evaluation was abandoned on every rank; the weights are those of the
    /// last step.
    void save_before_abandoned(std::string what) {
        abandoned_ = std::move(what);
        if (!saver_) return;
        saver_->finish();
        if (step() == start_.step || (saver_->last() && saver_->last()->step == step())) return;
        save();
    }

    /// Chooses the plan of the next step.
    void use_batch_size() {
        const size_t index = plan_->index_of(
            plan_->batch_sizes().microbatches(trained_->position().consumed_samples));
        if (index == index_) return;
        index_ = index;
        meter_.forget_durations();
    }

    /// False if a signal ended it early.
    bool evaluate() {
        try {
            const EvaluationResult result = evaluation_->run(step());
            log_.print_line(result.line());
            log_.add(result.metrics());
        } catch (const AgreedError& error) {
            if (error.exit_code() != ExitCode::terminated) throw;
            return false;
        }
        return true;
    }

    StopReason evaluate_only() {
        const bool whole = evaluate();
        communicator_.agree([&] {
            const int signal = whole ? limits_.own_signal() : limits_.ending_signal();
            if (signal == 0) return;
            throw Error(exit_code_of(signal), name_of_signal(signal) + ": ended " +
                                                  (whole ? "after" : "in") + " the evaluation");
        });
        return StopReason::none;
    }

    void save() {
        saver_->save({.step = step(),
                      .consumed_samples = trained_->position().consumed_samples,
                      .seq_length = options_.model.seq_length,
                      .seed = options_.seed,
                      .dtype = options_.model.dtype == DType::bf16 ? "bf16" : "fp32",
                      .flags = bit_flags()});
        limits_.saved();
        if (const std::optional<SaveReport>& saved = saver_->last()) {
            print_note(grace_.of_save(longest_wait(), saved->bytes, saved->seconds));
        }
        print_changed_data();
    }

    void print_note(const std::string& lines) {
        if (!lines.empty()) log_.print_line(lines);
    }

    void print_changed_data() {
        for (const std::string& change : data_->changes()) log_.print_line("data: " + change);
    }

    /// Rebuilds the order with measured costs of passes and messages. All ranks see the same costs,
    /// so all make the same programs.
    void reorder() {
        const PassCosts& costs = plan_->rebuild(meter_.measure(*plan_, *trained_).cpu);
        trained_->load(plan_->steps());
        const auto ms = [&](Op op) { return static_cast<double>(costs.mean(op)) * 1e-6; };
        std::array<char, 256> text;
        std::snprintf(text.data(), text.size(),
                      "schedule rebuilt from measured costs: F %.3f ms, B %.3f ms, b/f %.3f,\n"
                      "  S %.3f ms, T %.3f ms, E %.3f ms, G %.3f ms, boundary message %.3f ms",
                      ms(Op::F), ms(Op::B), ms(Op::B) / ms(Op::F), ms(Op::S), ms(Op::T), ms(Op::E),
                      ms(Op::G), static_cast<double>(costs.hop) * 1e-6);
        std::string line = text.data();
        if (has_recomputation(plan_->schedule())) {
            std::snprintf(text.data(), text.size(), ",\n  R %.3f ms", ms(Op::R));
            line += text.data();
        }
        if (const int pieces = plan_->steps().front().lowering.pieces; pieces > 1) {
            line += ",\n  boundaries by " + std::to_string(pieces) + " pieces";
        }
        log_.print_line(line);
    }

    // --- after the last step

    /// Finishes the files; also reports failures.
    void end_files() {
        if (saver_) saver_->finish();
        print_changed_data();
        communicator_.agree([this] { log_.close(); });
    }

    /// Says why the run ends before its last step; throws if a signal ended it.
    void end_early(StopReason stop) {
        if (stop == StopReason::none) return;
        const int signal = stop == StopReason::terminated ? limits_.ending_signal() : 0;
        const std::string text = (signal != 0 ? name_of_signal(signal) : to_string(stop)) +
                                 ": ended after step " + std::to_string(step()) + " of " +
                                 std::to_string(options_.train_iters);
        if (stop != StopReason::terminated) return log_.print_line(text);
        const std::string next = abandoned_.empty() ? "" : "; " + abandoned_ + " was abandoned";
        throw AgreedError(exit_code_of(signal), text + next + "; " + what_is_saved());
    }

    [[nodiscard]] std::string what_is_saved() const {
        if (!saver_) return "nothing was saved because --save is not set";
        if (saver_->last()) return "saved " + step_folder(options_.save, saver_->last()->step);
        return "nothing was saved because this run has finished no step";
    }

    Communicator& communicator_;
    const TrainOptions& options_;
    int rank_;
    int64_t start_memory_;
    std::unique_ptr<Device> device_;
    std::optional<TrainingPlan> plan_;
    std::optional<RunData> data_;
    std::unique_ptr<const Checkpoint> checkpoint_;  ///< until its weights are in place
    std::vector<DamagedStep> damaged_;              ///< later than checkpoint_
    std::optional<SaveFolder> save_folder_;         ///< on rank 0
    TrainingPosition start_;                        ///< before the first step of this run
    size_t index_ = 0;                              ///< of the plan that trained last
    std::string abandoned_;  ///< the work that was abandoned after the last step
    RunLimits limits_;
    GraceNote grace_;
    LearningRateSchedule learning_rate_;
    RunLog log_;
    SkippedSteps skipped_;
    std::unique_ptr<TrainedRank> trained_;
    std::optional<PlannedStep> planned_;
    std::optional<StepSaver> saver_;
    double forward_seconds_ = 0;        ///< of PlannedStep::begin() of the last step
    int64_t batch_size_ = 0;            ///< of the last step, of all replicas
    int64_t batch_tokens_ = 0;          ///< of that step, of all replicas
    std::vector<int64_t> seq_lengths_;  ///< of that step's microbatches
    int64_t counted_tokens_ = 0;        ///< of that step, with a label
    int64_t consumed_tokens_ = 0;       ///< of all samples read, also before this run
    std::optional<Evaluation> evaluation_;
    RunMeter meter_;
    double first_loss_ = 0;
    double last_loss_ = 0;
};

}  // namespace

void train(Communicator& communicator, const TrainOptions& options) {
    const TrainOptions chosen = with_chosen_schedule(options, communicator.size());
    Trainer(communicator, chosen).run();
}

}  // namespace vocabpipe
