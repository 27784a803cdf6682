// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/layer_forward.hpp"

namespace vocabpipe {

/// Runs the forward of a layer, whose record becomes complete. Throws UsageError for one that is no
/// layer.
void record_layer(LayerGraph& graph, const LayerForward& forward);

}  // namespace vocabpipe
