// SPDX-License-Identifier: Apache-2.0
// The way of every step, whoever asks for it: place stages and vocabulary rows, price the passes,
// order them by these prices. Training, simulation and planning differ only in the source of the
// costs: a model's FLOPs, a profile, or figures. Lowering (lower_step()) follows.
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/memory_over_time.hpp"
#include "vocabpipe/recompute.hpp"

#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Costs and sizes of the passes of a step whose stages and vocabulary rows are placed.
struct StepPrice {
    TableCosts costs;
    StepSizes sizes;
    PassCosts order;                          ///< costs that decide the order of the passes
    std::vector<PersistentBytes> persistent;  ///< [rank of the world]; empty: unknown
    std::string remark;  ///< for people, such as "costs scaled from a profile of 4 ranks"
};

/// TableCosts::layers_per_stage of a step with these layers. Without any, assumes four per stage.
[[nodiscard]] double mean_layers(const std::vector<int>& layers, int stages);

/// Where the costs of a step come from.
class CostSource {
public:
    CostSource() = default;
    CostSource(const CostSource&) = delete;
    CostSource& operator=(const CostSource&) = delete;
    virtual ~CostSource() = default;

    /// Transformer layers of every stage, for stages on these ranks; empty: all stages are alike.
    [[nodiscard]] virtual std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                            VocabMode mode) const = 0;
    /// The price of `placed`, which has stages and shards but needs no passes.
    [[nodiscard]] virtual StepPrice price(const Schedule& placed,
                                          const std::vector<int>& layers) const = 0;
};

/// A step that is placed and priced; order_step() gives it its passes.
struct PricedStep {
    Schedule schedule;        ///< stages, shards, barriers
    std::vector<int> layers;  ///< per stage, as CostSource::layers_per_stage()
    StepPrice price;
};

/// Prices a placed step (placement_of()).
[[nodiscard]] PricedStep price_step(const CostSource& costs, Schedule placed, VocabMode mode);

/// Sets the step's passes, in the order that StepPrice::order decides. Throws as make_order().
void order_step(PricedStep& step, const OrderSource& source, ScheduleOptions options);

}  // namespace vocabpipe
