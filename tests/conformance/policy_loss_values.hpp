// SPDX-License-Identifier: Apache-2.0
// Objectives of PolicyLoss in PyTorch: inputs, values and gradients.
#pragma once

#include "vocabpipe/policy_loss_options.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::kernels::test {

/// An output layer (x (N, h), w (V, h)), labels and columns; fp32 holds all of them.
struct PolicyLossInputs {
    std::vector<double> x, w, g, advantage, old, reference;
    std::vector<int32_t> labels;

    [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(labels.size()); }
    [[nodiscard]] int64_t hidden() const { return static_cast<int64_t>(x.size()) / tokens(); }
    [[nodiscard]] int64_t vocab() const { return static_cast<int64_t>(w.size()) / hidden(); }
};

/// Values of one objective: the loss of every token, and the gradients of sum_n g_n loss_n.
struct PolicyLossValues {
    PolicyLossOptions options;
    float temperature = 1;
    float logit_softcap = 0;
    std::vector<double> loss, dx, dw;
};

#include "tests/conformance/policy_loss_values.inc"

}  // namespace vocabpipe::kernels::test
