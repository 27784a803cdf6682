// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/profile_costs.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/profile.hpp"

namespace vocabpipe {

/// The model of a profile, which does not record the family: a GPT with learned positions.
[[nodiscard]] ModelConfig profiled_config(const Profile& profile);

/// What a selective R does in one of its layers.
[[nodiscard]] SelectiveWork selective_work(const Profile& profile);

/// Costs of steps of this model, for candidates and simulations alike. The profile must outlive
/// them. `layers`: of the model; 0: as many as were profiled.
[[nodiscard]] inline ProfileCosts costs_of(const Profile& profile, Recompute recompute,
                                           int layers = 0) {
    return {profile, recompute, selective_work(profile), layers};
}

}  // namespace vocabpipe
