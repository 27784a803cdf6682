// SPDX-License-Identifier: Apache-2.0
// How fast are single host operators?
//   bench_kernels [--benchmark_filter=regex] ...
// Columns: GFLOP/s counts 2mnk per product (attention: the visible part of the square), "peak" is
// the ratio to the FMA units' peak, measured in this process by a loop on registers (bf16: twice
// the fp32 rate); GB/s counts every tensor read or written once. The last benchmark argument is the
// number of threads; keep threads <= idle cores.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/random_tensor.hpp"
#include "kernels/host/operators.hpp"
#include "vocabpipe/context.hpp"

namespace {

using namespace vocabpipe;
using namespace vocabpipe::kernels;

/// GFLOP/s of one core from 16 independent chains of 64-byte fused multiply-adds.
double measure_core_peak() {
    using Vector = float __attribute__((vector_size(64)));
    double best = 0.0;
    for (int run = 0; run < 20; ++run) {
        constexpr int kChains = 16;
        constexpr int kRounds = 100000;
        Vector sums[kChains] = {};
        Vector factor = Vector{} + 0.999F;
        Vector term = Vector{} + 1e-3F;
        benchmark::DoNotOptimize(factor);
        benchmark::DoNotOptimize(term);
        const auto begin = std::chrono::steady_clock::now();
        for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 16
            for (auto& sum : sums) sum = sum * factor + term;
        }
        const auto end = std::chrono::steady_clock::now();
        for (auto& sum : sums) benchmark::DoNotOptimize(sum);
        const double flop = 2.0 * 16 * kChains * kRounds;
        best = std::max(best, flop / std::chrono::duration<double>(end - begin).count() / 1e9);
    }
    return best;
}

double peak(DType type, int threads) {
    static const double core = measure_core_peak();
    return core * threads * (type == DType::bf16 ? 2.0 : 1.0);
}

DType type_of(const benchmark::State& state) {
    return state.range(0) == 0 ? DType::fp32 : DType::bf16;
}

void report(benchmark::State& state, double flop, double bytes, int threads) {
    const auto rate = [&](double amount) {
        return benchmark::Counter(amount / 1e9, benchmark::Counter::kIsIterationInvariantRate);
    };
    if (flop > 0) {
        state.counters["GFLOP/s"] = rate(flop);
        state.counters["peak"] = benchmark::Counter(flop / 1e9 / peak(type_of(state), threads),
                                                    benchmark::Counter::kIsIterationInvariantRate);
    } else {
        state.counters["GB/s"] = rate(bytes);
    }
}

// ---- linear: type, which (0 forward, 1 dx, 2 dw), N, in, out, threads ----

void Linear(benchmark::State& state) {
    const DType type = type_of(state);
    const int64_t n = state.range(2), in = state.range(3), out = state.range(4);
    const int threads = static_cast<int>(state.range(5));
    Context ctx({.threads = threads, .poll = {}});
    const RandomTensor x(n, in, type), w(out, in, type), bias(1, out, type), y(n, out, type);
    const RandomTensor dx(n, in, type), dw(out, in, DType::fp32), dbias(1, out, DType::fp32);
    for (auto _ : state) {
        switch (state.range(1)) {
            case 0:
                host::linear_forward(ctx, x, w, bias, y);
                break;
            case 1:
                host::linear_backward_input(ctx, y, w, dx);
                break;
            default:
                host::linear_backward_weight(ctx, y, x, dw, dbias, true);
                break;
        }
    }
    report(state, 2.0 * static_cast<double>(n * in * out), 0, threads);
    state.SetLabel(state.range(1) == 0 ? "forward" : state.range(1) == 1 ? "dx" : "dw");
}
void linear_shapes(benchmark::internal::Benchmark* bench) {
    struct Shape {
        int64_t n, in, out;
    };
    // GPT-2 124M with 256 and 2048 tokens, then hidden 512 with 512 tokens, then a square.
    for (const int64_t threads : {1, 2}) {
        for (const int64_t type : {0, 1}) {
            for (const Shape& s : {Shape{256, 768, 2304},
                                   {256, 768, 768},
                                   {256, 768, 3072},
                                   {256, 3072, 768},
                                   {256, 768, 50257},
                                   {2048, 768, 2304},
                                   {2048, 768, 768},
                                   {2048, 768, 3072},
                                   {2048, 3072, 768},
                                   {2048, 768, 50257},
                                   {512, 512, 1536},
                                   {512, 512, 512},
                                   {512, 512, 2048},
                                   {512, 2048, 512},
                                   {512, 512, 8192},
                                   {1024, 1024, 1024}}) {
                for (const int64_t which : {0, 1, 2}) {
                    bench->Args({type, which, s.n, s.in, s.out, threads});
                }
            }
        }
    }
}
BENCHMARK(Linear)->Apply(linear_shapes)->UseRealTime();

// ---- attention: type, backward?, sequences, seq_length, heads, head_size, kv_heads, softcap,
// window, documents per sequence (0: no mask), threads ----

/// first_visible of sequences that are cut into equally long documents.
std::vector<int32_t> equal_documents(const AttentionShape& shape, int64_t per_sequence) {
    std::vector<int32_t> first_visible;
    if (per_sequence == 0) return first_visible;
    const int64_t length = shape.seq_length / per_sequence;
    for (int64_t n = 0; n < shape.tokens(); ++n) {
        first_visible.push_back(static_cast<int32_t>(n % shape.seq_length / length * length));
    }
    return first_visible;
}

void Attention(benchmark::State& state) {
    const DType type = type_of(state);
    const AttentionShape shape{.sequences = state.range(2),
                               .seq_length = state.range(3),
                               .heads = state.range(4),
                               .head_size = state.range(5),
                               .kv_heads = state.range(6),
                               .softcap = static_cast<float>(state.range(7)),
                               .window = state.range(8)};
    const auto first_visible = equal_documents(shape, state.range(9));
    const int threads = static_cast<int>(state.range(10));
    const bool backward = state.range(1) != 0;
    Context ctx({.threads = threads, .poll = {}});
    const int64_t n = shape.tokens(), h = shape.query_columns();
    const RandomTensor qkv(n, shape.qkv_columns(), type), dqkv(n, shape.qkv_columns(), type);
    const RandomTensor out(n, h, type), dout(n, h, type);
    const RandomTensor sums(n, shape.heads, DType::fp32);
    const RandomTensor workspace(1, host::attention_workspace_bytes(shape, type, threads) / 4 + 1,
                                 DType::fp32);
    const auto queries = [&](Tensor of) { return of.column_range(0, h); };
    const auto keys_values = [&](Tensor of) {
        return of.column_range(h, shape.key_value_columns());
    };
    const auto forward = [&] {
        host::causal_attention_forward(ctx, queries(qkv), keys_values(qkv), shape, first_visible,
                                       out, sums, workspace.span());
    };
    forward();
    for (auto _ : state) {
        if (backward) {
            host::causal_attention_backward(ctx, dout, queries(qkv), keys_values(qkv), out, sums,
                                            shape, first_visible, queries(dqkv), keys_values(dqkv),
                                            workspace.span());
        } else {
            forward();
        }
    }
    const double products = backward ? 5.0 : 2.0;
    int64_t visible = 0;
    for (int64_t i = 1; i <= shape.seq_length; ++i) {
        const int64_t first = first_visible.empty() ? 0 : first_visible[static_cast<size_t>(i - 1)];
        visible += shape.window > 0 ? std::min(i - first, shape.window) : i - first;
    }
    report(state, products * 2.0 * static_cast<double>(visible * shape.sequences * h), 0, threads);
    state.SetLabel(backward ? "backward" : "forward");
}
BENCHMARK(Attention)
    ->ArgsProduct({{0, 1}, {0, 1}, {4}, {64}, {12}, {64}, {12}, {0}, {0}, {0}, {2}})
    ->ArgsProduct({{0, 1}, {0, 1}, {1}, {512}, {8}, {64}, {8}, {0}, {0}, {0}, {1}})
    ->ArgsProduct({{0, 1}, {0, 1}, {1}, {1024}, {12}, {64}, {12, 4}, {0}, {0}, {0}, {1, 2}})
    ->ArgsProduct({{0, 1}, {0, 1}, {1}, {2048}, {8}, {64}, {4}, {0, 50}, {0, 256}, {0}, {1}})
    ->ArgsProduct({{0, 1}, {0, 1}, {1}, {1024}, {12}, {64}, {12}, {0}, {0}, {1, 8}, {1}})
    ->UseRealTime();

// ---- loops over rows: type, N, h, threads ----

void rows_and_threads(benchmark::internal::Benchmark* bench) {
    bench->ArgsProduct({{0, 1}, {256}, {768}, {1, 2}})
        ->ArgsProduct({{0, 1}, {4096}, {1024}, {1, 2}});
    bench->UseRealTime();
}

void LayerNormForward(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), y(n, h, type_of(state)),
        gamma(1, h, type_of(state));
    const RandomTensor statistics(n, 2, DType::fp32);
    for (auto _ : state) host::layer_norm_forward(ctx, x, gamma, gamma, 1e-5F, y, statistics);
    report(state, 0, static_cast<double>(2 * x.bytes()), ctx.threads());
}
BENCHMARK(LayerNormForward)->Apply(rows_and_threads);

void LayerNormBackwardInput(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), dy(n, h, type_of(state)),
        gamma(1, h, type_of(state));
    const RandomTensor dx(n, h, type_of(state)), residual(n, h, type_of(state));
    const RandomTensor statistics(n, 2, DType::fp32);
    for (auto _ : state) {
        host::layer_norm_backward_input(ctx, dy, x, gamma, statistics, residual, dx);
    }
    report(state, 0, static_cast<double>(4 * x.bytes()), ctx.threads());
}
BENCHMARK(LayerNormBackwardInput)->Apply(rows_and_threads);

void LayerNormBackwardWeight(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), dy(n, h, type_of(state)),
        statistics(n, 2, DType::fp32);
    const RandomTensor dgamma(1, h, DType::fp32), dbeta(1, h, DType::fp32);
    for (auto _ : state) {
        host::layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, true);
    }
    report(state, 0, static_cast<double>(2 * x.bytes()), ctx.threads());
}
BENCHMARK(LayerNormBackwardWeight)->Apply(rows_and_threads);

void RmsNormForward(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), y(n, h, type_of(state)),
        gamma(1, h, type_of(state));
    const RandomTensor statistics(n, 1, DType::fp32);
    for (auto _ : state) host::rms_norm_forward(ctx, x, gamma, {}, {}, y, statistics);
    report(state, 0, static_cast<double>(2 * x.bytes()), ctx.threads());
}
BENCHMARK(RmsNormForward)->Apply(rows_and_threads);

void RmsNormBackwardInput(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), dy(n, h, type_of(state)),
        gamma(1, h, type_of(state));
    const RandomTensor dx(n, h, type_of(state)), residual(n, h, type_of(state));
    const RandomTensor statistics(n, 1, DType::fp32);
    for (auto _ : state) {
        host::rms_norm_backward_input(ctx, dy, x, gamma, {}, statistics, residual, dx);
    }
    report(state, 0, static_cast<double>(4 * x.bytes()), ctx.threads());
}
BENCHMARK(RmsNormBackwardInput)->Apply(rows_and_threads);

void RmsNormBackwardWeight(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), dy(n, h, type_of(state)),
        statistics(n, 1, DType::fp32);
    const RandomTensor dgamma(1, h, DType::fp32);
    for (auto _ : state) host::rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, true);
    report(state, 0, static_cast<double>(2 * x.bytes()), ctx.threads());
}
BENCHMARK(RmsNormBackwardWeight)->Apply(rows_and_threads);

/// Rotates h columns of q and h / 4 of k, in place; heads of 64.
void Rotary(benchmark::State& state) {
    const AttentionShape shape{.sequences = 1,
                               .seq_length = state.range(1),
                               .heads = state.range(2) / 64,
                               .head_size = 64,
                               .kv_heads = state.range(2) / 256};
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor qkv(shape.tokens(), shape.qkv_columns(), type_of(state));
    const RandomTensor table(shape.seq_length, shape.head_size, DType::fp32);
    for (auto _ : state) host::rotary_forward(ctx, table, shape, qkv);
    const int64_t elements = shape.tokens() * (shape.query_columns() + shape.key_columns());
    report(state, 0, static_cast<double>(2 * elements * size_of(type_of(state))), ctx.threads());
}
BENCHMARK(Rotary)->Apply(rows_and_threads);

void GatedForward(benchmark::State& state) {
    const int64_t n = state.range(1), f = 4 * state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor gate_up(n, 2 * f, type_of(state)), y(n, f, type_of(state));
    for (auto _ : state) host::gated_forward(ctx, Activation::silu, gate_up, y);
    report(state, 0, static_cast<double>(3 * y.bytes()), ctx.threads());
}
BENCHMARK(GatedForward)->Apply(rows_and_threads);

void GatedBackward(benchmark::State& state) {
    const int64_t n = state.range(1), f = 4 * state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor gate_up(n, 2 * f, type_of(state)), dgate_up(n, 2 * f, type_of(state));
    const RandomTensor dy(n, f, type_of(state));
    for (auto _ : state) host::gated_backward(ctx, Activation::silu, dy, gate_up, dgate_up);
    report(state, 0, static_cast<double>(5 * dy.bytes()), ctx.threads());
}
BENCHMARK(GatedBackward)->Apply(rows_and_threads);

void GeluForward(benchmark::State& state) {
    const int64_t n = state.range(1), h = 4 * state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), y(n, h, type_of(state));
    for (auto _ : state) host::activation_forward(ctx, Activation::gelu_tanh, x, y);
    report(state, 0, static_cast<double>(2 * x.bytes()), ctx.threads());
}
BENCHMARK(GeluForward)->Apply(rows_and_threads);

void GeluBackward(benchmark::State& state) {
    const int64_t n = state.range(1), h = 4 * state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor x(n, h, type_of(state)), dy(n, h, type_of(state)), dx(n, h, type_of(state));
    for (auto _ : state) {
        host::activation_backward(ctx, Activation::gelu_tanh, dy, x, dx);
    }
    report(state, 0, static_cast<double>(3 * x.bytes()), ctx.threads());
}
BENCHMARK(GeluBackward)->Apply(rows_and_threads);

void Add(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor a(n, h, type_of(state)), b(n, h, type_of(state)), out(n, h, type_of(state));
    for (auto _ : state) host::add(ctx, a, b, out);
    report(state, 0, static_cast<double>(3 * a.bytes()), ctx.threads());
}
BENCHMARK(Add)->Apply(rows_and_threads);

/// type: the source's; the result has the other one.
void Convert(benchmark::State& state) {
    const int64_t n = state.range(1), h = state.range(2);
    Context ctx({.threads = static_cast<int>(state.range(3)), .poll = {}});
    const RandomTensor from(n, h, type_of(state));
    const RandomTensor to(n, h, type_of(state) == DType::fp32 ? DType::bf16 : DType::fp32);
    for (auto _ : state) host::convert(ctx, from, to);
    report(state, 0, static_cast<double>(from.bytes() + to.bytes()), ctx.threads());
}
BENCHMARK(Convert)->Apply(rows_and_threads);

}  // namespace

BENCHMARK_MAIN();
