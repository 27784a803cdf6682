// SPDX-License-Identifier: Apache-2.0
// Compiled for every CPU of the architecture, or, with VOCABPIPE_NATIVE, for this one without AVX.
#include "kernels/host/panel_loops.hpp"
#include "kernels/host/panel_vectors.hpp"

namespace vocabpipe::kernels::host {

const PanelCode kPlainPanels = kPanelCode<EightLanes, DType::fp32>;

}  // namespace vocabpipe::kernels::host
