// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::kernels::cuda {

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"  // an entry left out would be null

const Operators& operators() {
    static constexpr Operators kTable{
#define VOCABPIPE_OPERATOR(name) .name = name,
#include "kernels/operator_list.inc"
    };
    return kTable;
}

#pragma GCC diagnostic pop

}  // namespace vocabpipe::kernels::cuda
