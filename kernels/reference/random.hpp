// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::reference {

/// out (rows, cols) fp32 or fp64: element (i, j) = std times normal number first_element + i cols +
/// j of the parameter (kernels/counter_rng.hpp).
void fill_normal(Tensor out, uint64_t seed, uint64_t parameter_id, int64_t first_element,
                 float std);

}  // namespace vocabpipe::kernels::reference
