// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/policy_loss_options.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr std::array<std::string_view, 3> kEstimators{"k1", "k2", "k3"};

}  // namespace

std::string_view to_string(KlEstimator estimator) {
    return kEstimators[static_cast<size_t>(estimator)];
}

KlEstimator kl_estimator_from(std::string_view name) {
    const auto* const found = std::ranges::find(kEstimators, name);
    if (found == kEstimators.end()) {
        throw UsageError("estimator of the divergence " + std::string(name) + ": use k1, k2 or k3");
    }
    return static_cast<KlEstimator>(found - kEstimators.begin());
}

}  // namespace vocabpipe
