// SPDX-License-Identifier: Apache-2.0
#include "src/train/trained_rank.hpp"

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

TrainedRank allocate_rank(Communicator& communicator, const TrainOptions& options,
                          const TrainingPlan& plan, Device& device) {
    const int rank = communicator.rank();
    TrainedRank made;
    made.model =
        std::make_unique<GptRank>(options.model, plan.partition(), plan.schedule(), rank, device);
    made.optimizer =
        std::make_unique<OptimizerStep>(*made.model, plan.schedule(), rank, options.optimizer);
    RankModules modules = made.model->modules();
    modules.step = made.optimizer.get();
    made.executor = std::make_unique<Executor>(communicator, device, modules, plan.sizes(),
                                               ExecutorOptions{.threads = plan.threads()});
    if (options.load.empty()) made.model->initialise(made.executor->context(), options.seed);
    return made;
}

}  // namespace vocabpipe
