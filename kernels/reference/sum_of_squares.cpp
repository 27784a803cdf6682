// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/bf16.hpp"

namespace vocabpipe::kernels::reference {

void sum_of_squares(Context& /*ctx*/, ConstTensor values, double* sum) {
    double total = 0;
    with_type(values.dtype, [&]<typename T>() {
        for (int64_t row = 0; row < values.rows; ++row) {
            for (int64_t col = 0; col < values.cols; ++col) {
                const double value = to_float(values.as<T>()[row * values.stride + col]);
                total += value * value;
            }
        }
    });
    *sum += total;
}

}  // namespace vocabpipe::kernels::reference
