// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/activation.hpp"

namespace vocabpipe::kernels::reference {

struct ValueAndSlope {
    double value, slope;
};
[[nodiscard]] ValueAndSlope activate(Activation activation, double x);

}  // namespace vocabpipe::kernels::reference
