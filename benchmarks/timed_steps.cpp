// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/timed_steps.hpp"

#include "benchmarks/median.hpp"
#include "kernels/host/gemm.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/host/random.hpp"
#include "src/runtime/wait.hpp"
#include "src/step/random_batch.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace vocabpipe::bench {

StepTiming time_steps(Communicator& communicator, Device& device, const StepCase& which) {
    const ModelConfig& model = which.model;
    const StepPlan plan =
        plan_step(model,
                  {.ranks = communicator.size(),
                   .threads_per_rank = which.threads,
                   .operators = &device.operators(),
                   .communication = device.communication_order()},
                  {.name = which.schedule, .vocab_mode = which.vocab_mode, .receive_ahead = 1},
                  {.microbatches = which.microbatches, .micro_batch_size = which.micro_batch_size});
    TrainedRank rank(communicator, device, plan, {.seed = 1});
    const RandomBatch batch(model, which.micro_batch_size, which.microbatches, 7);

    StepTiming timing;
    std::vector<double> seconds;
    std::vector<double> on_device;
    int64_t busy_ns = 0;
    int64_t wall_ns = 0;
    for (int step = 0; step < which.warmup + which.steps; ++step) {
        communicator.barrier();
        const int64_t begin = now_ns();
        rank.train_step(batch.microbatches(), batch.counted_tokens(), 1e-4);
        const int64_t duration = now_ns() - begin;
        if (step == 0) timing.first_loss = rank.report().loss;
        if (step < which.warmup) continue;
        seconds.push_back(static_cast<double>(duration) * 1e-9);
        wall_ns += duration;
        int64_t first = INT64_MAX;
        int64_t last = 0;
        for (const Span& span : rank.executor().timeline().spans) {
            busy_ns += span.cpu_ns;
            first = std::min(first, span.begin_ns);
            last = std::max(last, span.end_ns);
        }
        on_device.push_back(static_cast<double>(last - first) * 1e-9);
    }
    timing.median_seconds = median(seconds);
    timing.device_seconds = median(on_device);
    timing.fastest_seconds = *std::ranges::min_element(seconds);
    timing.mean_seconds = static_cast<double>(wall_ns) * 1e-9 / static_cast<double>(which.steps);
    timing.flops = 3 * forward_flops_per_token(model) * static_cast<double>(batch.counted_tokens());
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
        return median(std::move(times));
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
    // Only generates numbers; on a GPU no rank needs the host's cores.
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
