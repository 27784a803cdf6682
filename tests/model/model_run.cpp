// SPDX-License-Identifier: Apache-2.0
#include "tests/model/model_run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "kernels/bf16.hpp"
#include "src/model/parameters.hpp"
#include "tests/support/one_rank_schedule.hpp"
#include "vocabpipe/trained_rank.hpp"

namespace vocabpipe::testing {

namespace {

float rounded(double value, DType type) {
    const auto narrow = static_cast<float>(value);
    return type == DType::bf16 ? kernels::to_float(kernels::to_bf16(narrow)) : narrow;
}

void set_weights(ModelRank& model, const Tensors& weights) {
    for (Parameter& p : model.parameters()) {
        const double* from = weights.at(p.name).data() + p.first_row * p.weight.cols;
        for (int64_t i = 0; i < p.weight.size(); ++i) {
            p.master.as<float>()[i] = static_cast<float>(from[i]);
            if (p.weight.dtype == DType::bf16) {
                p.weight.as<kernels::Bf16>()[i] = kernels::to_bf16(static_cast<float>(from[i]));
            }
        }
    }
}

}  // namespace

Tensors initial_weights(const ModelConfig& config, uint64_t seed) {
    const Schedule alone = one_rank_schedule(config);
    Context ctx({.threads = 1, .poll = {}});
    const std::unique_ptr<Device> device = make_host_device();
    ModelRank model(config, {.layers_per_stage = {config.num_layers}}, alone, 0, *device);
    model.initialise(ctx, seed);
    Tensors weights;
    for (const Parameter& p : model.parameters()) {
        std::vector<double>& whole = weights[p.name];
        whole.clear();
        for (int64_t i = 0; i < p.master.size(); ++i) {
            whole.push_back(rounded(p.master.as<float>()[i], config.dtype));
        }
    }
    return weights;
}

Tensors random_weights(const ModelConfig& config, uint64_t seed) {
    Tensors weights = initial_weights(config, seed);
    std::mt19937_64 random(seed + 1);
    std::normal_distribution<double> noise(0, 0.3);
    for (const LogicalParameter& p : logical_parameters(config)) {
        if (p.init_std > 0) continue;
        for (double& v : weights.at(p.name)) v = rounded(v + noise(random), config.dtype);
    }
    return weights;
}

Gradients run_with_weights(const ModelConfig& config, const Schedule& schedule, const Batch& batch,
                           const Tensors& weights) {
    const ModelPartition partition = even_partition(config, schedule, batch.sequences);
    const StepPlan plan =
        plan_step(config, partition, schedule,
                  TableCosts::uniform(schedule.ranks, schedule.stages, 1000, 2000, 500));
    Gradients result;
    std::mutex mutex;
    World::threads(schedule.ranks, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(communicator, *device, plan,
                         {.initialise = false, .poison_dead_buffers = true});
        ModelRank& model = rank.model();
        set_weights(model, weights);
        rank.run(batch.microbatches());
        const std::lock_guard lock(mutex);
        for (const Parameter& p : model.parameters()) {
            if (p.correction_bias) continue;  // which has none
            const bool output_side = config.tied && p.counted_elsewhere;
            std::vector<float>& whole = result.by_name[p.name + (output_side ? " (output)" : "")];
            const Tensor gradient = p.gradient_of_layer();
            whole.resize(static_cast<size_t>(p.logical_rows * gradient.cols));
            std::copy_n(gradient.as<float>(), gradient.size(),
                        whole.begin() + p.first_row * gradient.cols);
        }
        if (model.output() != nullptr) {
            const std::span<const double> losses = model.output()->losses();
            result.losses.assign(losses.begin(), losses.end());
            const std::span<const double> of_depths = model.output()->depth_losses();
            result.depth_losses.assign(of_depths.begin(), of_depths.end());
        }
    });
    return result;
}

double relative_error(const std::vector<float>& actual, const std::vector<double>& expected) {
    if (actual.size() != expected.size()) return INFINITY;
    double error = 0;
    double norm = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
        error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return error == 0 ? 0 : std::sqrt(error / norm);  // NaN stays NaN
}

WorstError worst_error(const Gradients& actual, const Tensors& expected) {
    WorstError worst;
    EXPECT_EQ(actual.by_name.size(), expected.size());
    for (const auto& [name, want] : expected) {
        const auto found = actual.by_name.find(name);
        const double error =
            found == actual.by_name.end() ? INFINITY : relative_error(found->second, want);
        if (!(error <= worst.value)) {
            worst.value = error;
            worst.name = name;
        }
        worst.mean += error / static_cast<double>(expected.size());
    }
    return worst;
}

}  // namespace vocabpipe::testing
