// SPDX-License-Identifier: Apache-2.0
// Distillation against a teacher's lists in PyTorch: inputs, values and gradients.
#pragma once

#include "vocabpipe/distillation_options.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::kernels::test {

/// An output layer (x (N, h), w (V, h)), labels, and the teacher's log p and ids (V, N), best
/// first, of which a case reads the first k rows; fp32 holds all of them.
struct DistillationInputs {
    std::vector<double> x, w, g, teacher, ids;
    std::vector<int32_t> labels;

    [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(labels.size()); }
    [[nodiscard]] int64_t hidden() const { return static_cast<int64_t>(x.size()) / tokens(); }
    [[nodiscard]] int64_t vocab() const { return static_cast<int64_t>(w.size()) / hidden(); }
};

/// Values of one loss: that of every token, and the gradients of sum_n g_n loss_n.
struct DistillationValues {
    DistillationOptions options;
    float temperature = 1;
    float logit_softcap = 0;
    std::vector<double> loss, dx, dw;
};

#include "tests/conformance/distillation_values.inc"

}  // namespace vocabpipe::kernels::test
