// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"

#include <span>
#include <vector>

namespace vocabpipe {

/// Generation: the rows of the output projection that live on this rank, without a loss. S leaves
/// the logits of one token.
class LogitsLayer final : public OutputLayer {
public:
    /// `weight`: the rank's rows; softcap as in ModelConfig. The device must outlive it.
    LogitsLayer(Device& device, const Parameter& weight, float softcap);

    /// Microbatches that follow: the token that S scores, counted from 0. Those behind it only fill
    /// the microbatch up.
    void score_token(int64_t token) { token_ = token; }

    /// Of the last forward, in the host's memory: one per row of this rank, the first of which is
    /// first_row().
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
