// SPDX-License-Identifier: Apache-2.0
// How near do the grouped products of a mixture of experts come to one dense product of the same
// FLOPs, and what do router and rows cost beside them?
//   bench_experts [--tokens 4096] [--experts 128] [--top-k 8] [--hidden-size 2048]
//                 [--ffn-hidden-size 768] [--threads 2] [--rounds 5] [--warmup 5]
// One process computes both in turn: x (tokens k, in) times one w (out, in), and the same rows
// times the w of their experts. Every round chooses other experts for the tokens, uniformly. The
// table has the medians of the rounds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "benchmarks/random_tensor.hpp"
#include "kernels/host/operators.hpp"
#include "vocabpipe/context.hpp"

namespace {

using namespace vocabpipe;
using namespace vocabpipe::kernels;

struct Options {
    int64_t tokens = 4096, experts = 128, top_k = 8, hidden = 2048, ffn = 768;
    int threads = 2, rounds = 5, warmup = 5;
};

struct Order {
    std::vector<int32_t> choice, row_begin, row_of_slot, slot_of_row;
    std::vector<RowRange> rows = {};  // of each expert
};

/// k different experts for every token, all equally likely.
Order random_order(Context& ctx, const Options& o, unsigned seed) {
    std::mt19937 engine(seed);
    std::vector<int32_t> experts(static_cast<size_t>(o.experts));
    std::iota(experts.begin(), experts.end(), 0);
    const auto slots = static_cast<size_t>(o.tokens * o.top_k);
    Order order{{},
                std::vector<int32_t>(experts.size() + 1),
                std::vector<int32_t>(slots),
                std::vector<int32_t>(slots)};
    for (int64_t n = 0; n < o.tokens; ++n) {
        std::sample(experts.begin(), experts.end(), std::back_inserter(order.choice), o.top_k,
                    engine);
    }
    host::sort_by_expert(ctx, order.choice, order.row_begin, order.row_of_slot, order.slot_of_row);
    for (size_t e = 0; e + 1 < order.row_begin.size(); ++e) {
        order.rows.push_back({order.row_begin[e], order.row_begin[e + 1]});
    }
    return order;
}

double seconds(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

const char* name_of(DType type) {
    return type == DType::bf16 ? "bf16" : "fp32";
}

/// Seconds of dense and grouped products.
struct Times {
    double dense = 0, grouped = 0;
};

/// One line per direction of a layer, whose times are added to `total`.
void compare(Context& ctx, const Options& o, const std::vector<Order>& orders, const char* layer,
             DType type, int64_t in, int64_t out, Times& total) {
    const int64_t rows = o.tokens * o.top_k;
    const RandomTensor x(rows, in, type), y(rows, out, type), w(o.experts * out, in, type);
    const RandomTensor dw(o.experts * out, in, DType::fp32);
    const Tensor one_w = Tensor(w).row_range(0, out);
    const Tensor one_dw = Tensor(dw).row_range(0, out);
    struct Direction {
        const char* name;
        std::function<void()> dense;
        std::function<void(const Order&)> grouped;
    };
    const Direction directions[] = {
        {"forward", [&] { host::linear_forward(ctx, x, one_w, {}, y); },
         [&](const Order& order) { host::grouped_linear_forward(ctx, x, w, order.rows, 0, y); }},
        {"dx", [&] { host::linear_backward_input(ctx, y, one_w, x); },
         [&](const Order& order) {
             host::grouped_linear_backward_input(ctx, y, w, order.rows, x);
         }},
        {"dw", [&] { host::linear_backward_weight(ctx, y, x, one_dw, {}, true); },
         [&](const Order& order) {
             host::grouped_linear_backward_weight(ctx, y, x, order.rows, dw, true);
         }},
    };
    const double gflop = 2e-9 * static_cast<double>(rows * in * out);
    for (const Direction& direction : directions) {
        direction.dense();
        // Primitives are remembered by their shape: a run has seen most of them.
        for (int round = 0; round < o.warmup; ++round) {
            direction.grouped(orders[static_cast<size_t>(o.rounds + round)]);
        }
        std::vector<double> dense, grouped;
        for (int round = 0; round < o.rounds; ++round) {
            dense.push_back(seconds(direction.dense));
            const Order& order = orders[static_cast<size_t>(round)];
            grouped.push_back(seconds([&] { direction.grouped(order); }));
        }
        std::printf("%-8s %-5s %-8s %10.1f %10.1f %8.3f\n", layer, name_of(type), direction.name,
                    gflop / median(dense), gflop / median(grouped),
                    median(dense) / median(grouped));
        std::fflush(stdout);
        total.dense += median(dense);
        total.grouped += median(grouped);
    }
}

/// Milliseconds of what a layer does beside its products.
void time_rows(Context& ctx, const Options& o, const std::vector<Order>& orders, DType type) {
    const int64_t slots = o.tokens * o.top_k;
    const RandomTensor x(o.tokens, o.hidden, type), rows(slots, o.hidden, type);
    const RandomTensor logits(o.tokens, o.experts, DType::fp32),
        weights(o.tokens, o.top_k, DType::fp32);
    const RandomTensor dlogits(o.tokens, o.experts, DType::fp32), log_z(o.tokens, 1, DType::fp32);
    const RandomTensor load(1, o.experts, DType::fp32), sums(1, o.experts, DType::fp32);
    const RouterOptions options{.top_k = o.top_k, .normalize = true};
    Order scratch = orders[0];
    const auto print = [&](const char* what, const std::function<void()>& work) {
        work();
        std::vector<double> times;
        for (int round = 0; round < o.rounds; ++round) times.push_back(seconds(work));
        std::printf("%-26s %-5s %8.2f ms\n", what, name_of(type), median(times) * 1e3);
    };
    print("router_forward", [&] {
        host::router_forward(ctx, logits, {}, options, scratch.choice, weights, load, sums, log_z);
    });
    print("router_backward", [&] {
        host::router_backward(ctx, logits, log_z, scratch.choice, weights, load, options, {},
                              dlogits);
    });
    print("sort_by_expert", [&] {
        host::sort_by_expert(ctx, scratch.choice, scratch.row_begin, scratch.row_of_slot,
                             scratch.slot_of_row);
    });
    const Order& order = orders[0];
    print("gather_rows", [&] { host::gather_rows(ctx, x, order.slot_of_row, o.top_k, {}, rows); });
    print("combine_rows",
          [&] { host::combine_rows(ctx, rows, order.row_of_slot, o.top_k, weights, {}, x); });
    print("combine_backward_weights",
          [&] { host::combine_backward_weights(ctx, rows, rows, order.slot_of_row, weights); });
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app("Grouped products of a mixture of experts against a dense one on the host");
    app.add_option("--tokens", o.tokens, "of a microbatch")->check(CLI::PositiveNumber);
    app.add_option("--experts", o.experts)->check(CLI::PositiveNumber);
    app.add_option("--top-k", o.top_k, "experts of a token")->check(CLI::PositiveNumber);
    app.add_option("--hidden-size", o.hidden)->check(CLI::PositiveNumber);
    app.add_option("--ffn-hidden-size", o.ffn, "of one expert")->check(CLI::PositiveNumber);
    app.add_option("--threads", o.threads)->check(CLI::PositiveNumber);
    app.add_option("--rounds", o.rounds)->check(CLI::PositiveNumber);
    app.add_option("--warmup", o.warmup, "choices before the first round")
        ->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    if (o.top_k > o.experts) {
        std::fprintf(stderr, "bench_experts: --top-k %lld is more than --experts %lld\n",
                     static_cast<long long>(o.top_k), static_cast<long long>(o.experts));
        return 2;
    }
    Context ctx({.threads = o.threads, .poll = {}});
    std::vector<Order> orders;
    for (int round = 0; round < o.rounds + o.warmup; ++round) {
        orders.push_back(random_order(ctx, o, static_cast<unsigned>(round)));
    }
    std::printf("%-8s %-5s %-8s %10s %10s %8s\n", "layer", "type", "", "dense", "grouped", "ratio");
    for (const DType type : {DType::fp32, DType::bf16}) {
        Times total;
        compare(ctx, o, orders, "gate_up", type, o.hidden, 2 * o.ffn, total);
        compare(ctx, o, orders, "down", type, o.ffn, o.hidden, total);
        std::printf("%-8s %-5s %-8s %10s %10s %8.3f\n", "all", name_of(type), "", "", "",
                    total.dense / total.grouped);
    }
    for (const DType type : {DType::fp32, DType::bf16}) time_rows(ctx, o, orders, type);
    return 0;
}
