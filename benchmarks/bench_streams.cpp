// SPDX-License-Identifier: Apache-2.0
// Steps whose boundaries travel in pieces against steps with whole messages; and steps whose pairs
// run on two lanes against steps whose pairs run one pass after the other.
//
//     bench_streams --ranks 2                                  threads: nothing to hide
//     mpirun -np 2 bench_streams --link modelled:0.2           a hop takes 0.2 of F
//     mpirun -np 2 bench_streams --link modelled:0.1 --tensor 2 --pairs --schedule dualpipe-v
//         --pieces 1                             the rows of a boundary take 0.1 of F on the link
//
// All numbers of pieces, and with --pairs both orders of pairs, take turns, one step each per
// round, on the same weights and tokens (the learning rate is 0). With --pairs the same steps run
// on the real link as well, where nothing needs to be hidden. Columns: pairs, how they run; step,
// the median over rounds of the slowest rank's time; ratio, the median over rounds of the step over
// that with the first number of pieces; cpu, the same for the CPU time of all ranks' actions, which
// other work on the machine hardly changes; simulated, from the passes of these steps without their
// waits; error, simulated over step, minus 1; #wrong, steps whose loss or gradient norm differs in
// a bit from the very first one.
#include "benchmarks/median.hpp"
#include "benchmarks/modelled_host.hpp"
#include "benchmarks/team_bench.hpp"
#include "src/runtime/wait.hpp"
#include "src/step/random_batch.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/train/measure/measure_links.hpp"
#include "src/train/measure/pass_meter.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace vocabpipe;
using bench::median;

constexpr const char* kProgram = "bench_streams";
constexpr int kWarmUp = 2;  // rounds in which kernels are compiled

struct Options {
    ModelConfig model;
    int ranks = 0;  // 0: those of mpirun, or 2 threads
    std::string schedule = "1f1b";
    VocabMode vocab_mode = VocabMode::none;
    int microbatches_per_rank = 4;
    int64_t micro_batch_size = 1;
    std::vector<int> pieces{1, 2, 4, 8};
    int rounds = 15;
    std::string link = "real";
    int tensor = 1;
    int expert = 1;
    bool pairs = false;
};

/// One of the steps that are compared.
struct Variant {
    int pieces = 1;
    bool overlap_pairs = true;
};

/// Median over rounds of the ratio to `base`.
double median_ratio(const std::vector<double>& values, const std::vector<double>& base) {
    std::vector<double> ratios;
    for (size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / base[i]);
    return median(std::move(ratios));
}

std::vector<double> of_all_ranks(Communicator& world, double mine) {
    std::vector<double> all;
    for (const auto& part : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
        std::memcpy(&all.emplace_back(), part.data(), sizeof mine);
    }
    return all;
}

/// Times with one number of pieces, by round.
struct Rounds {
    std::vector<double> seconds;  ///< of the slowest rank's step
    std::vector<double> cpu;      ///< seconds of all ranks' actions
};

class Bench {
public:
    Bench(Communicator& world, const Options& options)
        : world_(world),
          options_(options),
          pipeline_(world.size() / std::max(options.tensor, options.expert)),
          work_{.microbatches = options.microbatches_per_rank * pipeline_,
                .micro_batch_size = options.micro_batch_size},
          batch_(options.model, work_.micro_batch_size, work_.microbatches, 7),
          device_(make_host_device()) {
        for (const int pieces : options.pieces) {
            if (options.pairs) variants_.push_back({pieces, false});
            variants_.push_back({pieces, true});
        }
    }

    /// Returns the number of wrong steps.
    int64_t run() {
        set_link();
        std::vector<StepPlan> plans;
        for (const Variant& variant : variants_) plans.push_back(plan(variant));
        if (options_.pairs) time_on_real_link(plans.front());
        TrainedRank rank(world_, *device_, plans, {.seed = 1});
        std::vector<PassMeter> meters(plans.size());
        std::vector<Rounds> rounds(plans.size());
        std::vector<int64_t> wrong(plans.size(), 0);
        std::optional<StepResult> first;
        for (int round = 0; round < kWarmUp + options_.rounds; ++round) {
            for (size_t i = 0; i < plans.size(); ++i) {
                const double mine = timed_step(rank, i);
                const StepResult result = rank.report();
                if (!first) first = result;
                if (result.loss != first->loss || result.grad_norm != first->grad_norm) ++wrong[i];
                if (round < kWarmUp) continue;
                rounds[i].seconds.push_back(std::ranges::max(of_all_ranks(world_, mine)));
                const std::vector<double> cpu = of_all_ranks(world_, cpu_seconds(rank, i));
                rounds[i].cpu.push_back(std::accumulate(cpu.begin(), cpu.end(), 0.0));
                meters[i].add_step(rank.executor().timeline(i), rank.executor().program(i),
                                   static_cast<int64_t>(mine * 1e9));
            }
        }
        int64_t all_wrong = 0;
        for (size_t i = 0; i < plans.size(); ++i) {
            print_row(plans[i], variants_[i], rounds[i], rounds.front(), meters[i], wrong[i]);
            all_wrong += wrong[i];
        }
        return all_wrong;
    }

private:
    [[nodiscard]] StepPlan plan(const Variant& variant) const {
        return plan_step(options_.model,
                         {.ranks = pipeline_,
                          .replicas = options_.expert,
                          .tensor = options_.tensor,
                          .expert = options_.expert,
                          .threads_per_rank = 1,
                          .costs = costs_},
                         {.name = options_.schedule,
                          .vocab_mode = options_.vocab_mode,
                          .rule = {.overlap_pairs = options_.pairs},
                          .receive_ahead = 0,
                          .pieces = variant.pieces,
                          .overlap_pairs = variant.overlap_pairs},
                         work_);
    }

    /// Prints the step where messages take next to no time: what is left if all is hidden.
    void time_on_real_link(const StepPlan& of_step) {
        const std::unique_ptr<Device> host = make_host_device();
        TrainedRank rank(world_, *host, of_step, {.seed = 1});
        std::vector<double> seconds;
        for (int round = 0; round < kWarmUp + options_.rounds; ++round) {
            const double mine = timed_step(rank, 0);
            if (round < kWarmUp) continue;
            seconds.push_back(std::ranges::max(of_all_ranks(world_, mine)));
        }
        if (world_.rank() != 0) return;
        std::printf("  %6s %7s %9.2f\n", "real", "after", median(seconds) * 1e3);
    }

    /// Measures F (the fastest) and sets the link: a modelled one in proportion to F, or the real
    /// one.
    void set_link() {
        const StepPlan plain = plan({.overlap_pairs = false});
        const int64_t boundary =
            plain.sizes.tokens * plain.sizes.hidden * size_of(plain.sizes.dtype);
        PassMeter meter;
        TrainedRank rank(world_, *device_, plain, {.seed = 1});
        for (int step = 0; step < 2 + kWarmUp; ++step) {
            const double seconds = timed_step(rank, 0);
            meter.add_step(rank.executor().timeline(0), rank.executor().program(0),
                           static_cast<int64_t>(seconds * 1e9));
        }
        costs_ = meter.gather(world_, plain.mesh(), plain.schedule.stages, true).wall;
        (void)derive_missing(*costs_);
        int64_t forward = INT64_MAX;
        for (const auto& stage : costs_->stage_ns) {
            forward = std::min(forward, stage[static_cast<size_t>(Op::F)]);
        }
        const double ratio = bench::modelled_ratio(options_.link);
        if (ratio > 0) {
            link_.bytes_per_ns =
                static_cast<double>(boundary) / (ratio * static_cast<double>(forward));
            device_ = bench::make_modelled_host(link_);
        } else {
            TableCosts fitted;
            fit_links(measure_links(world_, *device_, world_.transport(), {.bytes = {8, boundary}})
                          .median,
                      boundary, fitted);
            link_ = {.bytes_per_ns = fitted.bytes_per_ns, .latency_ns = fitted.latency_ns};
        }
        set_link_of(*costs_);
        if (world_.rank() != 0) return;
        std::printf(
            "# bench_streams: %d ranks, t = %d, e = %d, %s link: a hop of %lld bytes takes %.2f of "
            "F, "
            "which takes %.2f ms\n",
            world_.size(), options_.tensor, options_.expert, options_.link.c_str(),
            static_cast<long long>(boundary),
            static_cast<double>(boundary) / link_.bytes_per_ns / static_cast<double>(forward),
            static_cast<double>(forward) * 1e-6);
        std::printf("# %s %s, m = %d, %d layers, hidden %lld, %lld tokens per microbatch, %s\n",
                    options_.schedule.c_str(), std::string(to_string(options_.vocab_mode)).c_str(),
                    work_.microbatches, options_.model.num_layers,
                    static_cast<long long>(options_.model.hidden_size),
                    static_cast<long long>(plain.sizes.tokens),
                    options_.model.dtype == DType::bf16 ? "bf16" : "fp32");
        std::printf("# %6s %7s %9s %7s %7s %10s %7s %7s\n", "pieces", "pairs", "step, ms", "ratio",
                    "cpu", "simulated", "error", "#wrong");
    }

    void set_link_of(TableCosts& costs) const {
        costs.latency_ns = link_.latency_ns;
        costs.bytes_per_ns = link_.bytes_per_ns;
    }

    double timed_step(TrainedRank& rank, size_t plan) {
        world_.barrier();
        const int64_t begin = now_ns();
        rank.train_step(batch_.microbatches(), batch_.counted_tokens(), 0, {.plan = plan});
        return static_cast<double>(now_ns() - begin) * 1e-9;
    }

    /// CPU time of this rank's actions in a plan's last step, without waits for rows.
    static double cpu_seconds(TrainedRank& rank, size_t plan) {
        int64_t ns = 0;
        for (const Span& span : rank.executor().timeline(plan).spans) ns += span.cpu_ns;
        return static_cast<double>(ns) * 1e-9;
    }

    void print_row(const StepPlan& plan, const Variant& variant, const Rounds& rounds,
                   const Rounds& base, const PassMeter& meter, int64_t wrong) {
        TableCosts costs = meter.gather(world_, plan.mesh(), plan.schedule.stages, true).wall;
        if (world_.rank() != 0) return;
        (void)derive_missing(costs);
        set_link_of(costs);
        costs.layers_per_stage = plan.costs.layers_per_stage;
        const double simulated =
            static_cast<double>(simulate(plan.lowered.all(), costs).summary.step_ns) * 1e-9;
        const double step = median(rounds.seconds);
        std::printf("  %6d %7s %9.2f %7.3f %7.3f %10.2f %6.1f%% %7lld\n", variant.pieces,
                    variant.overlap_pairs ? "beside" : "after", step * 1e3,
                    median_ratio(rounds.seconds, base.seconds), median_ratio(rounds.cpu, base.cpu),
                    simulated * 1e3, 100 * (simulated / step - 1), static_cast<long long>(wrong));
        std::fflush(stdout);
    }

    Communicator& world_;
    const Options& options_;
    int pipeline_;  ///< ranks of a pipeline
    std::vector<Variant> variants_;
    StepWork work_;
    RandomBatch batch_;
    std::unique_ptr<Device> device_;
    Link link_;
    std::optional<TableCosts> costs_;
};

int run(const Options& o) {
    (void)bench::modelled_ratio(o.link);
    return bench::run_team(kProgram, o.ranks,
                           [&](Communicator& world) { return Bench(world, o).run(); });
}

void add_flags(CLI::App& app, Options& o, std::string& dtype, std::string& vocab_mode) {
    ModelConfig& m = o.model;
    app.add_option("--ranks", o.ranks, "Threads; without it the ranks of mpirun, or two threads")
        ->check(CLI::Range(2, 64));
    app.add_option("--link", o.link, "real, or modelled:RATIO: a hop over F")
        ->capture_default_str();
    app.add_option("--pieces", o.pieces, "The first one is the baseline")
        ->delimiter(',')
        ->check(CLI::Range(1, kMostPieces));
    app.add_option("--rounds", o.rounds)->check(CLI::Range(1, 100000))->capture_default_str();
    app.add_option("--tensor", o.tensor, "Ranks that share a stage")->check(CLI::Range(1, 64));
    app.add_option("--expert", o.expert, "Ranks that share the experts of a Mixtral")
        ->check(CLI::Range(1, 8));
    app.add_flag("--pairs", o.pairs,
                 "Schedules with pairs, and also steps whose pairs run one pass after the other");
    app.add_option("--schedule", o.schedule)->capture_default_str();
    app.add_option("--vocab-mode", vocab_mode)->capture_default_str();
    app.add_option("--microbatches-per-rank", o.microbatches_per_rank)->capture_default_str();
    app.add_option("--micro-batch-size", o.micro_batch_size)->capture_default_str();
    app.add_option("--num-layers", m.num_layers)->capture_default_str();
    app.add_option("--hidden-size", m.hidden_size)->capture_default_str();
    app.add_option("--num-attention-heads", m.num_attention_heads)->capture_default_str();
    app.add_option("--seq-length", m.seq_length)->capture_default_str();
    app.add_option("--vocab-size", m.vocab_size)->capture_default_str();
    app.add_option("--dtype", dtype)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    ModelConfig& m = options.model;
    m.num_layers = 8;
    m.hidden_size = 512;
    m.num_attention_heads = 8;
    m.seq_length = 512;
    m.vocab_size = 2048;  // small, so that vocabulary layers hardly unbalance the pipeline
    m.tied = false;
    std::string dtype = "fp32";
    std::string vocab_mode = "none";
    CLI::App app("Steps with boundaries by pieces against steps with whole messages");
    add_flags(app, options, dtype, vocab_mode);
    try {
        app.parse(argc, argv);
        m.ffn_hidden_size = 4 * m.hidden_size;
        if (options.expert > 1) {
            constexpr int64_t kExperts = 8;
            m.ffn_hidden_size = m.hidden_size;
            set_family(m, "mixtral");
            m.moe.experts = kExperts;
        }
        m.max_position_embeddings = m.seq_length;
        m.dtype = dtype == "bf16" ? DType::bf16 : DType::fp32;
        options.vocab_mode = vocab_mode_from(vocab_mode);
        m.check();
        const int code = run(options);
        if (code != 0) return code;
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return tool::report_before_launch(
            kProgram, std::string(error.what()) + "; see bench_streams --help", ExitCode::usage);
    } catch (const Error& error) {
        return tool::report_before_launch(kProgram, error.what(), error.exit_code());
    }
    return tool::finish_output(kProgram, ExitCode::ok);
}
