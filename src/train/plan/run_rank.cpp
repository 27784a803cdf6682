// SPDX-License-Identifier: Apache-2.0
#include "src/train/plan/run_rank.hpp"

#include "src/runtime/device/blocking_exchanges.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "vocabpipe/error.hpp"

#include <cstdio>
#include <string>
#include <utility>

namespace vocabpipe {

std::unique_ptr<Device> open_device(Communicator& communicator, const TrainOptions& options,
                                    std::vector<RankPlacement>& placements) {
    std::unique_ptr<Device> device;
    communicator.agree([&] {
        device = options.make_device
                     ? options.make_device(placements[static_cast<size_t>(communicator.rank())])
                     : make_host_device();
        if (options.blocking_exchanges) {
            device = std::make_unique<BlockingExchanges>(std::move(device));
        }
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
                      static_cast<double>(planned_bytes(plan, rank)) / (1 << 20));
        text += one;
    }
    return text;
}

}  // namespace

std::unique_ptr<TrainedRank> allocate_rank(Communicator& communicator, const TrainOptions& options,
                                           const TrainingPlan& plan, Device& device,
                                           std::function<bool()> abandon) {
    // A step on pairs has two programs for an order of lengths.
    const size_t length_programs =
        TrainedRankOptions().length_programs * (options.loss.compares_pairs() ? 2 : 1);
    try {
        return std::make_unique<TrainedRank>(communicator, device, plan.steps(),
                                             TrainedRankOptions{.optimizer = options.optimizer,
                                                                .seed = options.seed,
                                                                .initialise = options.load.empty(),
                                                                .length_programs = length_programs,
                                                                .abandon = std::move(abandon)});
    } catch (const AgreedError& error) {
        if (error.exit_code() != ExitCode::out_of_memory) throw;
        throw AgreedError(error.exit_code(),
                          error.what() + std::string("; planned memory:") + planned_by_rank(plan));
    }
}

}  // namespace vocabpipe
