// SPDX-License-Identifier: Apache-2.0
#include "src/train/trainer.hpp"

#include "src/model/flop_costs.hpp"
#include "src/model/gpt.hpp"
#include "src/runtime/wait.hpp"
#include "src/support/output_file.hpp"
#include "src/train/check_options.hpp"
#include "src/train/data/check_tokens.hpp"
#include "src/train/data/open_tokens.hpp"
#include "src/train/data/token_dataset.hpp"
#include "src/train/learning_rate.hpp"
#include "src/train/measure_links.hpp"
#include "src/train/metrics_file.hpp"
#include "src/train/pass_meter.hpp"
#include "src/train/process_memory.hpp"
#include "src/train/rank_placement.hpp"
#include "src/train/run_report.hpp"
#include "src/train/step_batch.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/generate.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/simulate.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

namespace vocabpipe {

namespace {

/// The first step pays for kernels that are compiled on first use; the last of these is measured.
constexpr int64_t kStepsBeforeCosts = 3;

std::string mib(int64_t bytes) {
    return std::to_string((bytes + (1 << 19)) >> 20) + " MiB";
}

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
        placements_ = find_placements(communicator_);
        communicator_.agree([this] { prepare(); });
        print_placement();
        communicator_.agree([this] { allocate(); });
        executor_->load(programs_);
        for (int64_t step = 1; step <= options_.train_iters; ++step) {
            const StepResult result = run_step(step);
            if (result.stop_requested) {
                if (rank_ == 0 && !output_failure_) {
                    std::printf("stop requested: ended after step %lld of %lld\n",
                                static_cast<long long>(step),
                                static_cast<long long>(options_.train_iters));
                }
                break;
            }
            if (step == kStepsBeforeCosts && !options_.schedule_costs &&
                options_.cost_file.empty() && step < options_.train_iters) {
                reorder();
            }
        }
        communicator_.agree([this] {
            if (output_failure_) std::rethrow_exception(output_failure_);
        });
        finish();
    }

private:
    // --- before the first step

    /// Everything that can be wrong without memory for a model.
    void prepare() {
        microbatches_ = static_cast<int>(options_.global_batch_size / options_.micro_batch_size);
        threads_ = options_.threads_per_rank;
        if (threads_ == 0) {
            threads_ = placements_.front().threads();
            for (const RankPlacement& p : placements_) threads_ = std::min(threads_, p.threads());
        }
        schedule_ = make_schedule(given_costs(), kUnit * options_.c0_margin);
        check_layers();
        partition_ = {.layers_per_stage = layers_per_stage(options_.model.num_layers,
                                                           schedule_.stages, options_.vocab_mode,
                                                           output_layer_in_layers(options_.model)),
                      .micro_batch_size = options_.micro_batch_size,
                      .threads_per_rank = threads_};
        sizes_ = step_sizes(options_.model, partition_, schedule_);
        if (options_.cost_file.empty()) {
            costs_ = flop_costs(options_.model, partition_, schedule_);
        } else {
            costs_ = costs_of_file();
            schedule_ = make_schedule(PassCosts::of(costs_, sizes_, schedule_), options_.c0_margin);
        }
        programs_ = lower(schedule_, sizes_, costs_);
        check_memory();
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
            if (!options_.metrics.empty()) metrics_.emplace(options_.metrics);
        }
    }

    static constexpr int64_t kUnit = 12;  // so that halves and thirds of small ratios stay whole

    /// Of --schedule-costs F,B, or as good a guess.
    [[nodiscard]] PassCosts given_costs() const {
        const auto [forward, backward] =
            options_.schedule_costs.value_or(std::pair<int64_t, int64_t>{1, 2});
        return PassCosts::uniform(kUnit * forward, kUnit * backward, kUnit * forward / 3);
    }

    [[nodiscard]] Schedule make_schedule(const PassCosts& costs, int64_t c0_margin) const {
        return generate(options_.schedule, {.ranks = communicator_.size(),
                                            .microbatches = microbatches_,
                                            .vocab_mode = options_.vocab_mode,
                                            .vocab_size = options_.model.vocab_size,
                                            .chunks = options_.chunks,
                                            .warm_up_depth = options_.warm_up_depth,
                                            .group_size = options_.group_size,
                                            .memory_limit = options_.memory_limit,
                                            .costs = costs,
                                            .c0_margin = c0_margin});
    }

    /// Several stages per rank need as many layers.
    void check_layers() const {
        if (options_.model.num_layers >= schedule_.stages ||
            options_.vocab_mode == VocabMode::redistributed) {
            return;
        }
        throw UsageError("--num-layers " + std::to_string(options_.model.num_layers) +
                         ": must be at least the number of stages, " +
                         std::to_string(schedule_.stages) + " (" + options_.schedule + ", " +
                         std::to_string(schedule_.stages / schedule_.ranks) +
                         " per rank); use more layers or fewer stages");
    }

    /// Of --schedule-costs FILE, which must have measured this very split.
    [[nodiscard]] TableCosts costs_of_file() const {
        const Profile profile = read_profile(options_.cost_file);
        const auto refuse = [&](const std::string& what, const auto& theirs, const auto& ours) {
            if (theirs == ours) return;
            throw UsageError("--schedule-costs " + options_.cost_file + ": was measured with " +
                             what + "; measure with the flags of this run, or use auto");
        };
        const auto number = [&](const std::string& what, int64_t theirs, int64_t ours) {
            refuse(what + " " + std::to_string(theirs) + ", not " + std::to_string(ours), theirs,
                   ours);
        };
        number("ranks", profile.ranks(), schedule_.ranks);
        number("stages", profile.stages(), schedule_.stages);
        number("tokens per microbatch", profile.sizes.tokens, sizes_.tokens);
        number("hidden size", profile.sizes.hidden, sizes_.hidden);
        number("vocabulary", profile.model.vocab, options_.model.vocab_size);
        refuse("other layers per stage", profile.model.layers_per_stage,
               partition_.layers_per_stage);
        refuse("another placement of the stages", profile.rank_of_stage, schedule_.rank_of_stage);
        refuse("other embedding rows per rank", profile.input, schedule_.input);
        refuse("other output rows per rank", profile.output, schedule_.output);
        return profile.costs;
    }

    [[nodiscard]] int64_t planned_bytes(int rank) const {
        return persistent_bytes(options_.model, partition_, schedule_, rank).total() +
               static_cast<int64_t>(programs_[static_cast<size_t>(rank)].arena_bytes);
    }

    /// All ranks of this host together must fit into what is free now.
    void check_memory() const {
        const std::string& host = placements_[static_cast<size_t>(rank_)].host;
        int64_t planned = 0;
        int64_t largest = 0;
        int largest_rank = 0;
        for (int rank = 0; rank < communicator_.size(); ++rank) {
            if (placements_[static_cast<size_t>(rank)].host != host) continue;
            const int64_t bytes = planned_bytes(rank);
            planned += bytes;
            if (bytes > largest) {
                largest = bytes;
                largest_rank = rank;
            }
        }
        const int64_t available = available_memory();
        if (planned <= available) return;
        throw OutOfMemoryError(
            host + ": the plan needs " + mib(planned) + " (most on rank " +
            std::to_string(largest_rank) + ": " + mib(largest) + "), " + mib(available) +
            " are available; reduce --micro-batch-size, --hidden-size or --num-layers, use more "
            "hosts, or --vocab-mode one_barrier");
    }

    void open_data() {
        if (options_.data_path.empty()) throw UsageError("--data-path: is required");
        std::shared_ptr<const TokenSource> source =
            open_tokens(options_.data_path, parse_data_format(options_.data_format));
        // One rank scans; agree() tells the others.
        if (rank_ == 0) check_tokens(*source, options_.model.vocab_size);
        dataset_.emplace(
            std::move(source),
            TokenDatasetOptions{.seq_length = options_.model.seq_length, .seed = options_.seed});
    }

    void print_placement() const {
        if (rank_ != 0) return;
        std::printf(
            "%s, vocab mode %s, %d ranks x %d threads, %d microbatches of %lld x %lld tokens, "
            "%s, %.2f M parameters\n",
            options_.schedule.c_str(), std::string(to_string(options_.vocab_mode)).c_str(),
            communicator_.size(), threads_, microbatches_,
            static_cast<long long>(options_.micro_batch_size),
            static_cast<long long>(options_.model.seq_length),
            options_.model.dtype == DType::bf16 ? "bf16" : "fp32", parameter_count() / 1e6);
        std::printf("%4s  %-20s %-10s %6s %14s %14s %12s\n", "rank", "host", "stages", "layers",
                    "embedding rows", "output rows", "planned MiB");
        for (int rank = 0; rank < communicator_.size(); ++rank) {
            int layers = 0;
            std::string stages;
            for (size_t s = 0; s < partition_.layers_per_stage.size(); ++s) {
                if (schedule_.rank_of_stage[s] != rank) continue;
                layers += partition_.layers_per_stage[s];
                stages += (stages.empty() ? "" : ",") + std::to_string(s);
            }
            std::printf("%4d  %-20s %-10s %6d %14lld %14lld %12.1f\n", rank,
                        placements_[static_cast<size_t>(rank)].host.c_str(), stages.c_str(), layers,
                        static_cast<long long>(schedule_.input.rows(rank)),
                        static_cast<long long>(schedule_.output.rows(rank)),
                        static_cast<double>(planned_bytes(rank)) / (1 << 20));
        }
        std::fflush(stdout);
    }

    [[nodiscard]] double parameter_count() const {
        double count = 0;
        for (const LogicalParameter& p : gpt_parameters(options_.model)) {
            count += static_cast<double>(p.rows * p.cols);
        }
        return count;
    }

    void allocate() {
        model_ = std::make_unique<GptRank>(options_.model, partition_, schedule_, rank_);
        optimizer_ = std::make_unique<OptimizerStep>(*model_, schedule_, rank_, options_.optimizer);
        RankModules modules = model_->modules();
        modules.step = optimizer_.get();
        executor_ = std::make_unique<Executor>(communicator_, modules, sizes_,
                                               ExecutorOptions{.threads = threads_});
        model_->initialise(executor_->context(), options_.seed);
        batch_ = std::make_unique<StepBatch>(*dataset_, options_.micro_batch_size, microbatches_);
    }

    // --- steps

    StepResult run_step(int64_t step) {
        const LearningRateSchedule learning_rate{options_.lr, options_.min_lr,
                                                 options_.lr_warmup_iters, options_.train_iters};
        const int64_t begin = now_ns();
        batch_->load(step);
        const double lr = learning_rate.at(step);
        if (model_->output() != nullptr) model_->output()->begin_step(microbatches_);
        optimizer_->begin_step(
            step, static_cast<float>(lr), batch_->counted_tokens(),
            output_failure_ || (options_.stop_requested && options_.stop_requested()));
        executor_->set_step(step);
        executor_->run_step(batch_->microbatches());
        const int64_t duration = now_ns() - begin;

        const StepResult& result = optimizer_->result();
        const double seconds = static_cast<double>(duration) * 1e-9;
        const double tokens = static_cast<double>(options_.global_batch_size) *
                              static_cast<double>(options_.model.seq_length);
        usage_.add_step(executor_->timeline(), duration);
        meter_.add_step(executor_->timeline(), programs_[static_cast<size_t>(rank_)], duration);
        if (step == 1) report_.first_loss = result.loss;
        report_.last_loss = result.loss;
        if (rank_ == 0) {
            if (step % options_.log_interval == 0 || step == options_.train_iters) {
                std::printf(
                    " iteration %8lld/%8lld | consumed samples: %12lld | elapsed time per "
                    "iteration (ms): %.1f | tokens per second: %.1f | learning rate: %.6E | "
                    "global batch size: %5lld | lm loss: %.6E | grad norm: %.3f |%s\n",
                    static_cast<long long>(step), static_cast<long long>(options_.train_iters),
                    static_cast<long long>(step * options_.global_batch_size), seconds * 1e3,
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
        return options_.trace_dir + "/" + options_.schedule + "-" +
               std::string(to_string(options_.vocab_mode)) + "-p" +
               std::to_string(communicator_.size());
    }

    /// Passes of the steps so far, and links. Collective.
    [[nodiscard]] MeasuredCosts measure() {
        MeasuredCosts measured = meter_.gather(communicator_, schedule_.stages, threads_ == 1);
        const int64_t boundary = sizes_.tokens * sizes_.hidden * size_of(sizes_.dtype);
        if (links_.empty()) links_ = measure_links(communicator_, {.bytes = {8, boundary}});
        for (TableCosts* costs : {&measured.wall, &measured.cpu}) {
            fit_links(links_, boundary, *costs);
            derived_ = derive_missing(*costs);
        }
        return measured;
    }

    /// Builds the order again from what passes and messages really cost. All ranks see the same
    /// costs, so all make the same programs.
    void reorder() {
        costs_ = measure().cpu;
        const PassCosts costs = PassCosts::of(costs_, sizes_, schedule_);
        schedule_ = make_schedule(costs, options_.c0_margin);
        programs_ = lower(schedule_, sizes_, costs_);
        executor_->load(programs_);
        if (rank_ != 0) return;
        const auto ms = [&](Op op) { return static_cast<double>(costs.mean(op)) * 1e-6; };
        std::printf(
            "schedule rebuilt from measured costs: F %.3f ms, B %.3f ms, b/f %.3f, S %.3f ms, "
            "T %.3f ms, E %.3f ms, G %.3f ms, boundary message %.3f ms\n",
            ms(Op::F), ms(Op::B), ms(Op::B) / ms(Op::F), ms(Op::S), ms(Op::T), ms(Op::E), ms(Op::G),
            static_cast<double>(costs.hop) * 1e-6);
    }

    // --- after the last step

    void finish() {
        const Timeline timeline = executor_->gather_timeline();
        const MeasuredCosts measured = measure();
        report_.schedule = options_.schedule;
        report_.vocab_mode = std::string(to_string(options_.vocab_mode));
        report_.ranks_are_threads = options_.ranks_are_threads;
        report_.tokens_per_step = options_.global_batch_size * options_.model.seq_length;
        const Program& program = programs_[static_cast<size_t>(rank_)];
        RankReport mine;
        mine.busy_share = usage_.busy_share();
        mine.bubble = usage_.bubble();
        mine.median_step_ns = usage_.median_step_ns();
        mine.live_peak_bytes = static_cast<int64_t>(program.live_peak_bytes);
        mine.arena_bytes = static_cast<int64_t>(executor_->arena_bytes());
        mine.persistent_bytes =
            persistent_bytes(options_.model, partition_, schedule_, rank_).total();
        mine.start_bytes = start_memory_;
        mine.measured_peak_bytes = process_memory().peak;
        report_.ranks = gather_rank_reports(communicator_, mine);
        communicator_.agree([&] {
            if (rank_ == 0) write_results(timeline, measured);
        });
    }

    void write_results(const Timeline& timeline, const MeasuredCosts& measured) {
        const Simulation simulation = simulate(programs_, measured.cpu);
        report_.simulated_step_ns = simulation.summary.makespan_ns;
        report_.simulated_bubble = simulation.summary.bubble;
        report_.measured_step_ns = measured.median_step_ns;
        report_.fixed_step_ns = measured.wall.fixed_ns;
        report_.predicted_step_ns = simulate(programs_, measured.wall).summary.step_ns;
        print_report(report_);
        if (!options_.report.empty()) write_report(options_.report, report_);
        if (!options_.profile.empty()) write_profile(options_.profile, profile_of(measured.wall));
        if (metrics_) metrics_->close();
        if (!options_.trace_dir.empty()) {
            const std::string path = trace_path();
            const std::string name = path.substr(options_.trace_dir.size() + 1);
            write_chrome_trace(path + ".json", timeline, programs_, name + ", last step, executed");
            write_chrome_trace(path + ".simulated.json", simulation.timeline, programs_,
                               name + ", simulated from measured pass costs");
            std::printf("timeline: %s.json (open in https://ui.perfetto.dev)\n", path.c_str());
        }
        std::fflush(stdout);
    }

    [[nodiscard]] Profile profile_of(const TableCosts& costs) const {
        const GptConfig& m = options_.model;
        Profile profile;
        profile.host = placements_.front().host;
        profile.device = "host, " + std::to_string(threads_) + " threads per rank";
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
        profile.rank_of_stage = schedule_.rank_of_stage;
        profile.input = schedule_.input;
        profile.output = schedule_.output;
        profile.barriers = schedule_.barriers;
        profile.costs = costs;
        profile.derived = derived_;
        profile.sizes = sizes_;
        for (int rank = 0; rank < communicator_.size(); ++rank) {
            profile.persistent.push_back(persistent_bytes(m, partition_, schedule_, rank));
        }
        profile.links = links_;
        return profile;
    }

    Communicator& communicator_;
    const TrainOptions& options_;
    int rank_;
    int64_t start_memory_;
    int microbatches_ = 1;
    int threads_ = 1;
    std::vector<RankPlacement> placements_;
    Schedule schedule_;
    GptPartition partition_;
    StepSizes sizes_;
    TableCosts costs_;
    std::vector<Program> programs_;
    std::optional<TokenDataset> dataset_;
    std::optional<MetricsFile> metrics_;
    std::exception_ptr output_failure_;  ///< of the metrics file, on rank 0
    std::unique_ptr<GptRank> model_;
    std::unique_ptr<OptimizerStep> optimizer_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<StepBatch> batch_;
    RankUsage usage_;
    PassMeter meter_;
    std::vector<LinkSample> links_;
    std::vector<Op> derived_;
    RunReport report_;
};

}  // namespace

void train(Communicator& communicator, const TrainOptions& options) {
    Trainer(communicator, options).run();
}

}  // namespace vocabpipe
