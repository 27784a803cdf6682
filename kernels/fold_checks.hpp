// SPDX-License-Identifier: Apache-2.0
// Checks of fold_partials()'s arguments that all devices share.
#pragma once

#include <cstdint>

#include "kernels/check.hpp"

namespace vocabpipe::kernels {

inline void check_fold_partials(ConstTensor partials, int64_t count, ConstTensor bias,
                                ConstTensor residual, Tensor out) {
    require(count >= 1, "partials of at least one member");
    require(has_shape(partials, count * out.rows, out.cols),
            "partials of shape (count rows, cols)");
    require(partials.dtype == out.dtype, "partials of out's type");
    require(!bias || (has_shape(bias, 1, out.cols) && bias.dtype == out.dtype),
            "bias of shape (1, cols) and out's type");
    require(!residual || (same_shape(residual, out) && residual.dtype == out.dtype),
            "residual of out's shape and type");
}

}  // namespace vocabpipe::kernels
