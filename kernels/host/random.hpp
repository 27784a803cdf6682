// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// out (rows, cols) fp32: element (i, j) = std times normal number first_element + i cols + j of
/// the parameter (kernels/counter_rng.hpp). For the rows [r, ...) of a matrix with `cols` columns,
/// pass first_element = r cols.
void fill_normal(Context& ctx, Tensor out, uint64_t seed, uint64_t parameter_id,
                 int64_t first_element, float std);

/// The same of uniform numbers between -bound and bound.
void fill_uniform(Context& ctx, Tensor out, uint64_t seed, uint64_t parameter_id,
                  int64_t first_element, float bound);

}  // namespace vocabpipe::kernels::host
