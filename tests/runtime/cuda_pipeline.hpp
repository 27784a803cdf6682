// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "tests/runtime/cuda_devices.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/step_plan.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A small pipeline on CUDA devices, with places to look at it and to break it.
struct CudaPipeline {
    int ranks = 2;
    int microbatches = 4;
    int steps = 2;
    CudaTransport transport = CudaTransport::copies;
    int gpus = 1;  ///< of ranks that copy: they take turns
    VocabMode mode = VocabMode::one_barrier;
    const char* schedule = "1f1b";
    int64_t sequences = 1;  ///< of a microbatch, 6 tokens each
    int pieces = 1;         ///< LowerOptions::pieces
    double timeout_seconds = 30;
    /// From the second step on; 0: as in the first, which loads modules and chooses algorithms.
    double later_timeout_seconds = 0;

    /// Called on the rank's thread; empty: make_cuda_device.
    std::function<std::unique_ptr<Device>(int rank, const CudaDeviceOptions&)> make_device;
    /// Stands between a rank and its world; empty: nothing does.
    std::function<std::unique_ptr<Transport>(int rank, Transport&)> change_control;
    /// What a rank computes with, before its executor gets it.
    std::function<void(int rank, RankModules&)> change_modules;
    std::function<void(int rank, int step)> before_step, after_step;  ///< of the executor alone
    /// The error that ends a rank, on its thread; it is rethrown.
    std::function<void(int rank, const std::exception&)> failed;
    /// After the last step.
    std::function<void(Communicator&, Executor&, const std::vector<Program>&)> at_end;

    void run() const;
};

inline void CudaPipeline::run() const {
    const ModelConfig config = tiny_gpt(4, {.vocab_size = 53});
    const Schedule schedule = make_schedule(
        this->schedule,
        {.ranks = ranks, .microbatches = microbatches, .vocab_mode = mode, .vocab_size = 53});
    const auto costs = TableCosts::uniform(ranks, schedule.stages, 1000, 2000, 500);
    const Batch batch = random_batch(config, microbatches, sequences, 5);
    const auto of_rank = [&](Communicator& world) {
        std::optional<Communicator> changed;
        if (change_control) {
            changed.emplace(change_control(world.rank(), world.transport()), world.wait_options());
        }
        Communicator& communicator = changed ? *changed : world;
        const int rank = communicator.rank();
        const CudaDeviceOptions options{
            .ordinal = transport == CudaTransport::nccl ? gpu_of(rank) : rank % gpus,
            .transport = transport};
        const std::unique_ptr<Device> device =
            make_device ? make_device(rank, options) : make_cuda_device(options);
        ModelPartition partition = even_partition(config, schedule, sequences);
        partition.operators = &device->operators();
        const StepPlan plan = plan_step(config, partition, schedule, costs, {.pieces = pieces});
        ModelRank model(config, partition, schedule, rank, *device);
        RankModules modules = model.modules();
        if (change_modules) change_modules(rank, modules);
        Executor executor(communicator, *device, modules, plan.sizes);
        model.initialise(executor.context(), 7);
        executor.load(plan.lowered);
        const std::vector<Microbatch> microbatches_of_step = batch.microbatches();
        for (int step = 1; step <= steps; ++step) {
            executor.set_step(step);
            if (before_step) before_step(rank, step);
            executor.run_step(microbatches_of_step);
            if (after_step) after_step(rank, step);
            if (later_timeout_seconds > 0) communicator.set_timeout(later_timeout_seconds);
        }
        if (at_end) at_end(communicator, executor, plan.lowered.all());
    };
    World world = World::threads(ranks, {.timeout_seconds = timeout_seconds});
    world.run([&](Communicator& communicator) {
        try {
            of_rank(communicator);
        } catch (const std::exception& error) {
            if (failed) failed(communicator.rank(), error);
            throw;
        }
    });
}

}  // namespace vocabpipe::testing
