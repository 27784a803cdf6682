// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"

namespace vocabpipe {

/// One shard of the token embedding (paper section 2, "input layer").
class ShardedInputLayer final : public InputLayer {
public:
    /// `parameters`: one, the shard's rows of wte.
    explicit ShardedInputLayer(std::span<Parameter> parameters) : parameters_(parameters) {}

    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void embed(Context& ctx, const Microbatch& microbatch, Tensor out) override;
    void gradient(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                  bool accumulate) override;

private:
    std::span<Parameter> parameters_;
};

}  // namespace vocabpipe
