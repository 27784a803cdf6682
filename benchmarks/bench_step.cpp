// SPDX-License-Identifier: Apache-2.0
// One training step, optimizer included, against the rate of plain matrix products of the model's
// own shapes in the same process.
//
//     bench_step [--num-layers 12 --hidden-size 768 ... --dtype fp32,bf16 --threads-per-rank 2]
//
// Model FLOPs of a step = 3 * tokens * (L (8 h^2 + 4 h f + 2 s h) + 2 h V), attention counted half.
#include "benchmarks/step_bench.hpp"
#include "vocabpipe/error.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    using namespace vocabpipe;
    bench::StepCase which;
    GptConfig& m = which.model;
    m.num_layers = 12;
    m.hidden_size = 768;
    m.num_attention_heads = 12;
    m.seq_length = 64;
    m.vocab_size = 50257;
    which.micro_batch_size = 4;
    which.threads = 2;
    std::vector<std::string> dtypes{"fp32", "bf16"};
    bool untie = false;
    std::string json;
    CLI::App app("Training step of one rank against the GEMM rate (defaults: GPT-2 124M, 4 x 64)");
    app.add_option("--num-layers", m.num_layers)->capture_default_str();
    app.add_option("--hidden-size", m.hidden_size)->capture_default_str();
    app.add_option("--num-attention-heads", m.num_attention_heads)->capture_default_str();
    app.add_option("--seq-length", m.seq_length)->capture_default_str();
    app.add_option("--vocab-size", m.vocab_size)->capture_default_str();
    app.add_option("--micro-batch-size", which.micro_batch_size)->capture_default_str();
    app.add_option("--microbatches", which.microbatches)->capture_default_str();
    app.add_option("--threads-per-rank", which.threads)->capture_default_str();
    app.add_option("--steps", which.steps)->capture_default_str();
    app.add_option("--dtype", dtypes)->delimiter(',')->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_flag("--untie-embeddings-and-output-weights", untie);
    app.add_option("--json", json, "Also write the table as JSON lines");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    }
    m.ffn_hidden_size = 4 * m.hidden_size;
    m.max_position_embeddings = m.seq_length;
    m.tied = !untie;

    std::FILE* out = json.empty() ? nullptr : std::fopen(json.c_str(), "w");
    std::printf(
        "# bench_step: %d layers, hidden %lld, %lld heads, V %lld, %lld x %lld tokens, %d "
        "microbatches, %d threads\n",
        m.num_layers, static_cast<long long>(m.hidden_size),
        static_cast<long long>(m.num_attention_heads), static_cast<long long>(m.vocab_size),
        static_cast<long long>(which.micro_batch_size), static_cast<long long>(m.seq_length),
        which.microbatches, which.threads);
    std::printf("# %6s %12s %12s %12s %12s %8s %8s %7s\n", "dtype", "step", "tokens/s", "model",
                "gemm", "ratio", "ratio", "#wrong");
    std::printf("# %6s %12s %12s %12s %12s %8s %8s %7s\n", "", "ms", "", "GFLOP/s", "GFLOP/s",
                "median", "best", "");
    int wrong_total = 0;
    try {
        m.check();
        for (const std::string& dtype : dtypes) {
            m.dtype = dtype == "bf16" ? DType::bf16 : DType::fp32;
            bench::StepTiming timing;
            World::threads(1).run([&](Communicator& communicator) {
                timing = bench::time_steps(communicator, which);
            });
            const double gemm = bench::gemm_rate(which);
            const double rate = timing.flops / timing.median_seconds;
            const double tokens =
                static_cast<double>(which.micro_batch_size * m.seq_length * which.microbatches);
            // Random weights know nothing: the first loss is close to log V.
            const bool wrong =
                std::abs(timing.first_loss / std::log(static_cast<double>(m.vocab_size)) - 1) > 0.1;
            wrong_total += wrong ? 1 : 0;
            std::printf("  %6s %12.1f %12.1f %12.1f %12.1f %8.3f %8.3f %7d\n", dtype.c_str(),
                        timing.median_seconds * 1e3, tokens / timing.median_seconds, rate * 1e-9,
                        gemm * 1e-9, rate / gemm, timing.flops / timing.fastest_seconds / gemm,
                        wrong ? 1 : 0);
            std::fflush(stdout);
            if (out != nullptr) {
                std::fprintf(out, "%s\n",
                             nlohmann::json{{"dtype", dtype},
                                            {"step_seconds", timing.median_seconds},
                                            {"model_flops_per_second", rate},
                                            {"gemm_flops_per_second", gemm},
                                            {"ratio", rate / gemm}}
                                 .dump()
                                 .c_str());
            }
        }
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_step: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
    if (out != nullptr) std::fclose(out);
    std::printf("# wrong: %d\n", wrong_total);
    return wrong_total == 0 ? 0 : 1;
}
