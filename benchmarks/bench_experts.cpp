// SPDX-License-Identifier: Apache-2.0
// How near do the grouped products of a mixture of experts come to one dense product of the same
// FLOPs, and what do router and rows cost on top?
//   bench_experts [--tokens 4096] [--experts 128] [--top-k 8] [--hidden-size 2048]
//                 [--ffn-hidden-size 768] [--threads 2] [--rounds 5] [--warmup 5]
//   bench_experts --device cuda [--tokens 2048] [--experts 64] [--top-k 8] [--hidden-size 4096]
//                 [--ffn-hidden-size 1536] [--rounds 5] [--warmup 5]
// One process computes both in turn: x (tokens k, in) times one w (out, in), and the same rows
// times the w of their experts. Every round draws other experts for the tokens, uniformly. The
// table has the medians of the rounds, in GFLOP/s. On a GPU times are between two events of its
// stream; the host's share of a round shows where the host is behind, as in a step. A line below
// the table says which code multiplied.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/median.hpp"
#include "benchmarks/operator_device.hpp"
#include "benchmarks/random_blocks.hpp"
#include "kernels/host/operators.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"

namespace {

using namespace vocabpipe;
using namespace vocabpipe::kernels;
using bench::median;
using bench::OperatorDevice;

struct Options {
    std::string device = "host";
    int64_t tokens = 4096, experts = 128, top_k = 8, hidden = 2048, ffn = 768;
    int threads = 2, rounds = 5, warmup = 5;
    std::vector<std::string> dtypes{"fp32", "bf16"};
};

/// A dense tensor on the device, with values from -0.1 to 0.1.
class RandomMatrix {
public:
    RandomMatrix(OperatorDevice& device, int64_t rows, int64_t cols, DType type)
        : memory_(device.allocate(static_cast<size_t>(rows * cols * size_of(type)))),
          view_(memory_.get(), rows, cols, type) {
        std::minstd_rand random(1);
        std::uniform_real_distribution<float> value(-0.1F, 0.1F);
        bench::fill_by_blocks(
            view_, [&] { return value(random); },
            [&](const void* from, size_t bytes, size_t offset) {
                device.upload(from, memory_.get() + offset, bytes);
            });
    }
    operator Tensor() const { return view_; }
    operator ConstTensor() const { return view_; }
    [[nodiscard]] Tensor view() const { return view_; }

private:
    std::shared_ptr<std::byte> memory_;
    Tensor view_;
};

/// Integers on the device.
class Indices {
public:
    Indices(OperatorDevice& device, const std::vector<int32_t>& values)
        : memory_(device.allocate(values.size() * sizeof(int32_t))), count_(values.size()) {
        device.upload(values.data(), memory_.get(), count_ * sizeof(int32_t));
    }
    operator std::span<int32_t>() const {
        return {reinterpret_cast<int32_t*>(memory_.get()), count_};
    }
    operator std::span<const int32_t>() const { return std::span<int32_t>(*this); }

private:
    std::shared_ptr<std::byte> memory_;
    size_t count_;
};

struct Order {
    Indices choice, row_begin, row_of_slot, slot_of_row;
    std::vector<RowRange> rows;  // of each expert
};

/// k different experts for every token, all equally likely.
Order random_order(OperatorDevice& device, const Options& o, unsigned seed) {
    std::mt19937 engine(seed);
    std::vector<int32_t> experts(static_cast<size_t>(o.experts));
    std::iota(experts.begin(), experts.end(), 0);
    const auto slots = static_cast<size_t>(o.tokens * o.top_k);
    std::vector<int32_t> choice, row_begin(experts.size() + 1), row_of_slot(slots);
    std::vector<int32_t> slot_of_row(slots);
    for (int64_t n = 0; n < o.tokens; ++n) {
        std::sample(experts.begin(), experts.end(), std::back_inserter(choice), o.top_k, engine);
    }
    Context host_context({.poll = {}});
    host::sort_by_expert(host_context, choice, row_begin, row_of_slot, slot_of_row);
    std::vector<RowRange> rows;
    for (size_t e = 0; e + 1 < row_begin.size(); ++e) {
        rows.push_back({row_begin[e], row_begin[e + 1]});
    }
    return {{device, choice},
            {device, row_begin},
            {device, row_of_slot},
            {device, slot_of_row},
            std::move(rows)};
}

const char* name_of(DType type) {
    return type == DType::bf16 ? "bf16" : "fp32";
}

/// Seconds of dense and of grouped products.
struct Times {
    double dense = 0, grouped = 0;
};

/// Prints a line per direction of a layer and adds their times to `total`.
void compare(OperatorDevice& device, const Options& o, const std::vector<Order>& orders,
             const char* layer, DType type, int64_t in, int64_t out, Times& total) {
    Context& ctx = device.context();
    const Operators& operators = device.operators();
    const int64_t rows = o.tokens * o.top_k;
    const RandomMatrix x(device, rows, in, type), y(device, rows, out, type);
    const RandomMatrix w(device, o.experts * out, in, type);
    const RandomMatrix dw(device, o.experts * out, in, DType::fp32);
    const Tensor one_w = w.view().row_range(0, out);
    const Tensor one_dw = dw.view().row_range(0, out);
    struct Direction {
        const char* name;
        std::function<void()> dense;
        std::function<void(const Order&)> grouped;
    };
    const Direction directions[] = {
        {"forward", [&] { operators.linear_forward(ctx, x, one_w, {}, y); },
         [&](const Order& order) {
             operators.grouped_linear_forward(ctx, x, w, order.rows, 0, y);
         }},
        {"dx", [&] { operators.linear_backward_input(ctx, y, one_w, x); },
         [&](const Order& order) {
             operators.grouped_linear_backward_input(ctx, y, w, order.rows, x);
         }},
        {"dw", [&] { operators.linear_backward_weight(ctx, y, x, one_dw, {}, true); },
         [&](const Order& order) {
             operators.grouped_linear_backward_weight(ctx, y, x, order.rows, dw, true);
         }},
    };
    const double gflop = 2e-9 * static_cast<double>(rows * in * out);
    for (const Direction& direction : directions) {
        direction.dense();
        // Plans of products are cached by shape on GPUs: a long run has seen most of them.
        for (int round = 0; round < o.warmup; ++round) {
            direction.grouped(orders[static_cast<size_t>(o.rounds + round)]);
        }
        std::vector<double> dense, grouped;
        for (int round = 0; round < o.rounds; ++round) {
            dense.push_back(device.seconds(direction.dense, 1));
            const Order& order = orders[static_cast<size_t>(round)];
            grouped.push_back(device.seconds([&] { direction.grouped(order); }, 1));
        }
        std::printf("%-8s %-5s %-8s %10.1f %10.1f %8.3f\n", layer, name_of(type), direction.name,
                    gflop / median(dense), gflop / median(grouped),
                    median(dense) / median(grouped));
        std::fflush(stdout);
        total.dense += median(dense);
        total.grouped += median(grouped);
    }
}

/// Milliseconds of a layer's work besides its products.
void time_rows(OperatorDevice& device, const Options& o, const std::vector<Order>& orders,
               DType type) {
    Context& ctx = device.context();
    const Operators& operators = device.operators();
    const int64_t slots = o.tokens * o.top_k;
    const RandomMatrix x(device, o.tokens, o.hidden, type), rows(device, slots, o.hidden, type);
    const RandomMatrix logits(device, o.tokens, o.experts, DType::fp32);
    const RandomMatrix weights(device, o.tokens, o.top_k, DType::fp32);
    const RandomMatrix dlogits(device, o.tokens, o.experts, DType::fp32);
    const RandomMatrix log_z(device, o.tokens, 1, DType::fp32);
    const RandomMatrix load(device, 1, o.experts, DType::fp32);
    const RandomMatrix sums(device, 1, o.experts, DType::fp32);
    const RouterOptions options{.top_k = o.top_k, .normalize = true};
    const Order scratch = random_order(device, o, 0);
    const auto print = [&](const char* what, const std::function<void()>& work) {
        work();
        std::vector<double> times;
        for (int round = 0; round < o.rounds; ++round) {
            times.push_back(device.seconds(work, device.runs_of_short_operators()));
        }
        std::printf("%-26s %-5s %8.3f ms\n", what, name_of(type), median(times) * 1e3);
        std::fflush(stdout);
    };
    print("router_forward", [&] {
        operators.router_forward(ctx, logits, {}, options, scratch.choice, weights, load, sums,
                                 log_z);
    });
    print("router_backward", [&] {
        operators.router_backward(ctx, logits, log_z, scratch.choice, weights, load, options, {},
                                  dlogits);
    });
    print("sort_by_expert", [&] {
        operators.sort_by_expert(ctx, scratch.choice, scratch.row_begin, scratch.row_of_slot,
                                 scratch.slot_of_row);
    });
    const Order& order = orders[0];
    print("gather_rows",
          [&] { operators.gather_rows(ctx, x, order.slot_of_row, o.top_k, {}, rows); });
    print("combine_rows",
          [&] { operators.combine_rows(ctx, rows, order.row_of_slot, o.top_k, weights, {}, x); });
    print("combine_backward_weights",
          [&] { operators.combine_backward_weights(ctx, rows, rows, order.slot_of_row, weights); });
}

std::unique_ptr<OperatorDevice> open_device(const Options& o) {
    if (o.device == "host") return bench::host_operators(o.threads);
#ifdef VOCABPIPE_WITH_CUDA
    return bench::cuda_operators();
#else
    throw UsageError(
        "--device cuda: this build has no CUDA; configure with -DVOCABPIPE_ENABLE_CUDA=ON or use "
        "--device host");
#endif
}

void run(const Options& o) {
    const std::unique_ptr<OperatorDevice> device = open_device(o);
    std::vector<Order> orders;
    for (int round = 0; round < o.rounds + o.warmup; ++round) {
        orders.push_back(random_order(*device, o, static_cast<unsigned>(round)));
    }
    std::printf("# bench_experts: %s; %lld tokens, %lld experts, k = %lld, h = %lld, f = %lld\n",
                device->name().c_str(), static_cast<long long>(o.tokens),
                static_cast<long long>(o.experts), static_cast<long long>(o.top_k),
                static_cast<long long>(o.hidden), static_cast<long long>(o.ffn));
    std::printf("%-8s %-5s %-8s %10s %10s %8s\n", "layer", "type", "", "dense", "grouped", "ratio");
    const auto type_of = [](const std::string& name) {
        return name == "bf16" ? DType::bf16 : DType::fp32;
    };
    for (const std::string& name : o.dtypes) {
        const DType type = type_of(name);
        Times total;
        compare(*device, o, orders, "gate_up", type, o.hidden, 2 * o.ffn, total);
        compare(*device, o, orders, "down", type, o.ffn, o.hidden, total);
        std::printf("%-8s %-5s %-8s %10s %10s %8.3f\n", "all", name_of(type), "", "", "",
                    total.dense / total.grouped);
    }
    if (const std::string products = device->products(); !products.empty()) {
        std::printf("# products: %s\n", products.c_str());
    }
    for (const std::string& name : o.dtypes) time_rows(*device, o, orders, type_of(name));
}

/// Sets the options that were not given by the device, so that an expert gets 256 rows.
void fill_in(const CLI::App& app, Options& o) {
    if (o.device != "cuda") return;
    const auto set = [&](const char* flag, auto& value, auto of_gpus) {
        if (app.count(flag) == 0) value = of_gpus;
    };
    set("--tokens", o.tokens, 2048);
    set("--experts", o.experts, 64);
    set("--hidden-size", o.hidden, 4096);
    set("--ffn-hidden-size", o.ffn, 1536);
    set("--dtype", o.dtypes, std::vector<std::string>{"bf16"});
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app("Grouped products of a mixture of experts against a dense one");
    app.add_option("--device", o.device)
        ->check(CLI::IsMember({"host", "cuda"}))
        ->capture_default_str();
    app.add_option("--tokens", o.tokens, "of a microbatch")->check(CLI::PositiveNumber);
    app.add_option("--experts", o.experts)->check(CLI::PositiveNumber);
    app.add_option("--top-k", o.top_k, "experts of a token")->check(CLI::PositiveNumber);
    app.add_option("--hidden-size", o.hidden)->check(CLI::PositiveNumber);
    app.add_option("--ffn-hidden-size", o.ffn, "of one expert")->check(CLI::PositiveNumber);
    app.add_option("--dtype", o.dtypes, "Both on the host, bf16 on GPUs")
        ->delimiter(',')
        ->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_option("--threads", o.threads, "of the host")->check(CLI::PositiveNumber);
    app.add_option("--rounds", o.rounds)->check(CLI::PositiveNumber);
    app.add_option("--warmup", o.warmup, "choices before the first round")
        ->check(CLI::PositiveNumber);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    }
    fill_in(app, o);
    if (o.top_k > o.experts) {
        std::fprintf(stderr, "bench_experts: --top-k %lld is more than --experts %lld\n",
                     static_cast<long long>(o.top_k), static_cast<long long>(o.experts));
        return 2;
    }
    try {
        run(o);
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_experts: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
