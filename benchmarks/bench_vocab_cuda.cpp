// SPDX-License-Identifier: Apache-2.0
// Output layer of one vocabulary shard on a GPU: S and T against plain products of the same FLOPs,
// in one process, in turns, with CUDA events.
//
//     bench_vocab_cuda [--tokens 4096 --hidden-size 4096 --rows 16384,32768,131072]
//     [--untimed-products]
//
// FLOPs: 2 N h v for the logits, the same for e W and for e^T (c X): 6 N h v per microbatch.
// cuBLASLt: only the three products, each with the fastest of the eight algorithms that the library
// asks the heuristic for, with the logits rounded to the type of exp_logits. gemm(): the same
// products as the library calls them, also with the fastest of the eight, as in S and T: the choice
// comes from a file in the user's cache folder, and missing shapes are timed once and added
// (docs/gpus.md); with --untimed-products the first of the eight. ratio: rate of S +
// combine_softmax + T over that of cuBLASLt. memory: exp_logits and the larger of the two
// workspaces, over exp_logits. wrong: tokens whose exp_logits do not add up to their statistic.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/best_product.hpp"
#include "benchmarks/device_timer.hpp"
#include "benchmarks/gpu_bench.hpp"
#include "benchmarks/print_note.hpp"
#include "kernels/bf16.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/product_choices.hpp"
#include "src/tool/train/product_cache.hpp"
#include "vocabpipe/error.hpp"

namespace {

using namespace vocabpipe;
using bench::Array;
using bench::Buffer;
using bench::Gpu;
using bench::Matrix;
using bench::median;
using kernels::cuda::check;

struct Options {
    int64_t tokens = 4096;
    int64_t hidden = 4096;
    std::vector<int64_t> rows{16384, 32768, 131072};
    int rounds = 21;
    DType type = DType::bf16;
    bool untimed_products = false;
};

std::vector<int32_t> spread_labels(int64_t tokens, int64_t rows) {
    std::vector<int32_t> labels;
    for (int64_t n = 0; n < tokens; ++n) labels.push_back(static_cast<int32_t>(n * 7919 % rows));
    return labels;
}

/// One shard with the whole vocabulary.
struct Layer {
    Layer(const Options& o, int64_t v)
        : shard{.first_row = 0, .rows = v, .vocab_size = v},
          x(o.tokens, o.hidden, o.type),
          w(v, o.hidden, o.type),
          exp_logits(o.tokens, v, o.type),
          statistics(o.tokens, kernels::kStatistics, DType::fp32),
          factors(o.tokens, 2, DType::fp32),
          u(o.tokens, o.hidden, DType::fp32),
          dw(v, o.hidden, DType::fp32),
          labels(spread_labels(o.tokens, v)),
          g(std::vector<float>(static_cast<size_t>(o.tokens), 1.0F / static_cast<float>(o.tokens))),
          workspace(std::max({kernels::cuda::vocabulary_score_workspace_bytes(o.tokens, v, o.type),
                              kernels::cuda::vocabulary_input_gradient_workspace_bytes(o.hidden),
                              kernels::cuda::vocabulary_weight_gradient_workspace_bytes(
                                  o.tokens, o.hidden, o.type)})) {
        x.fill(1, 1);
        w.fill(2, 1.0F / std::sqrt(static_cast<float>(o.hidden)));
    }

    void score(Context& ctx) const {
        kernels::cuda::vocabulary_score(ctx, x, w, labels, shard, {}, exp_logits, statistics, {},
                                        workspace.bytes());
    }
    void combine_softmax(Context& ctx) const {
        kernels::cuda::combine_statistics(ctx, statistics, labels, g, shard, 0, {}, factors, {});
    }
    void gradients(Context& ctx) const {
        kernels::cuda::vocabulary_input_product(ctx, exp_logits, w, u);
        kernels::cuda::vocabulary_input_gradient(ctx, u, factors, w, labels, g, shard, {},
                                                 workspace.bytes());
        kernels::cuda::vocabulary_weight_gradient(ctx, x, exp_logits, factors, labels, g, shard, {},
                                                  dw, true, workspace.bytes());
    }
    void products(Context& ctx) const {
        kernels::cuda::gemm(ctx, x, false, w, true, exp_logits, false);
        kernels::cuda::gemm(ctx, exp_logits, false, w, false, u, false);
        kernels::cuda::gemm(ctx, exp_logits, true, x, false, dw, true);
    }

    kernels::VocabularyShard shard;
    Matrix x, w, exp_logits, statistics, factors, u, dw;
    Array<int32_t> labels;
    Array<float> g;
    Buffer workspace;
};

/// Number of the first and last few tokens whose exp_logits do not match their statistics.
int wrong_tokens(const Layer& layer) {
    const Tensor e = layer.exp_logits;
    std::vector<float> statistics(static_cast<size_t>(e.rows * kernels::kStatistics));
    layer.statistics.buffer().download(statistics.data(), statistics.size() * sizeof(float));
    std::vector<std::byte> row(static_cast<size_t>(e.cols * size_of(e.dtype)));
    int wrong = 0;
    for (int64_t n = 0; n < e.rows; n = n == 3 ? std::max<int64_t>(e.rows - 4, 4) : n + 1) {
        layer.exp_logits.buffer().download(row.data(), row.size(),
                                           static_cast<size_t>(n) * row.size());
        double sum = 0;
        for (int64_t j = 0; j < e.cols; ++j) {
            sum += e.dtype == DType::bf16
                       ? kernels::to_float(reinterpret_cast<const kernels::Bf16*>(row.data())[j])
                       : reinterpret_cast<const float*>(row.data())[j];
        }
        const double a = statistics[static_cast<size_t>(n * kernels::kStatistics + 1)];
        wrong += std::abs(sum - a) <= 0x1p-9 * a ? 0 : 1;  // NaN is wrong, too
    }
    return wrong;
}

/// Algorithm choices for the products of all vocabularies so far.
struct FastestProducts {
    explicit FastestProducts(const std::string& gpu_name) : cache(gpu_name, bench::print_note) {}

    /// Times this layer's products, those of S and T included.
    void complete(const Layer& layer) {
        Gpu gpu;
        layer.score(gpu.context());
        layer.combine_softmax(gpu.context());
        layer.gradients(gpu.context());
        auto completed = cache.complete(gpu.context(), std::move(choices));
        bench::print_note(completed.line());
        choices = std::move(completed.choices);
    }

    tool::ProductCache cache;
    kernels::cuda::ProductChoices choices = cache.read();
};

/// `products`: null to use untimed choices.
int measure(const Options& o, int64_t v, FastestProducts* products) {
    const Layer layer(o, v);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // for the uploads
    Gpu gpu;
    Context& ctx = gpu.context();
    const cudaStream_t stream = gpu.stream();
    if (products != nullptr) {
        products->complete(layer);
        use_choices(ctx.cuda(), products->choices);
    }
    layer.score(ctx);  // gives the products realistic numbers
    using bench::BestProduct;
    BestProduct input(ctx, {.a = layer.exp_logits, .b = layer.w, .c = layer.u});
    BestProduct weight(ctx, {.a = layer.exp_logits,
                             .transpose_a = true,
                             .b = layer.x,
                             .c = layer.dw,
                             .addend = layer.dw});
    BestProduct logits(ctx,
                       {.a = layer.x, .b = layer.w, .transpose_b = true, .c = layer.exp_logits});

    // Enqueues a whole round before the host waits, so that the GPU does not run dry within it.
    std::array<bench::DeviceTimer, 5> timers;
    std::array<std::vector<float>, 5> times;
    const auto timed = [&](bench::DeviceTimer& timer, auto&& work) {
        timer.start(stream);
        work();
        timer.stop(stream);
    };
    for (int round = 0; round <= o.rounds; ++round) {
        timed(timers[0], [&] {
            logits.run();
            input.run();
            weight.run();
        });
        timed(timers[1], [&] { layer.products(ctx); });
        timed(timers[2], [&] { layer.score(ctx); });
        timed(timers[3], [&] { layer.combine_softmax(ctx); });
        timed(timers[4], [&] { layer.gradients(ctx); });
        for (size_t i = 0; i < timers.size(); ++i) {
            const float ms = timers[i].milliseconds();
            if (round > 0) times[i].push_back(ms);  // the first round warms up
        }
    }
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check(cudaGetLastError(), "a kernel");
    const int wrong = wrong_tokens(layer);

    const double flops = 6.0 * static_cast<double>(o.tokens * o.hidden) * static_cast<double>(v);
    const auto rate = [&](double ms) { return flops / ms * 1e-9; };
    const double alone = median(times[0]);
    const double s = median(times[2]);
    const double combine = median(times[3]);
    const double t = median(times[4]);
    const double all = s + combine + t;
    const auto bytes = static_cast<double>(layer.exp_logits.view().bytes());
    const double memory = (bytes + static_cast<double>(layer.workspace.bytes().size())) / bytes;
    std::printf("  %8lld %9.3f %8.1f %9.3f %9.3f %8.3f %9.3f %9.3f %8.1f %6.3f %7.3f %6d\n",
                static_cast<long long>(v), alone, rate(alone), median(times[1]), s, combine, t, all,
                rate(all), alone / all, memory, wrong);
    std::fflush(stdout);
    return wrong;
}

int run(const Options& o) {
    const std::string gpu_name = bench::first_gpu();
    std::printf("# bench_vocab_cuda: %s, N = %lld, h = %lld, %s, medians of %d rounds\n",
                gpu_name.c_str(), static_cast<long long>(o.tokens),
                static_cast<long long>(o.hidden), o.type == DType::bf16 ? "bf16" : "fp32",
                o.rounds);
    std::printf("# %8s %9s %8s %9s %9s %8s %9s %9s %8s %6s %7s %6s\n", "v", "cuBLASLt", "rate",
                "gemm()", "S", "combine", "T", "S to T", "rate", "ratio", "memory", "#wrong");
    std::printf("# %8s %9s %8s %9s %9s %8s %9s %9s %8s %6s %7s %6s\n", "rows", "ms", "TFLOP/s",
                "ms", "ms", "ms", "ms", "ms", "TFLOP/s", "", "/ e", "");
    int wrong = 0;
    std::optional<FastestProducts> products;
    if (!o.untimed_products) products.emplace(gpu_name);
    for (const int64_t v : o.rows) wrong += measure(o, v, products ? &*products : nullptr);
    std::printf("# wrong: %d\n", wrong);
    return wrong;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    std::string dtype = "bf16";
    CLI::App app("S and T of one vocabulary shard against cuBLASLt's products on one GPU");
    app.add_option("--tokens", options.tokens, "N, of one microbatch")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--hidden-size", options.hidden, "h")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--rows", options.rows, "v, of the vocabulary shard")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    app.add_flag("--untimed-products", options.untimed_products,
                 "S and T with the first algorithm of cuBLASLt's heuristic, not with the fastest");
    app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--dtype", dtype)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    }
    options.type = dtype == "bf16" ? DType::bf16 : DType::fp32;
    try {
        return run(options) == 0 ? 0 : static_cast<int>(ExitCode::failed);
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_vocab_cuda: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
