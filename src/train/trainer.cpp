// SPDX-License-Identifier: Apache-2.0
#include "src/train/trainer.hpp"

#include "src/runtime/wait.hpp"
#include "src/support/output_file.hpp"
#include "src/train/batch_loader.hpp"
#include "src/train/check_options.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/measure_links.hpp"
#include "src/train/metrics_file.hpp"
#include "src/train/pass_meter.hpp"
#include "src/train/process_memory.hpp"
#include "src/train/rank_placement.hpp"
#include "src/train/run_report.hpp"
#include "src/train/same_on_every_rank.hpp"
#include "src/train/trained_rank.hpp"
#include "src/train/training_plan.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
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
          start_memory_(process_memory().resident) {}

    void run() {
        check_same_options(communicator_, options_);
        communicator_.agree([this] { check_options(options_, communicator_.size()); });
        if (!options_.load.empty()) open_checkpoint();
        std::vector<RankPlacement> placements = find_placements(communicator_);
        device_ = open_device(communicator_, options_, placements);
        communicator_.agree([&] { prepare(std::move(placements)); });
        check_same_on_every_rank(communicator_, data_->fingerprint(), ExitCode::input_file,
                                 "give every rank the same files");
        if (rank_ == 0) plan_->print();
        trained_ = allocate_rank(communicator_, options_, *plan_, *device_);
        if (!options_.save.empty()) open_saver();
        if (checkpoint_) load();
        open_metrics();
        for (int64_t step = first_step_; step <= options_.train_iters; ++step) {
            const StepResult result = run_step(step);
            if (saver_) print_saved(saver_->poll());
            if (to_be_saved(step) || (!options_.save.empty() && result.stop_requested)) save(step);
            if (result.stop_requested) {
                if (rank_ == 0 && !output_failure_) {
                    std::printf("stop requested: ended after step %lld of %lld\n",
                                static_cast<long long>(step),
                                static_cast<long long>(options_.train_iters));
                }
                break;
            }
            if (step == first_step_ + kStepsBeforeCosts - 1 && !options_.schedule_costs &&
                options_.cost_file.empty() && step < options_.train_iters) {
                reorder();
            }
        }
        if (saver_) print_saved(saver_->finish());
        communicator_.agree([this] {
            if (output_failure_) std::rethrow_exception(output_failure_);
        });
        finish();
    }

private:
    // --- before the first step

    /// Before any file is opened for writing: what cannot be loaded must overwrite nothing.
    void open_checkpoint() {
        std::string found;  // by one rank: another may look while a step is being saved
        communicator_.agree([&] {
            if (rank_ != 0) return;
            const CheckpointSource source = find_checkpoint(options_.load, options_.finetune);
            found = (source.training ? 't' : 'w') + source.folder;
        });
        const std::vector<std::byte> first =
            communicator_.all_gather(std::as_bytes(std::span(found))).front();
        found.assign(reinterpret_cast<const char*>(first.data()), first.size());
        communicator_.agree([&] {
            checkpoint_.emplace(CheckpointSource{found.substr(1), found.front() == 't'});
            check_same_model(checkpoint_->config(), checkpoint_->config_path(), options_.model);
            if (checkpoint_->state()) continue_from(*checkpoint_->state());
        });
        checkpoint_->verify(communicator_);
    }

    void continue_from(const TrainingState& state) {
        const auto same = [&](const char* key, const std::string& theirs, const std::string& ours,
                              const char* flag) {
            if (theirs == ours) return;
            throw InputFileError(checkpoint_->training_path() + ": " + key + " is " + theirs +
                                 ", this run has " + ours + ", which means other data; give " +
                                 flag + " " + theirs +
                                 ", or --finetune to begin again with the weights");
        };
        same("seq_length", std::to_string(state.seq_length),
             std::to_string(options_.model.seq_length), "--seq-length");
        same("seed", std::to_string(state.seed), std::to_string(options_.seed), "--seed");
        if (state.step >= options_.train_iters) {
            throw UsageError("--train-iters " + std::to_string(options_.train_iters) + ": " +
                             checkpoint_->folder() + " is after step " +
                             std::to_string(state.step) + " already; give a larger number");
        }
        first_step_ = state.step + 1;
        first_sample_ = state.consumed_samples;
    }

    void print_checkpoint() const {
        if (!checkpoint_->state()) {
            std::printf("loaded weights of %s; optimizer, learning rate and data begin at step 1\n",
                        checkpoint_->folder().c_str());
            return;
        }
        const TrainingState& state = *checkpoint_->state();
        std::printf("loaded %s: goes on after step %lld and %lld samples; checksums are right\n",
                    checkpoint_->folder().c_str(), static_cast<long long>(state.step),
                    static_cast<long long>(state.consumed_samples));
        std::string changed;
        for (const std::string& flag : bit_flags()) {
            const std::string name = flag.substr(0, flag.find(' ') + 1);
            const auto then =
                std::find_if(state.flags.begin(), state.flags.end(),
                             [&](const std::string& other) { return other.starts_with(name); });
            if (then == state.flags.end() || *then == flag) continue;
            changed += (changed.empty() ? "" : ", ") + flag + " (was " +
                       readable(then->substr(name.size())) + ")";
        }
        if (!changed.empty()) {
            std::printf("not as in the run that saved it: %s\n", changed.c_str());
        }
        std::fflush(stdout);
    }

    /// What decides the bits of a run: flags, number of ranks, data.
    [[nodiscard]] std::vector<std::string> bit_flags() const {
        std::vector<std::string> flags = shared_flags(options_);
        std::erase_if(flags, [](const std::string& flag) {
            return flag.starts_with("--save") || flag.starts_with("--async-save") ||
                   flag.starts_with("--max-shard-size") || flag.starts_with("--load") ||
                   flag.starts_with("--finetune");
        });
        flags.push_back("ranks " + std::to_string(communicator_.size()));
        for (std::string& flag : data_->flags()) flags.push_back(std::move(flag));
        flags.push_back("samples-per-epoch " + std::to_string(samples_->samples_per_epoch()));
        return flags;
    }

    /// Everything that can be wrong without memory for a model.
    void prepare(std::vector<RankPlacement> placements) {
        plan_.emplace(options_, std::move(placements), device_->operators());
        plan_->check_memory(rank_);
        open_data();
        if (rank_ == 0) {
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

    void open_data() {
        data_.emplace(options_.data);
        // One rank scans; agree() tells the others.
        if (rank_ == 0) data_->check(options_.model.vocab_size);
        samples_ = data_->samples(DataSplit::train,
                                  {.seq_length = options_.model.seq_length, .seed = options_.seed});
        batch_.emplace(*samples_, StepBatchOptions{.micro_batch_size = options_.micro_batch_size,
                                                   .replica = plan_->mesh().replica(rank_),
                                                   .replicas = plan_->mesh().data,
                                                   .masks = data_->masks()});
    }

    void load() {
        communicator_.agree(
            [this] { checkpoint_->fill(*trained_.model, trained_.executor->context()); });
        if (rank_ == 0) print_checkpoint();
        checkpoint_.reset();
    }

    /// Last of all, for it takes away what the file has: a run that is refused changes none.
    void open_metrics() {
        communicator_.agree([this] {
            if (rank_ != 0 || options_.metrics.empty()) return;
            metrics_.emplace(options_.metrics, first_step_ - 1);
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
        const LearningRateSchedule learning_rate{options_.lr, options_.min_lr,
                                                 options_.lr_warmup_iters, options_.train_iters};
        const int64_t begin = now_ns();
        const StepBatch& batch = batch_->load(samples_before(step), plan_->microbatches());
        if (step < options_.train_iters) {
            batch_->prefetch(samples_before(step + 1), plan_->microbatches());
        }
        const double lr = learning_rate.at(step);
        trained_.optimizer->begin_step(
            step, static_cast<float>(lr), batch.counted_tokens(),
            output_failure_ || (options_.stop_requested && options_.stop_requested()));
        trained_.executor->set_step(step);
        trained_.executor->run_step(batch.microbatches());
        const int64_t duration = now_ns() - begin;

        const StepResult result = trained_.optimizer->result();
        const double seconds = static_cast<double>(duration) * 1e-9;
        const double tokens = static_cast<double>(options_.global_batch_size) *
                              static_cast<double>(options_.model.seq_length);
        usage_.add_step(trained_.executor->timeline(), duration);
        meter_.add_step(trained_.executor->timeline(),
                        plan_->programs()[static_cast<size_t>(rank_)], duration);
        if (step == first_step_) report_.first_loss = result.loss;
        report_.last_loss = result.loss;
        if (rank_ == 0) {
            if (step % options_.log_interval == 0 || step == options_.train_iters) {
                std::printf(
                    " iteration %8lld/%8lld | consumed samples: %12lld | elapsed time per "
                    "iteration (ms): %.1f | tokens per second: %.1f | learning rate: %.6E | "
                    "global batch size: %5lld | lm loss: %.6E | grad norm: %.3f |%s\n",
                    static_cast<long long>(step), static_cast<long long>(options_.train_iters),
                    static_cast<long long>(samples_before(step + 1)), seconds * 1e3,
                    tokens / seconds, lr, static_cast<long long>(options_.global_batch_size),
                    result.loss, result.grad_norm,
                    result.updated ? ""
                                   : " update skipped: no counted token or non-finite gradient |");
                std::fflush(stdout);
            }
            if (metrics_ && !output_failure_) {
                add_metrics({.step = step,
                             .loss = result.loss,
                             .grad_norm = result.grad_norm,
                             .lr = lr,
                             .tokens_per_second = tokens / seconds,
                             .step_seconds = seconds,
                             .updated = result.updated});
            }
        }
        return result;
    }

    /// Of the data, over all runs.
    [[nodiscard]] int64_t samples_before(int64_t step) const {
        return first_sample_ + (step - first_step_) * options_.global_batch_size;
    }

    [[nodiscard]] bool to_be_saved(int64_t step) const {
        if (options_.save.empty()) return false;
        return step == options_.train_iters ||
               (options_.save_interval > 0 && step % options_.save_interval == 0);
    }

    void save(int64_t step) {
        if (saver_->pending()) {
            if (rank_ == 0 && saver_->writing() && !said_that_saves_wait_) {
                std::printf(
                    "step %lld waits until the step before it is saved, as others will: writing "
                    "takes longer than the steps between two saves\n",
                    static_cast<long long>(step));
                said_that_saves_wait_ = true;
            }
            print_saved(saver_->finish());
        }
        saver_->begin({.step = step,
                       .consumed_samples = samples_before(step + 1),
                       .seq_length = options_.model.seq_length,
                       .seed = options_.seed,
                       .dtype = options_.model.dtype == DType::bf16 ? "bf16" : "fp32",
                       .flags = bit_flags()});
        if (!options_.async_save) print_saved(saver_->finish());
    }

    void print_saved(const std::optional<SaveReport>& saved) const {
        if (!saved || rank_ != 0) return;
        std::printf("saved %s: %.1f MiB in %.2f s", step_folder(options_.save, saved->step).c_str(),
                    static_cast<double>(saved->bytes) / (1 << 20), saved->seconds);
        if (options_.async_save) {
            std::printf(", beside the steps; the copy took %.3f s", saved->copy_seconds);
        }
        std::printf("\n");
        std::fflush(stdout);
    }

    /// A full disk ends the run, but not in the middle of a step: the other ranks learn of it with
    /// the next one, and all end alike.
    void add_metrics(const StepMetrics& metrics) {
        try {
            metrics_->add(metrics);
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
        }
        return measured;
    }

    /// Builds the order again from what passes and messages really cost. All ranks see the same
    /// costs, so all make the same programs.
    void reorder() {
        const PassCosts costs = plan_->rebuild(measure().cpu);
        trained_.executor->load(plan_->programs());
        if (rank_ != 0) return;
        const auto ms = [&](Op op) { return static_cast<double>(costs.mean(op)) * 1e-6; };
        std::printf(
            "schedule rebuilt from measured costs: F %.3f ms, B %.3f ms, b/f %.3f, S %.3f ms, "
            "T %.3f ms, E %.3f ms, G %.3f ms, boundary message %.3f ms",
            ms(Op::F), ms(Op::B), ms(Op::B) / ms(Op::F), ms(Op::S), ms(Op::T), ms(Op::E), ms(Op::G),
            static_cast<double>(costs.hop) * 1e-6);
        if (has_recomputation(plan_->schedule())) std::printf(", R %.3f ms", ms(Op::R));
        std::printf("\n");
    }

    // --- after the last step

    void finish() {
        const Timeline timeline = trained_.executor->gather_timeline();
        const MeasuredCosts measured = measure();
        report_.schedule = options_.schedule;
        report_.vocab_mode = std::string(to_string(options_.vocab_mode));
        report_.one_process = options_.ranks_are_threads && !plan_->placement(0).memory;
        for (int rank = 0; rank < plan_->ranks(); ++rank) {
            report_.devices.push_back(plan_->placement(rank).device);
        }
        report_.tokens_per_step = options_.global_batch_size * options_.model.seq_length;
        const Program& program = plan_->programs()[static_cast<size_t>(rank_)];
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
            const Device::Memory now = *device_->memory();
            mine.start_bytes = static_cast<int64_t>(start->total - start->free);
            mine.measured_peak_bytes = static_cast<int64_t>(now.total - now.free);
        } else {
            mine.start_bytes = start_memory_;
            mine.kernel_bytes = kHostKernelBytes;
            mine.measured_peak_bytes = process_memory().peak;
        }
        mine.memory_of = first_with_memory_of(rank_);
        report_.ranks = gather_rank_reports(communicator_, mine);
        communicator_.agree([&] {
            if (rank_ == 0) write_results(timeline, measured);
        });
    }

    [[nodiscard]] int first_with_memory_of(int rank) const {
        if (report_.one_process) return 0;
        const RankPlacement& place = plan_->placement(rank);
        int first = 0;
        while (first < rank && !(place.memory && plan_->placement(first).host == place.host &&
                                 plan_->placement(first).device == place.device)) {
            ++first;
        }
        return first;
    }

    void write_results(const Timeline& timeline, const MeasuredCosts& measured) {
        const Simulation simulation = simulate(plan_->programs(), measured.cpu);
        report_.simulated_step_ns = simulation.summary.makespan_ns;
        report_.simulated_bubble = simulation.summary.bubble;
        report_.measured_step_ns = measured.median_step_ns;
        report_.fixed_step_ns = measured.wall.fixed_ns;
        report_.predicted_step_ns = simulate(plan_->programs(), measured.wall).summary.step_ns;
        const ReplayCosts replay(timeline, plan_->programs(), measured.wall);
        report_.replayed_ns = simulate(plan_->programs(), replay).summary.makespan_ns;
        report_.executed_ns = summarize(timeline, plan_->programs()).makespan_ns;
        print_report(report_);
        if (!options_.report.empty()) write_report(options_.report, report_);
        if (!options_.profile.empty())
            write_profile(options_.profile, plan_->profile(measured.wall, derived_, links_.median));
        if (metrics_) metrics_->close();
        if (!options_.trace_dir.empty()) {
            const std::string path = trace_path();
            const std::string name = path.substr(options_.trace_dir.size() + 1);
            write_chrome_trace(path + ".json", timeline, plan_->programs(),
                               name + ", last step, executed");
            write_chrome_trace(path + ".simulated.json", simulation.timeline, plan_->programs(),
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
    std::unique_ptr<const SampleSource> samples_;  ///< to train on
    std::optional<Checkpoint> checkpoint_;         ///< until its weights are in place
    std::optional<SaveFolder> save_folder_;        ///< on rank 0
    int64_t first_step_ = 1;
    int64_t first_sample_ = 0;  ///< of first_step_
    std::optional<MetricsFile> metrics_;
    std::exception_ptr output_failure_;  ///< of the metrics file, on rank 0
    TrainedRank trained_;
    std::optional<CheckpointSaver> saver_;
    bool said_that_saves_wait_ = false;
    std::optional<BatchLoader> batch_;
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
