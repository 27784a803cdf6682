// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"

#include <span>
#include <vector>

namespace vocabpipe {

/// Generation: this rank's rows of the output projection, without a loss. S leaves the logits of
/// one token.
class LogitsLayer final : public OutputLayer {
public:
    /// `weight`: the rank's rows; softcap as in ModelConfig. The device must outlive it.
    LogitsLayer(Device& device, const Parameter& weight, float softcap);

    /// Selects the token of the following microbatches that S scores, counted from 0. Tokens after
    /// it only fill up the microbatch.
    void score_token(int64_t token) { token_ = token; }

    /// Logits of the last forward, in host memory: one per vocabulary row of this rank, from
    /// first_row() on.
    [[nodiscard]] std::span<const float> logits();
    [[nodiscard]] int64_t first_row() const { return weight_.first_row; }

    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void score(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor exp_logits,
               Tensor statistics, Bytes workspace) override;
    void input_product(Context&, ConstTensor, Tensor) override {}
    void combine_softmax(Context&, const Microbatch&, ConstTensor, int, Tensor) override {}
    void finish_input_gradient(Context&, const Microbatch&, ConstTensor, Tensor) override {}
    void weight_gradient(Context&, const Microbatch&, ConstTensor, ConstTensor, ConstTensor, Bytes,
                         bool) override {}

private:
    Device& device_;
    const Parameter& weight_;
    float softcap_;
    int64_t token_ = 0;
    DeviceMemory memory_;
    std::vector<float> logits_;
};

}  // namespace vocabpipe
