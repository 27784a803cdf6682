// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/step_bench.hpp"

#include "kernels/host/elementwise.hpp"
#include "kernels/host/gemm.hpp"
#include "kernels/host/random.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/optimizer_step.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace vocabpipe::bench {

namespace {

/// The same random tokens on every rank.
struct RandomBatch {
    RandomBatch(const StepCase& which) {
        const auto per_microbatch =
            static_cast<size_t>(which.micro_batch_size * which.model.seq_length);
        const size_t total = per_microbatch * static_cast<size_t>(which.microbatches);
        std::mt19937 random(7);
        std::uniform_int_distribution<int32_t> id(0,
                                                  static_cast<int32_t>(which.model.vocab_size) - 1);
        tokens.resize(total + 1);
        for (int32_t& token : tokens) token = id(random);
        g.assign(total, 1.0F / static_cast<float>(total));
        for (int j = 0; j < which.microbatches; ++j) {
            const size_t at = static_cast<size_t>(j) * per_microbatch;
            microbatches.push_back({.index = j,
                                    .sequences = which.micro_batch_size,
                                    .seq_length = which.model.seq_length,
                                    .tokens = std::span(tokens).subspan(at, per_microbatch),
                                    .labels = std::span(tokens).subspan(at + 1, per_microbatch),
                                    .loss_gradient = std::span(g).subspan(at, per_microbatch)});
        }
    }
    std::vector<int32_t> tokens;
    std::vector<float> g;
    std::vector<Microbatch> microbatches;
};

}  // namespace

StepTiming time_steps(Communicator& communicator, Device& device, const StepCase& which) {
    const ModelConfig& model = which.model;
    const Schedule schedule = make_schedule(which.schedule, {.ranks = communicator.size(),
                                                             .microbatches = which.microbatches,
                                                             .vocab_mode = which.vocab_mode,
                                                             .vocab_size = model.vocab_size});
    const ModelPartition partition{
        .layers_per_stage = layers_per_stage(model.num_layers, schedule.stages, which.vocab_mode,
                                             output_layer_in_layers(model)),
        .micro_batch_size = which.micro_batch_size,
        .threads_per_rank = which.threads};
    const StepSizes sizes = step_sizes(model, partition, schedule);
    const std::vector<Program> programs =
        lower(schedule, sizes, flop_costs(model, partition, schedule));
    ModelRank rank(model, partition, schedule, communicator.rank(), device);
    OptimizerStep optimizer(rank, schedule, communicator.rank(), {});
    RankModules modules = rank.modules();
    modules.step = &optimizer;
    Executor executor(communicator, device, modules, sizes, {.threads = which.threads});
    rank.initialise(executor.context(), 1);
    executor.load(programs);
    const RandomBatch batch(which);

    StepTiming timing;
    std::vector<double> seconds;
    std::vector<double> on_device;
    int64_t busy_ns = 0;
    int64_t wall_ns = 0;
    for (int step = 0; step < which.warmup + which.steps; ++step) {
        communicator.barrier();
        const int64_t begin = now_ns();
        optimizer.begin_step(step + 1, 1e-4F, static_cast<int64_t>(batch.g.size()), false);
        executor.run_step(batch.microbatches);
        const int64_t duration = now_ns() - begin;
        if (step == 0) timing.first_loss = optimizer.result().loss;
        if (step < which.warmup) continue;
        seconds.push_back(static_cast<double>(duration) * 1e-9);
        wall_ns += duration;
        int64_t first = INT64_MAX;
        int64_t last = 0;
        for (const Span& span : executor.timeline().spans) {
            busy_ns += span.cpu_ns;
            first = std::min(first, span.begin_ns);
            last = std::max(last, span.end_ns);
        }
        on_device.push_back(static_cast<double>(last - first) * 1e-9);
    }
    std::sort(seconds.begin(), seconds.end());
    std::sort(on_device.begin(), on_device.end());
    timing.median_seconds = seconds[seconds.size() / 2];
    timing.device_seconds = on_device[on_device.size() / 2];
    timing.fastest_seconds = seconds.front();
    timing.mean_seconds = static_cast<double>(wall_ns) * 1e-9 / static_cast<double>(which.steps);
    timing.flops = 3 * forward_flops_per_token(model) * static_cast<double>(batch.g.size());
    timing.busy_share = static_cast<double>(busy_ns) / static_cast<double>(wall_ns);
    return timing;
}

ProductTimer host_product_timer(int threads) {
    auto context = std::make_shared<Context>(ContextOptions{.threads = threads, .poll = {}});
    return [context](ConstTensor a, bool transpose_a, ConstTensor b, bool transpose_b, Tensor c) {
        const auto product = [&] {
            kernels::host::gemm(*context, a, transpose_a, b, transpose_b, c, false);
        };
        product();
        std::vector<double> times;
        for (int i = 0; i < 7; ++i) {
            const int64_t begin = now_ns();
            product();
            times.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
        }
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    };
}

double gemm_rate(const StepCase& which, Device& device, const ProductTimer& time) {
    const ModelConfig& m = which.model;
    const int64_t n = which.micro_batch_size * m.seq_length;
    struct Shape {
        int64_t in, out;
        double count;
    };
    const auto layers = static_cast<double>(m.num_layers);
    const std::vector<Shape> shapes{{m.hidden_size, m.qkv_columns(), layers},
                                    {m.query_columns(), m.hidden_size, layers},
                                    {m.hidden_size, m.mlp_columns(), layers},
                                    {m.ffn_hidden_size, m.hidden_size, layers},
                                    {m.hidden_size, m.vocab_size, 1}};
    // Only makes the numbers; on a GPU no rank of the host's would be in its way.
    const int threads = device.asynchronous()
                            ? std::max(1, static_cast<int>(std::thread::hardware_concurrency()))
                            : which.threads;
    Context host({.threads = threads, .poll = {}});
    const auto random_numbers = [&](int64_t rows, int64_t cols) {
        const int64_t multiple = device.asynchronous() ? 16 / size_of(m.dtype) : 1;
        const int64_t stride = (cols + multiple - 1) / multiple * multiple;
        std::vector<float> memory(static_cast<size_t>(rows * stride));
        const Tensor wide(memory.data(), rows, stride, DType::fp32);
        kernels::host::fill_normal(host, wide, 1, 1, 0, 0.05F);
        std::vector<float> narrow;
        Tensor numbers = wide;
        if (m.dtype != DType::fp32) {
            narrow.resize(memory.size());
            numbers = Tensor(narrow.data(), rows, stride, m.dtype);
            kernels::host::convert(host, wide, numbers);
        }
        const auto bytes = static_cast<size_t>(numbers.bytes());
        DeviceMemory on_device = device.allocate(bytes, "matrices to multiply");
        device.upload({static_cast<const std::byte*>(numbers.data), bytes}, on_device.data());
        const Tensor view(on_device.data(), rows, cols, stride, m.dtype);
        return std::pair(std::move(on_device), view);
    };
    double flops = 0;
    double seconds = 0;
    for (const Shape& shape : shapes) {
        const auto [x_memory, x] = random_numbers(n, shape.in);
        const auto [w_memory, w] = random_numbers(shape.out, shape.in);
        const auto [y_memory, y] = random_numbers(n, shape.out);
        const DeviceMemory dw_memory = device.allocate(
            static_cast<uint64_t>(shape.out * shape.in) * sizeof(float), "matrices to multiply");
        const Tensor dw(dw_memory.data(), shape.out, shape.in, DType::fp32);
        const double once =
            time(x, false, w, true, y) + time(y, false, w, false, x) + time(y, true, x, false, dw);
        flops += shape.count * 6 * static_cast<double>(n * shape.in * shape.out);
        seconds += shape.count * once;
    }
    return flops / seconds;
}

double ideal_speedup(const ModelConfig& model, int ranks) {
    const double layer_units = model.num_layers;
    const double output = output_layer_in_layers(model);
    const double most = std::max(layer_units / ranks, layer_units / ranks + output);
    return most / ((layer_units + output) / ranks);
}

}  // namespace vocabpipe::bench
