// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/run_meter.hpp"

#include "src/runtime/executor_internals.hpp"
#include "vocabpipe/model_rank.hpp"

#include <vector>

namespace vocabpipe {

void RunMeter::add_step(TrainedRank& rank, int64_t duration_ns) {
    const Timeline& mine = rank.executor().timeline(rank.program());
    usage_.add_step(mine, duration_ns);
    passes_.add_step(mine, rank.executor().program(rank.program()), duration_ns);
}

void RunMeter::forget_durations() {
    usage_.forget_durations();
    passes_.forget_durations();
}

MeasuredCosts RunMeter::measure(const TrainingPlan& plan, TrainedRank& rank) {
    MeasuredCosts measured = passes_.gather(rank.communicator(), plan.mesh(),
                                            plan.schedule().stages, plan.threads() == 1);
    const int64_t boundary = plan.boundary_bytes();
    if (links_.median.empty()) {
        links_ =
            measure_links(rank.communicator(), rank.device(),
                          ExecutorInternals::transport(rank.executor()), {.bytes = {8, boundary}});
    }
    fit_links(links_.median, boundary, measured.wall);
    fit_links(links_.fastest, boundary, measured.cpu);
    const std::vector<bool> trained = trained_parts(plan.options().model, plan.partition()).stages;
    for (TableCosts* costs : {&measured.wall, &measured.cpu}) {
        derived_ = derive_missing(*costs, trained);
        costs->communication = plan.costs().communication;
        costs->layers_per_stage = plan.costs().layers_per_stage;
    }
    return measured;
}

}  // namespace vocabpipe
