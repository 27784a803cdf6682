// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/trainer.hpp"

#include "src/model/parameters.hpp"
#include "src/runtime/wait.hpp"
#include "src/support/output_file.hpp"
#include "src/support/text_layout.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/data/watched_files.hpp"
#include "src/train/evaluate/evaluation.hpp"
#include "src/train/log/run_outputs.hpp"
#include "src/train/log/step_log.hpp"
#include "src/train/measure/measure_links.hpp"
#include "src/train/measure/pass_meter.hpp"
#include "src/train/measure/process_memory.hpp"
#include "src/train/measure/run_report.hpp"
#include "src/train/optimizer/non_finite.hpp"
#include "src/train/optimizer/parameter_groups.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/run/batch_loader.hpp"
#include "src/train/run/rank_placement.hpp"
#include "src/train/run/resume.hpp"
#include "src/train/run/run_limits.hpp"
#include "src/train/run/same_on_every_rank.hpp"
#include "src/train/run/trained_rank.hpp"
#include "src/train/run/training_plan.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

namespace vocabpipe {

namespace {

/// The first step pays for kernels that are compiled on first use; the last of these is measured.
constexpr int64_t kStepsBeforeCosts = 3;

class Trainer {
public:
    Trainer(Communicator& communicator, const TrainOptions& options)
        : communicator_(communicator),
          options_(options),
          rank_(communicator.rank()),
          start_memory_(process_memory().resident),
          limits_(options, rank_) {}

    void run() {
        check_same_options(communicator_, options_);
        communicator_.agree([this] {
            check_options(options_, communicator_.size());
            learning_rate_ = learning_rate_schedule(options_);
        });
        if (!options_.load.empty()) open_checkpoint();
        std::vector<RankPlacement> placements = find_placements(communicator_, start_memory_);
        device_ = open_device(communicator_, options_, placements);
        communicator_.agree([&] { prepare(std::move(placements)); });
        std::vector<std::string> files = evaluation_data_.fingerprint();
        if (data_) {
            for (std::string& line : data_->fingerprint()) files.push_back(std::move(line));
        }
        check_same_on_every_rank(communicator_, files, ExitCode::input_file,
                                 "give every rank the same files");
        if (rank_ == 0) {
            plan_->print();
            const std::string groups = describe_parameter_groups(options_.optimizer.groups,
                                                                 logical_parameters(options_.model),
                                                                 options_.optimizer.weight_decay);
            std::printf("%s", wrap_text(groups, 2).c_str());
            std::fflush(stdout);
        }
        trained_ = allocate_rank(communicator_, options_, *plan_, *device_);
        if (!options_.save.empty()) open_saver();
        if (checkpoint_) load();
        open_log();
        if (evaluates(options_)) {
            evaluation_.emplace(communicator_, options_, *plan_, trained_, *device_,
                                std::move(evaluation_data_));
        }
        if (options_.evaluation.skip_train) {
            evaluate(first_step_ - 1);
            communicator_.agree([this] {
                if (options_.terminated && options_.terminated() != 0) {
                    throw Error(
                        exit_code_of(options_.terminated()),
                        name_of_signal(options_.terminated()) + ": ended after the evaluation");
                }
            });
            end();
            return;
        }
        StopReason stop = StopReason::none;
        int64_t step = first_step_ - 1;
        while (stop == StopReason::none && step < options_.train_iters) {
            const StepResult result = run_step(++step);
            stop = limits_.reason(step, result.stop_requests);
            if (saver_) print_saved(saver_->poll());
            skipped_in_a_row_ = result.updated ? 0 : skipped_in_a_row_ + 1;
            skipped_ += result.updated ? 0 : 1;
            if (!result.finite()) name_non_finite(step, result);
            if (to_be_saved(step) || (saver_ && stop != StopReason::none)) save(step);
            const bool hurry = stop == StopReason::terminated || stop == StopReason::requested;
            if (!hurry && evaluation_ && evaluation_->due(step)) evaluate(step);
            // Nothing is left to end.
            if (step == options_.train_iters && !hurry) stop = StopReason::none;
            if (step == first_step_ + kStepsBeforeCosts - 1 && !options_.schedule_costs &&
                options_.cost_file.empty() && step < options_.train_iters &&
                stop == StopReason::none) {
                reorder();
            }
        }
        if (stop == StopReason::none && options_.after_training) {
            options_.after_training(communicator_, *device_);
        }
        end();
        end_early(stop, step);
        finish();
        report_skipped(step - first_step_ + 1);
    }

private:
    /// What the files still need; what of it failed, too.
    void end() {
        if (saver_) print_saved(saver_->finish());
        say_changed_data();
        communicator_.agree([this] {
            if (output_failure_) std::rethrow_exception(output_failure_);
            if (log_) log_->close();
        });
    }

    // --- before the first step

    /// Before any file is opened for writing: what cannot be loaded must overwrite nothing.
    void open_checkpoint() {
        checkpoint_ = vocabpipe::open_checkpoint(communicator_, options_);
        if (!checkpoint_->state()) return;
        first_step_ = checkpoint_->state()->step + 1;
        consumed_samples_ = checkpoint_->state()->consumed_samples;
    }

    /// What decides the bits of a run: flags, number of ranks, data.
    [[nodiscard]] std::vector<std::string> bit_flags() const {
        std::vector<std::string> flags =
            vocabpipe::bit_flags(options_, mesh_of(options_, communicator_.size()));
        if (data_) {
            for (std::string& flag : data_->flags()) flags.push_back(std::move(flag));
        }
        if (samples_) {
            flags.push_back("samples-per-epoch " + std::to_string(samples_->samples_per_epoch()));
        }
        return flags;
    }

    /// Everything that can be wrong without memory for a model.
    void prepare(std::vector<RankPlacement> placements) {
        plan_.emplace(options_, std::move(placements), device_->operators(),
                      device_->communication_order());
        plan_->check_memory(rank_);
        open_data();
        if (rank_ == 0) {
            check_outputs(options_, input_files(), trace_path());
            if (!options_.trace_dir.empty()) {
                make_directories(options_.trace_dir, "--trace-dir");
                const OutputFile probe(trace_path());  // rather now than after the last step
            }
            if (!options_.report.empty()) {
                const OutputFile probe(options_.report);
            }
            if (!options_.profile.empty()) {
                const OutputFile probe(options_.profile);
            }
            if (!options_.save.empty()) {
                const bool continues = checkpoint_ && checkpoint_->state();
                save_folder_.emplace(options_.save, first_step_ - 1,
                                     continues ? checkpoint_->folder() : std::string());
            }
        }
    }

    [[nodiscard]] std::vector<std::string> data_files() const {
        std::vector<std::string> files = data_ ? data_->files() : std::vector<std::string>();
        if (const std::string& set = options_.evaluation.multiple_choice_path; !set.empty()) {
            files.push_back(set);
        }
        return files;
    }

    /// That no output may replace.
    [[nodiscard]] std::vector<std::string> input_files() const {
        std::vector<std::string> files = data_files();
        files.insert(files.end(), options_.files_read.begin(), options_.files_read.end());
        files.push_back(options_.schedule);
        files.push_back(options_.cost_file);
        if (!checkpoint_) return files;
        for (const auto& entry : std::filesystem::directory_iterator(checkpoint_->folder())) {
            files.push_back(entry.path().string());
        }
        return files;
    }

    void open_data() {
        const bool trains = !options_.evaluation.skip_train;
        if (trains || validates(options_)) {
            data_.emplace(options_.data);
            // One rank scans; agree() tells the others.
            if (rank_ == 0) data_->check(options_.model.vocab_size);
        }
        evaluation_data_ = open_evaluation_data(options_, data_ ? &*data_ : nullptr);
        if (rank_ == 0) watched_.emplace(data_files());
        if (!trains) return;
        samples_ = data_->samples(DataSplit::train, {.seq_length = options_.model.seq_length,
                                                     .seed = options_.seed,
                                                     .vocab_size = options_.model.vocab_size});
        batch_.emplace(*samples_, StepBatchOptions{.micro_batch_size = options_.micro_batch_size,
                                                   .replica = plan_->mesh().replica(rank_),
                                                   .replicas = plan_->mesh().data,
                                                   .masks = data_->masks()});
    }

    void load() {
        communicator_.agree(
            [this] { checkpoint_->fill(*trained_.model, trained_.executor->context()); });
        if (rank_ == 0) print_checkpoint(*checkpoint_, bit_flags());
        checkpoint_.reset();
    }

    /// Last of all, for it takes away what the files have: a run that is refused changes none.
    void open_log() {
        communicator_.agree([this] {
            // An evaluation alone runs no step again.
            const int64_t first = options_.evaluation.skip_train ? INT64_MAX : first_step_;
            if (rank_ == 0) log_.emplace(options_, first);
        });
    }

    void open_saver() {
        communicator_.agree([this] {
            saver_.emplace(communicator_, *trained_.model, save_folder_ ? &*save_folder_ : nullptr,
                           SaveOptions{.root = options_.save,
                                       .total_limit = options_.save_total_limit,
                                       .max_shard_bytes = options_.max_shard_bytes,
                                       .async = options_.async_save});
        });
    }

    // --- steps

    StepResult run_step(int64_t step) {
        const int64_t begin = now_ns();
        use_batch_size();
        const int microbatches = plan_->steps()[slot_].microbatches;
        const StepBatch& batch = batch_->load(consumed_samples_, microbatches);
        batch_size_ = batch.global_batch_size();
        consumed_samples_ += batch_size_;
        if (step < options_.train_iters) {
            batch_->prefetch(consumed_samples_,
                             plan_->batch_sizes().microbatches(consumed_samples_));
        }
        const double lr = learning_rate_.at(step);
        trained_.optimizer->begin_step(step, static_cast<float>(lr), batch.counted_tokens(),
                                       limits_.request(output_failure_ != nullptr));
        trained_.executor->set_step(step);
        trained_.executor->run_step(batch.microbatches(), slot_);
        const int64_t duration = now_ns() - begin;

        const StepResult result = trained_.optimizer->result();
        const double seconds = static_cast<double>(duration) * 1e-9;
        limits_.step_took(seconds);
        const double tokens =
            static_cast<double>(batch_size_) * static_cast<double>(options_.model.seq_length);
        usage_.add_step(trained_.executor->timeline(slot_), duration);
        meter_.add_step(trained_.executor->timeline(slot_), programs()[static_cast<size_t>(rank_)],
                        duration);
        if (step == first_step_) report_.first_loss = result.loss;
        report_.last_loss = result.loss;
        if (rank_ == 0 && !output_failure_ && std::ferror(stdout) != 0) {
            output_failure_ = std::make_exception_ptr(
                OutputFileError("standard output: cannot write; free some space, or keep the "
                                "reader of the pipe until the run has ended"));
        }
        if (log_ && !output_failure_) {
            const bool ends = step == options_.train_iters ||
                              limits_.reason(step, result.stop_requests) != StopReason::none;
            write_log([&] {
                log_->add({.step = step,
                           .loss = result.loss,
                           .grad_norm = result.grad_norm,
                           .lr = lr,
                           .tokens_per_second = tokens / seconds,
                           .step_seconds = seconds,
                           .updated = result.updated,
                           .global_batch_size = batch_size_,
                           .consumed_samples = consumed_samples_,
                           .consumed_tokens = consumed_samples_ * options_.model.seq_length},
                          ends);
            });
        }
        return result;
    }

    /// Chooses the programs of the next step.
    void use_batch_size() {
        const size_t slot = plan_->slot_of(plan_->batch_sizes().microbatches(consumed_samples_));
        if (slot == slot_) return;
        slot_ = slot;
        usage_.forget_durations();
        meter_.forget_durations();
    }

    /// Of the last step of training.
    [[nodiscard]] const std::vector<Program>& programs() const {
        return plan_->steps()[slot_].programs;
    }

    void evaluate(int64_t step) {
        const EvaluationResult result = evaluation_->run(step);
        if (rank_ != 0) return;
        log_line(result.line());
        if (!output_failure_) write_log([&] { log_->add(result.metrics()); });
    }

    /// Names what is not finite; ends the run if that was asked for, or if no later step can be
    /// right.
    void name_non_finite(int64_t step, const StepResult& result) {
        const NonFinite found =
            find_non_finite(communicator_, *trained_.model, trained_.executor->context());
        const std::string text =
            describe_non_finite(found, options_.model, step, result.loss, result.grad_norm);
        if (found.weights.empty() && !options_.stop_at_non_finite) {
            log_line(text + "; the step is skipped");
            return;
        }
        if (saver_) print_saved(saver_->finish());
        throw AgreedError(
            ExitCode::not_finite,
            text + (found.weights.empty() ? "; the step changed no weight, and is not saved"
                                          : "; no later step can be right: load an older one"));
    }

    /// A run that skips steps to its end has diverged, which is no success; single ones are noted.
    void report_skipped(int64_t steps) {
        if (skipped_ == 0) return;
        const std::string text = std::to_string(skipped_) + " of " + std::to_string(steps) +
                                 " steps were skipped, for the loss or a gradient was not finite";
        if (skipped_in_a_row_ == 0) {
            log_line(text);
            return;
        }
        throw AgreedError(ExitCode::not_finite,
                          text + ", the last " + std::to_string(skipped_in_a_row_) +
                              " of them without a break: the run has diverged; use a smaller --lr "
                              "or --clip-grad, or go on from an older step");
    }

    /// Of this process, or of a rank that was told to end: a launcher tells by SIGTERM.
    [[nodiscard]] int ending_signal() const {
        const int own = options_.terminated ? options_.terminated() : 0;
        return own != 0 ? own : SIGTERM;
    }

    /// Says why, where the run ends before its last step; a signal that ends it is no success.
    void end_early(StopReason stop, int64_t step) {
        if (stop == StopReason::none) return;
        const int signal = stop == StopReason::terminated ? ending_signal() : 0;
        const std::string text = (signal != 0 ? name_of_signal(signal) : to_string(stop)) +
                                 ": ended after step " + std::to_string(step) + " of " +
                                 std::to_string(options_.train_iters);
        if (stop == StopReason::terminated) {
            throw AgreedError(
                exit_code_of(signal),
                text + (saver_ ? "; saved " + step_folder(options_.save, step)
                               : std::string("; nothing was saved, for --save is not given")));
        }
        log_line(text);
    }

    /// From rank 0, between steps.
    void log_line(const std::string& line) {
        if (rank_ != 0) return;
        log_->clear_bar();
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
    }

    [[nodiscard]] bool to_be_saved(int64_t step) const {
        if (options_.save.empty()) return false;
        return step == options_.train_iters ||
               (options_.save_interval > 0 && step % options_.save_interval == 0);
    }

    void save(int64_t step) {
        if (saver_->pending()) {
            if (rank_ == 0 && saver_->writing() && !said_that_saves_wait_) {
                log_line("step " + std::to_string(step) +
                         " waits until the step before it is saved, as others will: writing takes "
                         "longer than the steps between two saves");
                said_that_saves_wait_ = true;
            }
            print_saved(saver_->finish());
        }
        saver_->begin({.step = step,
                       .consumed_samples = consumed_samples_,
                       .seq_length = options_.model.seq_length,
                       .seed = options_.seed,
                       .dtype = options_.model.dtype == DType::bf16 ? "bf16" : "fp32",
                       .flags = bit_flags()});
        if (!options_.async_save) print_saved(saver_->finish());
        say_changed_data();
    }

    /// Of data files that somebody touched meanwhile: a later start would read something else.
    void say_changed_data() {
        if (!watched_) return;
        for (const std::string& change : watched_->changes()) log_line("data: " + change);
    }

    void print_saved(const std::optional<SaveReport>& saved) {
        if (!saved || rank_ != 0) return;
        log_->clear_bar();
        std::printf("saved %s: %.1f MiB in %.2f s", step_folder(options_.save, saved->step).c_str(),
                    static_cast<double>(saved->bytes) / (1 << 20), saved->seconds);
        if (options_.async_save) {
            std::printf(" beside the steps, copied in %.3f s", saved->copy_seconds);
        }
        std::printf("\n");
        std::fflush(stdout);
    }

    /// A full disk ends the run, but not in the middle of a step: the other ranks learn of it with
    /// the next one, and all end alike.
    void write_log(const std::function<void()>& work) {
        try {
            work();
        } catch (const OutputFileError&) {
            output_failure_ = std::current_exception();
        }
    }

    [[nodiscard]] std::string trace_path() const {
        const std::string schedule = std::filesystem::path(options_.schedule).stem().string();
        const Mesh mesh = mesh_of(options_, communicator_.size());
        return options_.trace_dir + "/" + schedule + "-" +
               std::string(to_string(options_.vocab_mode)) + "-p" + std::to_string(mesh.pipeline) +
               (mesh.data == 1 ? "" : "d" + std::to_string(mesh.data));
    }

    /// Passes of the steps so far, and links. Collective.
    [[nodiscard]] MeasuredCosts measure() {
        MeasuredCosts measured = meter_.gather(communicator_, plan_->mesh(),
                                               plan_->schedule().stages, plan_->threads() == 1);
        const int64_t boundary = plan_->boundary_bytes();
        if (links_.median.empty()) {
            links_ = measure_links(communicator_, *device_, trained_.executor->transport(),
                                   {.bytes = {8, boundary}});
        }
        fit_links(links_.median, boundary, measured.wall);
        fit_links(links_.fastest, boundary, measured.cpu);
        for (TableCosts* costs : {&measured.wall, &measured.cpu}) {
            derived_ = derive_missing(*costs);
            costs->communication = plan_->costs().communication;
        }
        return measured;
    }

    /// Builds the order again from what passes and messages really cost. All ranks see the same
    /// costs, so all make the same programs.
    void reorder() {
        const PassCosts costs = plan_->rebuild(measure().cpu);
        load_steps(*trained_.executor, *plan_);
        if (rank_ != 0) return;
        log_->clear_bar();
        const auto ms = [&](Op op) { return static_cast<double>(costs.mean(op)) * 1e-6; };
        std::printf(
            "schedule rebuilt from measured costs: F %.3f ms, B %.3f ms, b/f %.3f,\n"
            "  S %.3f ms, T %.3f ms, E %.3f ms, G %.3f ms, boundary message %.3f ms",
            ms(Op::F), ms(Op::B), ms(Op::B) / ms(Op::F), ms(Op::S), ms(Op::T), ms(Op::E), ms(Op::G),
            static_cast<double>(costs.hop) * 1e-6);
        if (has_recomputation(plan_->schedule())) std::printf(",\n  R %.3f ms", ms(Op::R));
        std::printf("\n");
    }

    // --- after the last step

    void finish() {
        const Timeline timeline = trained_.executor->gather_timeline(slot_);
        const MeasuredCosts measured = measure();
        report_.schedule = options_.schedule;
        report_.vocab_mode = std::string(to_string(options_.vocab_mode));
        report_.one_process = plan_->one_process();
        for (int rank = 0; rank < plan_->ranks(); ++rank) {
            const RankPlacement& placement = plan_->placement(rank);
            report_.devices.push_back(placement.device);
            if (!placement.memory && placement.ranks_sharing * plan_->threads() > placement.cores) {
                report_.shared_cores = placement.cores;
                report_.ranks_sharing = placement.ranks_sharing;
            }
        }
        report_.tokens_per_step = batch_size_ * options_.model.seq_length;
        const Program& program = programs()[static_cast<size_t>(rank_)];
        RankReport mine;
        mine.busy_share = usage_.busy_share();
        mine.bubble = usage_.bubble();
        mine.median_step_ns = usage_.median_step_ns();
        mine.live_peak_bytes = static_cast<int64_t>(program.live_peak_bytes);
        mine.arena_bytes = static_cast<int64_t>(trained_.executor->arena_bytes());
        mine.persistent_bytes = plan_->persistent(rank_).total();
        if (saver_ && !plan_->placement(rank_).memory) {
            mine.snapshot_bytes = static_cast<int64_t>(saver_->snapshot_bytes());
        }
        if (const auto start = plan_->placement(rank_).memory) {
            mine.start_bytes = static_cast<int64_t>(start->most_allocated);
            mine.measured_peak_bytes = static_cast<int64_t>(device_->memory()->most_allocated);
        } else {
            mine.start_bytes = start_memory_;
            mine.kernel_bytes = plan_->kernel_bytes(rank_);
            mine.measured_peak_bytes = process_memory().peak;
        }
        mine.memory_of = report_.one_process ? 0 : rank_;
        report_.ranks = gather_rank_reports(communicator_, mine);
        communicator_.agree([&] {
            if (rank_ == 0) write_results(timeline, measured);
        });
    }

    void write_results(const Timeline& timeline, const MeasuredCosts& measured) {
        const Simulation simulation = simulate(programs(), measured.cpu);
        report_.simulated_step_ns = simulation.summary.makespan_ns;
        report_.simulated_bubble = simulation.summary.bubble;
        report_.measured_step_ns = measured.median_step_ns;
        report_.fixed_step_ns = measured.wall.fixed_ns;
        report_.predicted_step_ns = simulate(programs(), measured.wall).summary.step_ns;
        const ReplayCosts replay(timeline, programs(), measured.wall);
        report_.replayed_ns = simulate(programs(), replay).summary.makespan_ns;
        report_.executed_ns = summarize(timeline, programs()).makespan_ns;
        print_report(report_);
        if (!options_.report.empty()) write_report(options_.report, report_);
        if (!options_.profile.empty())
            write_profile(options_.profile, plan_->profile(measured.wall, derived_, links_.median));
        if (!options_.trace_dir.empty()) {
            const std::string path = trace_path();
            const std::string name = path.substr(options_.trace_dir.size() + 1);
            write_chrome_trace(path + kExecutedTrace, timeline, programs(),
                               name + ", last step, executed");
            write_chrome_trace(path + kSimulatedTrace, simulation.timeline, programs(),
                               name + ", simulated from measured pass costs");
            std::printf("timeline: %s.json (open in https://ui.perfetto.dev)\n", path.c_str());
        }
        std::fflush(stdout);
    }

    Communicator& communicator_;
    const TrainOptions& options_;
    int rank_;
    int64_t start_memory_;
    std::unique_ptr<Device> device_;
    std::optional<TrainingPlan> plan_;
    std::optional<TrainingData> data_;
    std::optional<WatchedFiles> watched_;           ///< data, on rank 0
    std::unique_ptr<const SampleSource> samples_;   ///< to train on
    std::unique_ptr<const Checkpoint> checkpoint_;  ///< until its weights are in place
    std::optional<SaveFolder> save_folder_;         ///< on rank 0
    int64_t first_step_ = 1;
    int64_t consumed_samples_ = 0;  ///< of the data, over all runs
    size_t slot_ = 0;               ///< of the executor, of the last step of training
    RunLimits limits_;
    LearningRateSchedule learning_rate_;
    std::optional<StepLog> log_;         ///< on rank 0
    int64_t skipped_ = 0;                ///< steps of this run without an update
    int64_t skipped_in_a_row_ = 0;       ///< of them those at its end
    std::exception_ptr output_failure_;  ///< of the log's files, on rank 0
    TrainedRank trained_;
    std::optional<CheckpointSaver> saver_;
    bool said_that_saves_wait_ = false;
    std::optional<BatchLoader> batch_;
    int64_t batch_size_ = 0;          ///< of the last step, of all replicas
    EvaluationData evaluation_data_;  ///< until evaluation_ has it
    std::optional<Evaluation> evaluation_;
    RankUsage usage_;
    PassMeter meter_;
    LinkTimes links_;
    std::vector<Op> derived_;
    RunReport report_;
};

}  // namespace

void train(Communicator& communicator, const TrainOptions& options) {
    Trainer(communicator, options).run();
}

}  // namespace vocabpipe
