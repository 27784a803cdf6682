// SPDX-License-Identifier: Apache-2.0
// Output layer of one vocabulary shard: S and T against plain products of the same FLOPs, in one
// process.
//
//     bench_vocabulary_kernels [--benchmark_filter=...]
//
// FLOPs: 2 N h v for the logits, the same for e W and for e^T (c X): 6 N h v per microbatch.
// `GFLOP/s` counts only these, so the exponentials show as a rate below that of `Gemm`.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "kernels/host/gemm.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/host/random.hpp"

namespace {

using namespace vocabpipe;
using namespace vocabpipe::kernels;

class Buffer {
public:
    Buffer(int64_t rows, int64_t cols, DType type)
        : bytes_(static_cast<size_t>(rows * cols * size_of(type))),
          tensor(bytes_.data(), rows, cols, type) {}

private:
    std::vector<std::byte> bytes_;

public:
    Tensor tensor;
};

Buffer normal(Context& ctx, int64_t rows, int64_t cols, DType type, uint64_t id, float std) {
    Buffer wide(rows, cols, DType::fp32);
    host::fill_normal(ctx, wide.tensor, 1, id, 0, std);
    Buffer out(rows, cols, type);
    host::convert(ctx, wide.tensor, out.tensor);
    return out;
}

struct Layer {
    Layer(int64_t tokens, int64_t hidden, int64_t rows, DType type,
          const TokenRecords& records = {TokenRecord::loss})
        : ctx({.threads = 1, .poll = {}}),
          shard{.first_row = 0, .rows = rows, .vocab_size = rows},
          options{.records = records},
          x(normal(ctx, tokens, hidden, type, 1, 1)),
          w(normal(ctx, rows, hidden, type, 2, 0.02F)),
          exp_logits(tokens, rows, type),
          statistics(tokens, statistics_columns(records), DType::fp32),
          kept(records.has(TokenRecord::label_rank) ? tokens : 0, rows, DType::fp32),
          logits(kept.tensor.rows > 0 ? kept.tensor : Tensor()),
          counts(static_cast<size_t>(tokens)),
          factors(tokens, 2, DType::fp32),
          u(tokens, hidden, DType::fp32),
          dw(rows, hidden, DType::fp32),
          labels(static_cast<size_t>(tokens)),
          g(static_cast<size_t>(tokens), 1.0F / static_cast<float>(tokens)),
          made(static_cast<size_t>(records.size() * tokens)) {
        for (size_t n = 0; n < labels.size(); ++n) {
            labels[n] = static_cast<int32_t>((n * 7919) % static_cast<size_t>(rows));
        }
        score_workspace.resize(
            static_cast<size_t>(host::vocabulary_score_workspace_bytes(tokens, rows, type)));
        gradient_workspace.resize(static_cast<size_t>(
            host::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, type)));
        input_workspace.resize(
            static_cast<size_t>(host::vocabulary_input_gradient_workspace_bytes(hidden)));
    }

    void score() {
        host::vocabulary_score(ctx, x.tensor, w.tensor, labels, shard, options, exp_logits.tensor,
                               statistics.tensor, logits, score_workspace);
    }
    void combine_softmax() {
        host::combine_statistics(ctx, statistics.tensor, labels, g, shard, 0, options,
                                 factors.tensor, made);
        if (logits) host::label_ranks(ctx, logits, statistics.tensor, labels, shard, counts);
    }
    void input_gradient() {
        host::vocabulary_input_product(ctx, exp_logits.tensor, w.tensor, u.tensor);
        host::vocabulary_input_gradient(ctx, u.tensor, factors.tensor, w.tensor, labels, g, shard,
                                        options, input_workspace);
    }
    void score_and_gradients() {
        score();
        combine_softmax();
        input_gradient();
        weight_gradient();
    }
    void weight_gradient() {
        host::vocabulary_weight_gradient(ctx, x.tensor, exp_logits.tensor, factors.tensor, labels,
                                         g, shard, options, dw.tensor, true, gradient_workspace);
    }

    Context ctx;
    VocabularyShard shard;
    LossOptions options;
    Buffer x, w, exp_logits, statistics, kept;
    Tensor logits;  ///< empty, or `kept`
    std::vector<float> counts;
    Buffer factors, u, dw;
    std::vector<int32_t> labels;
    std::vector<float> g, made;
    std::vector<std::byte> score_workspace, gradient_workspace, input_workspace;
};

void report(benchmark::State& state, int products) {
    const auto flop = 2.0 * static_cast<double>(state.range(0) * state.range(1) * state.range(2));
    state.counters["GFLOP/s"] =
        benchmark::Counter(flop * products * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

template <DType type>
void logits_gemm(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    for (auto _ : state) {
        host::gemm(layer.ctx, layer.x.tensor, false, layer.w.tensor, true, layer.exp_logits.tensor,
                   false);
    }
    report(state, 1);
}

template <DType type>
void input_gemm(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    layer.score();
    for (auto _ : state) {
        host::gemm(layer.ctx, layer.exp_logits.tensor, false, layer.w.tensor, false, layer.u.tensor,
                   false);
    }
    report(state, 1);
}

template <DType type>
void weight_gemm(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    layer.score();
    for (auto _ : state) {
        host::gemm(layer.ctx, layer.exp_logits.tensor, true, layer.x.tensor, false, layer.dw.tensor,
                   true);
    }
    report(state, 1);
}

/// Only the three products of S and T.
template <DType type>
void all_gemms(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    layer.score();
    Buffer z(state.range(0), state.range(2), type);
    for (auto _ : state) {
        host::gemm(layer.ctx, layer.x.tensor, false, layer.w.tensor, true, z.tensor, false);
        host::gemm(layer.ctx, layer.exp_logits.tensor, false, layer.w.tensor, false, layer.u.tensor,
                   false);
        host::gemm(layer.ctx, layer.exp_logits.tensor, true, layer.x.tensor, false, layer.dw.tensor,
                   true);
    }
    report(state, 3);
}

template <DType type>
void score(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    for (auto _ : state) layer.score();
    report(state, 1);
}

template <DType type>
void input_gradient(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    layer.score();
    layer.combine_softmax();
    for (auto _ : state) layer.input_gradient();
    report(state, 1);
}

template <DType type>
void weight_gradient(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    layer.score();
    layer.combine_softmax();
    for (auto _ : state) layer.weight_gradient();
    report(state, 1);
}

template <DType type>
void score_and_gradients(benchmark::State& state) {
    Layer layer(state.range(0), state.range(1), state.range(2), type);
    for (auto _ : state) layer.score_and_gradients();
    report(state, 3);
}

/// Processor seconds of this thread, which others on a shared machine do not lengthen.
double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// What lies a share of the way through the sorted values.
double quantile(std::vector<double> values, double share) {
    const auto at =
        values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::ranges::nth_element(values, at);
    return *at;
}

/// What records add to S and T with the loss only. `ratio` - 1 is the median difference of pairs of
/// S and the combination after C1, with records and without, in turns, over the median time of S
/// and T: T does the same work in both, and would only add its noise. `error` is the median's
/// standard error.
void records(benchmark::State& state, DType type, const TokenRecords& records) {
    Layer plain(state.range(0), state.range(1), state.range(2), type);
    Layer recorded(state.range(0), state.range(1), state.range(2), type, records);
    const auto timed = [](auto&& work) {
        const double begin = thread_seconds();
        work();
        return thread_seconds() - begin;
    };
    const auto score = [&](Layer& layer) {
        return timed([&] {
            layer.score();
            layer.combine_softmax();
        });
    };
    std::vector<double> differences, wholes;
    for (auto _ : state) {
        // Either first, as the second finds caches warm.
        const bool first = differences.size() % 2 == 0;
        const double early = score(first ? plain : recorded);
        const double late = score(first ? recorded : plain);
        differences.push_back(first ? late - early : early - late);
        wholes.push_back((first ? early : late) + timed([&] {
                             plain.input_gradient();
                             plain.weight_gradient();
                         }));
    }
    const double whole = quantile(wholes, 0.5);
    const double width = quantile(differences, 0.75) - quantile(differences, 0.25);
    state.counters["ratio"] = 1 + quantile(differences, 0.5) / whole;
    // If differences are normal, 1.35 deviations lie between their quartiles, and their median
    // scatters 1.25 times as much as their mean.
    state.counters["error"] =
        1.25 * width / 1.35 / std::sqrt(static_cast<double>(differences.size())) / whole;
}

/// S and T of (1 + depths) N rows, as depths of multi-token prediction have them, over those of N
/// rows, in processor time of the thread. `ratio` is the quotient of the medians, and `spread` the
/// range of the ratios of pairs.
void depths(benchmark::State& state, DType type) {
    const int64_t rows = (1 + state.range(3)) * state.range(0);
    Layer plain(state.range(0), state.range(1), state.range(2), type);
    Layer deep(rows, state.range(1), state.range(2), type);
    const auto timed = [](Layer& layer) {
        const double begin = thread_seconds();
        layer.score_and_gradients();
        return thread_seconds() - begin;
    };
    std::vector<double> one, all, ratios;
    for (auto _ : state) {
        one.push_back(timed(plain));
        all.push_back(timed(deep));
        ratios.push_back(all.back() / one.back());
    }
    state.counters["ratio"] = quantile(all, 0.5) / quantile(one, 0.5);
    state.counters["spread"] = quantile(ratios, 1) - quantile(ratios, 0);
}

void adamw(benchmark::State& state) {
    Context ctx({.threads = 1, .poll = {}});
    const auto count = static_cast<size_t>(state.range(0));
    std::vector<float> p(count, 1), g(count, 1e-3F), m(count), v(count);
    const AdamWTensor tensor{.master = p, .gradient = g, .exp_avg = m, .exp_avg_sq = v};
    const StepScalars scalars{.lr = 1e-6F, .bias_correction1 = 0.5F, .update = 1};
    for (auto _ : state) host::adamw(ctx, {&tensor, 1}, {}, &scalars);
    state.SetBytesProcessed(state.iterations() * state.range(0) * 28);
}

void norm(benchmark::State& state) {
    Context ctx({.threads = 1, .poll = {}});
    const std::vector<float> g(static_cast<size_t>(state.range(0)), 1e-3F);
    const ConstTensor values(g.data(), 1, state.range(0), DType::fp32);
    double sum = 0;
    for (auto _ : state) host::sum_of_squares(ctx, values, &sum);
    benchmark::DoNotOptimize(sum);
    state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

/// Normal numbers, as ParameterStore::initialise draws them.
void normal_numbers(benchmark::State& state) {
    Context ctx({.threads = static_cast<int>(state.range(1)), .poll = {}});
    std::vector<float> values(static_cast<size_t>(state.range(0)));
    const Tensor out(values.data(), 1, state.range(0), DType::fp32);
    for (auto _ : state) host::fill_normal(ctx, out, 1, 2, 0, 0.02F);
    state.SetItemsProcessed(state.iterations() * state.range(0));
}

void shapes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"N", "h", "v"})
        ->Args({512, 512, 64000})
        ->Unit(benchmark::kMillisecond)
        ->MinTime(1);
}

benchmark::internal::Benchmark* two_vocabularies(benchmark::internal::Benchmark* benchmark,
                                                 int64_t tokens) {
    return benchmark->ArgNames({"N", "h", "v"})
        ->Args({tokens, 1024, 32768})
        ->Args({tokens, 1024, 131072})
        ->Unit(benchmark::kMillisecond);
}

void pairs(benchmark::internal::Benchmark* benchmark) {
    two_vocabularies(benchmark, 512)->MinTime(20);
}

/// A few pairs of smaller microbatches: minutes for all records, also without AVX-512.
void few(benchmark::internal::Benchmark* benchmark) {
    two_vocabularies(benchmark, 128)->Iterations(5);
}

void deeper(benchmark::internal::Benchmark* benchmark, int64_t tokens) {
    benchmark->ArgNames({"N", "h", "v", "D"})->Unit(benchmark::kMillisecond)->Iterations(3);
    for (const int64_t rows : {32768, 131072}) {
        for (const int64_t depths : {1, 2}) benchmark->Args({tokens, 1024, rows, depths});
    }
}

void few_deeper(benchmark::internal::Benchmark* benchmark) {
    deeper(benchmark, 64);
}

void many_deeper(benchmark::internal::Benchmark* benchmark) {
    deeper(benchmark, 512);
}

BENCHMARK(logits_gemm<DType::fp32>)->Apply(shapes);
BENCHMARK(score<DType::fp32>)->Apply(shapes);
BENCHMARK(input_gemm<DType::fp32>)->Apply(shapes);
BENCHMARK(input_gradient<DType::fp32>)->Apply(shapes);
BENCHMARK(weight_gemm<DType::fp32>)->Apply(shapes);
BENCHMARK(weight_gradient<DType::fp32>)->Apply(shapes);
BENCHMARK(all_gemms<DType::fp32>)->Apply(shapes);
BENCHMARK(score_and_gradients<DType::fp32>)->Apply(shapes);
BENCHMARK(logits_gemm<DType::bf16>)->Apply(shapes);
BENCHMARK(score<DType::bf16>)->Apply(shapes);
BENCHMARK(input_gemm<DType::bf16>)->Apply(shapes);
BENCHMARK(input_gradient<DType::bf16>)->Apply(shapes);
BENCHMARK(weight_gemm<DType::bf16>)->Apply(shapes);
BENCHMARK(weight_gradient<DType::bf16>)->Apply(shapes);
BENCHMARK(all_gemms<DType::bf16>)->Apply(shapes);
BENCHMARK(score_and_gradients<DType::bf16>)->Apply(shapes);
BENCHMARK_CAPTURE(records, bf16_logprob_entropy, DType::bf16,
                  {TokenRecord::loss, TokenRecord::logprob, TokenRecord::entropy})
    ->Apply(pairs);
BENCHMARK_CAPTURE(records, bf16_margin, DType::bf16, {TokenRecord::loss, TokenRecord::margin})
    ->Apply(pairs);
BENCHMARK_CAPTURE(records, fp32_logprob_entropy, DType::fp32,
                  {TokenRecord::loss, TokenRecord::logprob, TokenRecord::entropy})
    ->Apply(pairs);
BENCHMARK_CAPTURE(records, bf16_top_64, DType::bf16,
                  TokenRecords{TokenRecord::loss} | TokenRecords::best(64))
    ->Apply(pairs);
BENCHMARK_CAPTURE(records, bf16_label_rank, DType::bf16,
                  {TokenRecord::loss, TokenRecord::label_rank})
    ->Apply(pairs);
// The table of costs of records and depths.
BENCHMARK_CAPTURE(records, few_logprob, DType::fp32, {TokenRecord::loss, TokenRecord::logprob})
    ->Apply(few);
BENCHMARK_CAPTURE(records, few_entropy, DType::fp32, {TokenRecord::loss, TokenRecord::entropy})
    ->Apply(few);
BENCHMARK_CAPTURE(records, few_label_rank, DType::fp32,
                  {TokenRecord::loss, TokenRecord::label_rank})
    ->Apply(few);
BENCHMARK_CAPTURE(records, few_top_8, DType::fp32,
                  TokenRecords{TokenRecord::loss} | TokenRecords::best(8))
    ->Apply(few);
BENCHMARK_CAPTURE(records, few_top_64, DType::fp32,
                  TokenRecords{TokenRecord::loss} | TokenRecords::best(64))
    ->Apply(few);
BENCHMARK_CAPTURE(depths, few, DType::fp32)->Apply(few_deeper);
BENCHMARK_CAPTURE(depths, many, DType::fp32)->Apply(many_deeper);
BENCHMARK(adamw)->Arg(1 << 24)->Unit(benchmark::kMillisecond);
BENCHMARK(norm)->Arg(1 << 25)->Unit(benchmark::kMillisecond);
BENCHMARK(normal_numbers)
    ->ArgNames({"count", "threads"})
    ->Args({1 << 20, 1})
    ->Args({1 << 20, 2})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
