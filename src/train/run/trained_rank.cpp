// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/trained_rank.hpp"

#include "vocabpipe/error.hpp"

#include <cstdio>
#include <string>

namespace vocabpipe {

std::unique_ptr<Device> open_device(Communicator& communicator, const TrainOptions& options,
                                    std::vector<RankPlacement>& placements) {
    std::unique_ptr<Device> device;
    communicator.agree([&] {
        device = options.make_device
                     ? options.make_device(placements[static_cast<size_t>(communicator.rank())])
                     : make_host_device();
    });
    describe_devices(communicator, *device, placements);
    return device;
}

namespace {

std::string planned_by_rank(const TrainingPlan& plan) {
    std::string text;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        char one[64];
        std::snprintf(one, sizeof one, "%s rank %d %.1f MiB", rank == 0 ? "" : ",", rank,
                      static_cast<double>(plan.planned_bytes(rank)) / (1 << 20));
        text += one;
    }
    return text;
}

}  // namespace

void load_steps(Executor& executor, const TrainingPlan& plan) {
    for (size_t slot = plan.steps().size(); slot-- > 0;) {
        executor.load(plan.steps()[slot].programs, slot);
    }
}

TrainedRank allocate_rank(Communicator& communicator, const TrainOptions& options,
                          const TrainingPlan& plan, Device& device) {
    const int rank = communicator.rank();
    TrainedRank made;
    try {
        communicator.agree([&] {
            made.model = std::make_unique<ModelRank>(options.model, plan.partition(),
                                                     plan.schedule(), rank, device);
            made.optimizer = std::make_unique<OptimizerStep>(*made.model, plan.schedule(), rank,
                                                             options.optimizer);
        });
        RankModules modules = made.model->modules();
        modules.step = made.optimizer.get();
        // Collective by itself, so not within the agreement.
        made.executor = std::make_unique<Executor>(communicator, device, modules, plan.sizes(),
                                                   ExecutorOptions{.threads = plan.threads()});
        load_steps(*made.executor, plan);
        communicator.agree([&] {
            if (!options.load.empty()) return;
            made.model->initialise(made.executor->context(), options.seed);
        });
    } catch (const AgreedError& error) {
        if (error.exit_code() != ExitCode::out_of_memory) throw;
        throw AgreedError(error.exit_code(),
                          error.what() + std::string("; planned were") + planned_by_rank(plan));
    }
    return made;
}

}  // namespace vocabpipe
