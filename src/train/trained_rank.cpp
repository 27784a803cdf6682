// SPDX-License-Identifier: Apache-2.0
#include "src/train/trained_rank.hpp"

namespace vocabpipe {

TrainedRank allocate_rank(Communicator& communicator, const TrainOptions& options,
                          const TrainingPlan& plan) {
    const int rank = communicator.rank();
    TrainedRank made;
    made.device = make_host_device();
    made.model = std::make_unique<GptRank>(options.model, plan.partition(), plan.schedule(), rank,
                                           *made.device);
    made.optimizer =
        std::make_unique<OptimizerStep>(*made.model, plan.schedule(), rank, options.optimizer);
    RankModules modules = made.model->modules();
    modules.step = made.optimizer.get();
    made.executor = std::make_unique<Executor>(communicator, *made.device, modules, plan.sizes(),
                                               ExecutorOptions{.threads = plan.threads()});
    made.model->initialise(made.executor->context(), options.seed);
    return made;
}

}  // namespace vocabpipe
