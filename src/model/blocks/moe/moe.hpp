// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/moe/experts.hpp"
#include "src/model/blocks/moe/router.hpp"
#include "src/model/blocks/moe/team_experts.hpp"

#include <cstdint>
#include <functional>
#include <optional>

namespace vocabpipe {

struct MoeOptions {
    RouterBlockOptions router;
    ExpertsOptions experts;
};

/// The feed-forward part of a layer with experts, (N/t, h) to (N/t, h). Its passes are those of
/// Mlp. A team of experts is met in all of them; in W only where one wave is not enough for its
/// rows.
class Moe {
public:
    using Options = MoeOptions;
    struct Saved {
        Router::Saved router;
        Experts::Saved experts;
        TeamRoutes routes;  ///< of a team
    };
    struct Gradients {
        Router::Gradients router;
        Experts::Gradients experts;
    };
    /// Work of another block, which runs while a team's first messages travel, else before all.
    /// Gets the workspace that is free then.
    using Beside = std::function<void(Bytes)>;

    Moe(const MoeOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    /// With what runs beside it.
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use, const ScratchSize& beside = {}) const;

    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out, const Beside& beside = {}) const;
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx, const Beside& beside = {}) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] double flops() const { return router_.flops() + experts_.flops(); }
    [[nodiscard]] int64_t recompute_traffic() const { return experts_.recompute_traffic(); }

private:
    struct Workspace;
    [[nodiscard]] Workspace workspace(Views& views, int64_t tokens, DType dtype) const;

    int64_t per_token_;
    Router router_;
    Experts experts_;
    std::optional<TeamExperts> team_;  ///< in place of experts_'s passes and memory
};

}  // namespace vocabpipe
