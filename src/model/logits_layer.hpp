// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"

#include <span>
#include <vector>

namespace vocabpipe {

/// Generation: this rank's rows of the output projection, without a loss. S leaves the logits of
/// one token, or of a few.
class LogitsLayer final : public OutputLayer {
public:
    /// `weight`: the rank's rows; softcap as in ModelConfig. Memory for the logits of `most`
    /// tokens. The device must outlive it.
    LogitsLayer(Device& device, const Parameter& weight, float softcap, int64_t most = 1);

    /// Selects the tokens of the following microbatches that S scores: `count` from `first` on,
    /// counted from 0. Tokens after them only fill up the microbatch.
    void score_tokens(int64_t first, int64_t count) {
        first_ = first;
        count_ = count;
    }

    /// Logits of the last forward, in host memory: for each token one per vocabulary row of this
    /// rank, from first_row() on.
    [[nodiscard]] std::span<const float> logits();
    /// Vocabulary rows of this rank.
    [[nodiscard]] int64_t rows() const { return weight_.weight.rows; }
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
    int64_t first_ = 0;
    int64_t count_ = 1;
    DeviceMemory memory_;
    std::vector<float> logits_;
};

}  // namespace vocabpipe
