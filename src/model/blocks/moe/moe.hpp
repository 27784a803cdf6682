// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/moe/experts.hpp"
#include "src/model/blocks/moe/router.hpp"

#include <cstdint>

namespace vocabpipe {

struct MoeOptions {
    RouterBlockOptions router;
    ExpertsOptions experts;
};

/// The feed-forward part of a layer with experts, (N, h) to (N, h). Its passes are those of Mlp.
class Moe {
public:
    using Options = MoeOptions;
    struct Saved {
        Router::Saved router;
        Experts::Saved experts;
    };
    struct Gradients {
        Router::Gradients router;
        Experts::Gradients experts;
    };

    Moe(const MoeOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out) const;
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    void backward_input(const StagePass& pass, ConstTensor dy, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] double flops() const { return router_.flops() + experts_.flops(); }
    [[nodiscard]] int64_t recompute_traffic() const { return experts_.recompute_traffic(); }

private:
    int64_t per_token_;
    Router router_;
    Experts experts_;
};

}  // namespace vocabpipe
