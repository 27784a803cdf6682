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

/// The feed-forward part of a layer with experts, (N/t, h) to (N/t, h). Its passes work as those of
/// Mlp. All of them communicate with a team of experts; W only where the rows need more than one
/// wave.
class Moe {
public:
    using Options = MoeOptions;
    struct Saved {
        Router::Saved router;
        Experts::Saved experts;
        TeamRoutes routes;  ///< only in a team
    };
    struct Gradients {
        Router::Gradients router;
        Experts::Gradients experts;
    };
    /// Work of another block, which runs while a team's first messages travel; without a team it
    /// runs first. Its argument is the workspace that is free then.
    using Beside = std::function<void(Bytes)>;

    Moe(const MoeOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    /// `beside`: scratch of the block that runs as Beside.
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use, const ScratchSize& beside = {}) const;

    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out, const Beside& beside = {}) const;
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx, const Beside& beside = {}) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work() const;

private:
    struct Workspace;
    [[nodiscard]] Workspace workspace(Views& views, int64_t tokens, DType dtype) const;

    int64_t per_token_;
    Router router_;
    Experts experts_;
    std::optional<TeamExperts> team_;  ///< replaces passes and memory of experts_
};

}  // namespace vocabpipe
