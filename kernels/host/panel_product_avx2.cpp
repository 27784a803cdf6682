// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2 and FMA on every x86 machine.
#ifdef __AVX2__

#include "kernels/host/panel_loops.hpp"
#include "kernels/host/panel_vectors.hpp"

namespace vocabpipe::kernels::host {

const PanelCode kAvx2Panels = kPanelCode<EightLanes, DType::fp32>;

}  // namespace vocabpipe::kernels::host

#endif
