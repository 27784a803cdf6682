// SPDX-License-Identifier: Apache-2.0
#include "src/step/costs/cost_source.hpp"

#include <numeric>
#include <utility>

namespace vocabpipe {

double mean_layers(const std::vector<int>& layers, int stages) {
    const int all = std::accumulate(layers.begin(), layers.end(), 0);
    return all == 0 ? 4 : static_cast<double>(all) / stages;
}

PricedStep price_step(const CostSource& costs, Schedule placed, VocabMode mode) {
    PricedStep step;
    step.layers = costs.layers_per_stage(placed.rank_of_stage, mode);
    step.price = costs.price(placed, step.layers);
    step.schedule = std::move(placed);
    return step;
}

void order_step(PricedStep& step, const OrderSource& source, ScheduleOptions options) {
    options.costs = step.price.order;
    step.schedule = make_order(source, options);
}

}  // namespace vocabpipe
