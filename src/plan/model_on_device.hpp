// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/device_rates.hpp"
#include "src/plan/planned_config.hpp"

namespace vocabpipe {

/// The model of a plan on its device: all that the costs of a candidate's passes are made of.
struct ModelOnDevice {
    explicit ModelOnDevice(const PlanOptions& options)
        : config(planned_config(options)),
          rates(options.device, options.trainer),
          moe_imbalance(options.moe_imbalance) {}

    ModelConfig config;  ///< with the sequences of the plan's steps
    DeviceRates rates;
    double moe_imbalance;  ///< PlanOptions::moe_imbalance
};

}  // namespace vocabpipe
