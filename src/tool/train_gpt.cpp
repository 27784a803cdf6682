// SPDX-License-Identifier: Apache-2.0
// train_gpt: trains a GPT under mpirun (or on threads of one process); flags as Megatron names
// them.
#include "src/tool/run_signals.hpp"
#include "src/tool/text.hpp"
#include "src/train/trainer.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"
#include "vocabpipe/world.hpp"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sstream>
#include <thread>

namespace {

using namespace vocabpipe;

struct Launch {
    TrainOptions train;
    std::string transport = "mpi";
    int ranks = 0;
    double timeout_seconds = 600;
};

std::string schedule_names() {
    std::string names;
    for (const Generator& generator : generators()) {
        names += (names.empty() ? "" : ", ") + std::string(generator.name);
    }
    return names;
}

/// "auto" or "F,B", two positive integers of which only the ratio matters.
std::optional<std::pair<int64_t, int64_t>> parse_costs(const std::string& text) {
    if (text == "auto") return std::nullopt;
    int64_t forward = 0;
    int64_t backward = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%ld,%ld%n", &forward, &backward, &used) != 2 ||
        static_cast<size_t>(used) != text.size() || forward < 1 || backward < 1) {
        throw UsageError("--schedule-costs " + text +
                         ": must be auto or two positive integers F,B such as 1,2");
    }
    return std::pair{forward, backward};
}

void add_flags(CLI::App& app, Launch& launch, std::string& vocab_mode, std::string& costs,
               std::string& dtype, bool& bf16, bool& untie) {
    TrainOptions& t = launch.train;
    GptConfig& m = t.model;
    app.option_defaults()->take_last();  // as argparse does: scripts append what they override
    app.add_option("--num-layers", m.num_layers, "Transformer layers")->capture_default_str();
    app.add_option("--hidden-size", m.hidden_size, "Hidden size h")->capture_default_str();
    app.add_option("--ffn-hidden-size", m.ffn_hidden_size, "Feed-forward size (default 4 h)");
    app.add_option("--num-attention-heads", m.num_attention_heads, "Attention heads")
        ->capture_default_str();
    app.add_option("--seq-length", m.seq_length, "Tokens per sequence")->capture_default_str();
    app.add_option("--max-position-embeddings", m.max_position_embeddings,
                   "Learned positions (default: the sequence length)");
    app.add_option("--vocab-size", m.vocab_size, "Vocabulary rows V, unpadded")
        ->capture_default_str();
    app.add_flag("--untie-embeddings-and-output-weights", untie,
                 "Give the output layer a weight of its own");
    app.add_option("--init-method-std", m.init_std, "Standard deviation of initial weights")
        ->capture_default_str();
    app.add_option("--label-smoothing", m.label_smoothing, "Label smoothing in [0, 1)")
        ->capture_default_str();
    app.add_option("--z-loss", m.z_loss, "Weight of the squared log partition function")
        ->capture_default_str();

    app.add_option("--micro-batch-size", t.micro_batch_size, "Sequences per microbatch")
        ->capture_default_str();
    app.add_option("--global-batch-size", t.global_batch_size, "Sequences per step")
        ->capture_default_str();
    app.add_option("--train-iters", t.train_iters, "Steps")->capture_default_str();
    app.add_option("--lr", t.lr, "Largest learning rate")->capture_default_str();
    app.add_option("--min-lr", t.min_lr, "Learning rate at the end of the cosine")
        ->capture_default_str();
    app.add_option("--lr-warmup-iters", t.lr_warmup_iters, "Steps of linear warm-up")
        ->capture_default_str();
    app.add_option("--weight-decay", t.optimizer.weight_decay, "Decoupled weight decay of matrices")
        ->capture_default_str();
    app.add_option("--clip-grad", t.optimizer.clip_grad, "Largest global gradient norm; 0: off")
        ->capture_default_str();
    app.add_option("--adam-beta1", t.optimizer.beta1)->capture_default_str();
    app.add_option("--adam-beta2", t.optimizer.beta2)->capture_default_str();
    app.add_option("--adam-eps", t.optimizer.epsilon)->capture_default_str();
    app.add_option("--seed", t.seed, "Seed of weights and data order")->capture_default_str();

    app.add_option("--data-path", t.data_path,
                   "Megatron prefix, llm.c shards, or raw tokens with --data-format")
        ->required();
    app.add_option("--data-format", t.data_format, "auto, raw-u16, raw-u32")->capture_default_str();

    app.add_option("--pipeline-model-parallel-size", t.pipeline_model_parallel_size,
                   "Checked against the ranks that were started")
        ->check(CLI::PositiveNumber);
    app.add_option("--schedule", t.schedule, "Schedule: " + schedule_names())
        ->capture_default_str();
    app.add_option("--vocab-mode", vocab_mode,
                   "none, redistributed, interlaced, one_barrier, two_barriers")
        ->capture_default_str();
    app.add_option("--schedule-costs", costs,
                   "Cost ratio F,B that orders are built for, or auto: measured in the first steps")
        ->capture_default_str();
    app.add_option("--c0-margin", t.c0_margin,
                   "Part of B kept free for the broadcast of X, in the unit of --schedule-costs")
        ->capture_default_str();
    app.add_option("--transport", launch.transport, "mpi (under mpirun) or threads")
        ->check(CLI::IsMember({"mpi", "threads"}))
        ->capture_default_str();
    app.add_option("--ranks", launch.ranks, "Ranks, with --transport threads");
    app.add_option("--threads-per-rank", t.threads_per_rank,
                   "OpenMP threads per rank (default: the rank's share of the cores)");
    app.add_option("--dtype", dtype, "fp32 or bf16")
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str();
    app.add_flag("--bf16", bf16, "Same as --dtype bf16");
    app.add_option("--distributed-timeout-seconds", launch.timeout_seconds,
                   "A rank that waits this long without progress gives up")
        ->capture_default_str();

    app.add_option("--trace-dir", t.trace_dir, "Folder for Chrome traces of the last step");
    app.add_option("--metrics", t.metrics, "File for one JSON object per step");
    app.add_option("--report", t.report, "File for the final report as JSON");
    app.add_option("--log-interval", t.log_interval, "Steps per log line")->capture_default_str();
}

/// Completes options that depend on others. Throws UsageError.
void resolve(const CLI::App& app, Launch& launch, const std::string& vocab_mode,
             const std::string& costs, const std::string& dtype, bool bf16, bool untie) {
    TrainOptions& t = launch.train;
    if (app.count("--ffn-hidden-size") == 0) t.model.ffn_hidden_size = 4 * t.model.hidden_size;
    if (app.count("--max-position-embeddings") == 0) {
        t.model.max_position_embeddings = t.model.seq_length;
    }
    t.model.tied = !untie;
    t.model.dtype = bf16 || dtype == "bf16" ? DType::bf16 : DType::fp32;
    t.vocab_mode = vocab_mode_from(vocab_mode);
    t.schedule_costs = parse_costs(costs);
    t.ranks_are_threads = launch.transport == "threads";
    if (t.ranks_are_threads && launch.ranks < 1) {
        throw UsageError("--ranks " + std::to_string(launch.ranks) +
                         ": --transport threads needs --ranks P with P >= 1");
    }
    const char* started = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (t.ranks_are_threads && started != nullptr && std::atoi(started) > 1) {
        throw UsageError("--transport threads: mpirun started " + std::string(started) +
                         " processes, each would train alone; leave mpirun out, or use "
                         "--transport mpi");
    }
    if (!t.ranks_are_threads && app.count("--ranks") > 0) {
        throw UsageError("--ranks " + std::to_string(launch.ranks) +
                         ": with --transport mpi the ranks are those of mpirun -np P");
    }
    if (!(launch.timeout_seconds > 0)) {
        std::ostringstream value;
        value << launch.timeout_seconds;
        throw UsageError("--distributed-timeout-seconds " + value.str() +
                         ": must be a positive number of seconds");
    }
    if (app.count("--threads-per-rank") > 0 && t.threads_per_rank < 1) {
        throw UsageError("--threads-per-rank " + std::to_string(t.threads_per_rank) +
                         ": must be at least 1");
    }
}

/// Errors before there is a world are the same on every rank that was started with the same flags;
/// the first of them prints. The environment is only trusted for who prints.
bool first_of_launch() {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank == nullptr) return true;
    const char* parts = std::getenv("OMPI_APP_CTX_NUM_PROCS");  // of "mpirun -np 1 A : -np 2 B"
    std::istringstream in(parts == nullptr ? "" : parts);
    int first = 0;
    for (int ranks = 0; in >> ranks && first < std::atoi(rank);) first += ranks;
    return first == std::atoi(rank);
}

int report(const char* what, ExitCode code, bool print) {
    if (print) {
        std::fflush(stdout);
        std::fprintf(stderr, "train_gpt: error: %s\n", tool::one_line(what).c_str());
    }
    return static_cast<int>(code);
}

/// For errors before there is a world. mpirun ends everything at the first rank that fails: those
/// that do not print leave time to the one that does.
int report_before_launch(const std::string& what, ExitCode code) {
    const bool print = first_of_launch();
    if (!print) std::this_thread::sleep_for(std::chrono::seconds(2));
    return report(what.c_str(), code, print);
}

int run(const Launch& launch) {
    const WaitOptions wait{
        .timeout_seconds = launch.timeout_seconds,
        .interrupted = launch.train.ranks_are_threads ? std::function<bool()>{} : terminated};
    World world =
        launch.train.ranks_are_threads ? World::threads(launch.ranks, wait) : World::mpi(wait);
    int rank = 0;
    const auto fail = [&](const char* what, ExitCode code) {
        report(what, code, true);
        // The other ranks notice the same loss about now: let them say what they waited for.
        if (code == ExitCode::communication) {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        world.abort(static_cast<int>(code));
        return static_cast<int>(code);
    };
    try {
        world.run([&](Communicator& communicator) {
            if (!launch.train.ranks_are_threads) rank = communicator.rank();
            train(communicator, launch.train);
        });
    } catch (const AgreedError& error) {
        return report(error.what(), error.exit_code(), rank == 0);
    } catch (const Error& error) {
        return fail(error.what(), error.exit_code());
    } catch (const std::bad_alloc&) {
        const std::string text =
            (launch.train.ranks_are_threads ? std::string()
                                            : "rank " + std::to_string(rank) + ": ") +
            "out of memory; use a smaller model or microbatch, or fewer ranks per host";
        return fail(text.c_str(), ExitCode::out_of_memory);
    } catch (const std::exception& error) {
        return fail(error.what(), ExitCode::failed);
    }
    return static_cast<int>(ExitCode::ok);
}

}  // namespace

int main(int argc, char** argv) {
    Launch launch;
    std::string vocab_mode = "one_barrier";
    std::string costs = "1,2";
    std::string dtype = "fp32";
    bool bf16 = false;
    bool untie = false;
    CLI::App app(
        "Trains a GPT with pipeline and vocabulary parallelism.\n"
        "  mpirun -np 2 train_gpt --data-path PREFIX ...\n"
        "  train_gpt --transport threads --ranks 2 --data-path PREFIX ...");
    app.set_version_flag("--version", VOCABPIPE_VERSION);
    add_flags(app, launch, vocab_mode, costs, dtype, bf16, untie);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ConversionError& error) {
        return report_before_launch(
            std::string(error.what()) + ": not a number or out of range; see train_gpt --help",
            ExitCode::usage);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        return report_before_launch(std::string(error.what()) + "; see train_gpt --help",
                                    ExitCode::usage);
    }
    try {
        resolve(app, launch, vocab_mode, costs, dtype, bf16, untie);
        install_run_signals();
        launch.train.stop_requested = stop_requested;
    } catch (const Error& error) {
        return report_before_launch(error.what(), error.exit_code());
    }
    try {
        return run(launch);
    } catch (const Error& error) {  // no world
        return report(error.what(), error.exit_code(), first_of_launch());
    }
}
