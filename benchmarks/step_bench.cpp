// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/step_bench.hpp"

#include "kernels/host/elementwise.hpp"
#include "kernels/host/gemm.hpp"
#include "kernels/host/random.hpp"
#include "src/model/flop_costs.hpp"
#include "src/runtime/wait.hpp"
#include "src/train/optimizer_step.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/generate.hpp"

#include <algorithm>
#include <random>
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

StepTiming time_steps(Communicator& communicator, const StepCase& which) {
    const GptConfig& model = which.model;
    const Schedule schedule = generate(which.schedule, {.ranks = communicator.size(),
                                                        .microbatches = which.microbatches,
                                                        .vocab_mode = which.vocab_mode,
                                                        .vocab_size = model.vocab_size});
    const GptPartition partition{
        .layers_per_stage = layers_per_stage(model.num_layers, schedule.stages, which.vocab_mode,
                                             output_layer_in_layers(model)),
        .micro_batch_size = which.micro_batch_size,
        .threads_per_rank = which.threads};
    const StepSizes sizes = step_sizes(model, partition, schedule);
    const std::vector<Program> programs =
        lower(schedule, sizes, flop_costs(model, partition, schedule));
    const std::unique_ptr<Device> device = make_host_device();
    GptRank rank(model, partition, schedule, communicator.rank(), *device);
    OptimizerStep optimizer(rank, schedule, communicator.rank(), {});
    RankModules modules = rank.modules();
    modules.step = &optimizer;
    Executor executor(communicator, *device, modules, sizes, {.threads = which.threads});
    rank.initialise(executor.context(), 1);
    executor.load(programs);
    const RandomBatch batch(which);

    StepTiming timing;
    std::vector<double> seconds;
    int64_t busy_ns = 0;
    int64_t wall_ns = 0;
    for (int step = 0; step < which.warmup + which.steps; ++step) {
        communicator.barrier();
        const int64_t begin = now_ns();
        if (rank.output() != nullptr) rank.output()->begin_step(which.microbatches);
        optimizer.begin_step(step + 1, 1e-4F, static_cast<int64_t>(batch.g.size()), false);
        executor.run_step(batch.microbatches);
        const int64_t duration = now_ns() - begin;
        if (step == 0) timing.first_loss = optimizer.result().loss;
        if (step < which.warmup) continue;
        seconds.push_back(static_cast<double>(duration) * 1e-9);
        wall_ns += duration;
        for (const Span& span : executor.timeline().spans) busy_ns += span.cpu_ns;
    }
    std::sort(seconds.begin(), seconds.end());
    timing.median_seconds = seconds[seconds.size() / 2];
    timing.fastest_seconds = seconds.front();
    timing.flops = 3 * forward_flops_per_token(model) * static_cast<double>(batch.g.size());
    timing.busy_share = static_cast<double>(busy_ns) / static_cast<double>(wall_ns);
    return timing;
}

double gemm_rate(const StepCase& which) {
    const GptConfig& m = which.model;
    const int64_t n = which.micro_batch_size * m.seq_length;
    struct Shape {
        int64_t in, out;
        double count;
    };
    const auto layers = static_cast<double>(m.num_layers);
    const std::vector<Shape> shapes{{m.hidden_size, 3 * m.hidden_size, layers},
                                    {m.hidden_size, m.hidden_size, layers},
                                    {m.hidden_size, m.ffn_hidden_size, layers},
                                    {m.ffn_hidden_size, m.hidden_size, layers},
                                    {m.hidden_size, m.vocab_size, 1}};
    Context ctx({.threads = which.threads, .poll = {}});
    double flops = 0;
    double seconds = 0;
    for (const Shape& shape : shapes) {
        const auto matrix = [&](int64_t rows, int64_t cols, DType type,
                                std::vector<float>& memory) {
            memory.assign(static_cast<size_t>(rows * cols), 0.0F);
            const Tensor wide(memory.data(), rows, cols, DType::fp32);
            kernels::host::fill_normal(ctx, wide, 1, 1, 0, 0.05F);
            if (type == DType::fp32) return wide;
            std::vector<float> narrow(memory.size());
            const Tensor out(narrow.data(), rows, cols, type);
            kernels::host::convert(ctx, wide, out);
            memory.swap(narrow);
            return Tensor(memory.data(), rows, cols, type);
        };
        std::vector<float> x_memory, w_memory, y_memory, dw_memory;
        const Tensor x = matrix(n, shape.in, m.dtype, x_memory);
        const Tensor w = matrix(shape.out, shape.in, m.dtype, w_memory);
        const Tensor y = matrix(n, shape.out, m.dtype, y_memory);
        const Tensor dw = matrix(shape.out, shape.in, DType::fp32, dw_memory);
        const auto time = [&](auto&& product) {
            product();
            std::vector<double> times;
            for (int i = 0; i < 7; ++i) {
                const int64_t begin = now_ns();
                product();
                times.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
            }
            std::sort(times.begin(), times.end());
            flops += shape.count * 2 * static_cast<double>(n * shape.in * shape.out);
            seconds += shape.count * times[times.size() / 2];
        };
        time([&] { kernels::host::gemm(ctx, x, false, w, true, y, false); });
        time([&] { kernels::host::gemm(ctx, y, false, w, false, x, false); });
        time([&] { kernels::host::gemm(ctx, y, true, x, false, dw, false); });
    }
    return flops / seconds;
}

double ideal_speedup(const GptConfig& model, int ranks) {
    const double layer_units = model.num_layers;
    const double output = output_layer_in_layers(model);
    const double most = std::max(layer_units / ranks, layer_units / ranks + output);
    return most / ((layer_units + output) / ranks);
}

}  // namespace vocabpipe::bench
