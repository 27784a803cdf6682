// SPDX-License-Identifier: Apache-2.0
// Does the vocabulary still unbalance the pipeline? The same model with growing vocabularies, plain
// and with vocabulary parallelism, on the ranks of one mpirun.
//
//     mpirun -np 2 bench_vocab [--vocab-size 8192,32768,131072 --vocab-mode none,one_barrier]
//
// kept: model FLOP/s over those at the first vocabulary size, in the same mode. speedup: over the
// first mode (plain). ideal: the busiest rank's FLOPs in the plain pipeline over the mean rank's.
#include "benchmarks/timed_steps.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/error.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace vocabpipe;

struct Options {
    bench::StepCase which;
    std::vector<int64_t> vocab_sizes{8192, 32768, 131072};
    std::vector<std::string> vocab_modes{"none", "one_barrier"};
    int microbatches_per_rank = 8;
};

/// The time of the slowest rank's step.
double slowest(Communicator& communicator, double seconds) {
    double worst = seconds;
    for (const auto& part : communicator.all_gather(std::as_bytes(std::span(&seconds, 1)))) {
        double other = 0;
        std::memcpy(&other, part.data(), sizeof other);
        worst = std::max(worst, other);
    }
    return worst;
}

int run(Communicator& communicator, Options options) {
    const bool prints = communicator.rank() == 0;
    bench::StepCase& which = options.which;
    which.microbatches = options.microbatches_per_rank * communicator.size();
    int wrong = 0;
    if (prints) {
        std::printf("# bench_vocab: %d ranks, %d layers, hidden %lld, sequence %lld, m = %d, %s\n",
                    communicator.size(), which.model.num_layers,
                    static_cast<long long>(which.model.hidden_size),
                    static_cast<long long>(which.model.seq_length), which.microbatches,
                    which.model.dtype == DType::bf16 ? "bf16" : "fp32");
        std::printf("# %8s %-13s %10s %10s %7s %8s %8s %9s %6s\n", "V", "vocab mode", "step",
                    "model", "kept", "speedup", "ideal", "of ideal", "#wrong");
        std::printf("# %8s %-13s %10s %10s %7s %8s %8s %9s %6s\n", "rows", "", "ms", "GFLOP/s", "",
                    "", "", "", "");
    }
    std::vector<double> first_rate(options.vocab_modes.size(), 0);
    for (const int64_t vocab_size : options.vocab_sizes) {
        which.model.vocab_size = vocab_size;
        double plain_seconds = 0;
        double plain_loss = 0;
        for (size_t i = 0; i < options.vocab_modes.size(); ++i) {
            which.vocab_mode = vocab_mode_from(options.vocab_modes[i]);
            const std::unique_ptr<Device> device = make_host_device();
            const bench::StepTiming timing = bench::time_steps(communicator, *device, which);
            const double seconds = slowest(communicator, timing.median_seconds);
            const double rate = timing.flops / seconds;
            if (first_rate[i] == 0) first_rate[i] = rate;
            if (i == 0) {
                plain_seconds = seconds;
                plain_loss = timing.first_loss;
            }
            const double speedup = plain_seconds / seconds;
            const double ideal = bench::ideal_speedup(which.model, communicator.size());
            // With the same model and tokens, losses may differ only by the order of a few sums.
            const bool differs = std::abs(timing.first_loss / plain_loss - 1) > 1e-4;
            wrong += differs ? 1 : 0;
            if (prints) {
                std::printf("  %8lld %-13s %10.1f %10.1f %7.3f %8.3f %8.3f %9.3f %6d\n",
                            static_cast<long long>(vocab_size), options.vocab_modes[i].c_str(),
                            seconds * 1e3, rate * 1e-9, rate / first_rate[i], speedup, ideal,
                            i == 0 ? 1.0 : speedup / ideal, differs ? 1 : 0);
                std::fflush(stdout);
            }
        }
    }
    if (prints) std::printf("# wrong: %d\n", wrong);
    return wrong;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    ModelConfig& m = options.which.model;
    m.num_layers = 8;
    m.hidden_size = 512;
    m.num_attention_heads = 8;
    m.seq_length = 512;
    m.tied = false;
    std::string dtype = "fp32";
    CLI::App app("Model FLOP/s against vocabulary size and vocab mode; start it with mpirun");
    app.add_option("--num-layers", m.num_layers)->capture_default_str();
    app.add_option("--hidden-size", m.hidden_size)->capture_default_str();
    app.add_option("--num-attention-heads", m.num_attention_heads)->capture_default_str();
    app.add_option("--seq-length", m.seq_length)->capture_default_str();
    app.add_option("--vocab-size", options.vocab_sizes)->delimiter(',');
    app.add_option("--vocab-mode", options.vocab_modes, "The first one is the baseline")
        ->delimiter(',');
    app.add_option("--schedule", options.which.schedule)->capture_default_str();
    app.add_option("--microbatches-per-rank", options.microbatches_per_rank)->capture_default_str();
    app.add_option("--threads-per-rank", options.which.threads)->capture_default_str();
    app.add_option("--steps", options.which.steps)->capture_default_str();
    app.add_option("--dtype", dtype)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    }
    m.ffn_hidden_size = 4 * m.hidden_size;
    m.max_position_embeddings = m.seq_length;
    m.dtype = dtype == "bf16" ? DType::bf16 : DType::fp32;
    options.which.steps = std::max(options.which.steps, 1);
    int wrong = 0;
    World world = World::mpi();
    try {
        m.check();
        world.run([&](Communicator& communicator) { wrong = run(communicator, options); });
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_vocab: error: %s\n", error.what());
        world.abort(static_cast<int>(error.exit_code()));
        return static_cast<int>(error.exit_code());
    }
    return wrong == 0 ? 0 : 1;
}
