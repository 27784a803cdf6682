// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// One shard of the token embedding (paper section 2, "input layer").
class ShardedInputLayer final : public InputLayer {
public:
    /// `parameters`: exactly one, the shard's rows of wte.
    explicit ShardedInputLayer(std::span<Parameter> parameters) : parameters_(parameters) {}

    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void embed(Context& ctx, const Microbatch& microbatch, Tensor out) override;
    void gradient(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                  bool accumulate) override;
    void reduce_tied(Context& ctx) override;

private:
    std::span<Parameter> parameters_;
    /// Only for a tied weight: the tokens whose rows have a gradient in this step, in the
    /// microbatches' own memory.
    std::vector<std::span<const int32_t>> tokens_of_step_;
    /// Whether Reduce has consumed all gradients of the last step, so that none need clearing.
    bool taken_ = false;
};

}  // namespace vocabpipe
