// SPDX-License-Identifier: Apache-2.0
// Makes a schedule, simulates it and plans a run with what the component `schedule` installs.
#include <cstdio>

#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"

int main() {
    using namespace vocabpipe;
    const Schedule schedule =
        make_schedule("zb-h1", {.ranks = 4, .microbatches = 8, .vocab_size = 64});
    StepSizes sizes{.tokens = 64, .hidden = 16};
    sizes.stages.resize(4);
    sizes.shards.resize(4);
    const TableCosts costs = TableCosts::uniform(4, 4, 1000, 2000, 500);
    const Simulation simulation = simulate(lower(schedule, sizes, costs), costs);
    std::printf("zb-h1: bubble %.1f %%; %s\n", 100 * simulation.summary.bubble,
                load_device("h100").name.c_str());
    return simulation.summary.bubble > 0 && simulation.summary.bubble < 1 ? 0 : 1;
}
