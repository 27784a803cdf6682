// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

namespace vocabpipe {

/// Layers of every stage, at least one, in order, so that the costliest stage costs least; of
/// several such ways the one whose earlier stages are longer. costs[layer] > 0. Throws UsageError
/// for fewer layers than stages.
[[nodiscard]] std::vector<int> split_layers(std::span<const double> costs, int stages);

}  // namespace vocabpipe
