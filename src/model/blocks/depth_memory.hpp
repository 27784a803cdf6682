// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/depth_projection.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// What the memory of a stage with depths of multi-token prediction depends on.
struct DepthMemoryOptions {
    int depths = 1;  ///< D
    int64_t hidden_size = 0;
    TokenCounts tokens = {};
    DType dtype = DType::fp32;
    Recompute recompute = Recompute::none;
    StageBytes main = {};   ///< of the stage's own layers
    StageBytes layer = {};  ///< of the stage of a depth, a layer and its norm; all are alike
};

/// The layout of what the passes of a stage with depths leave for each other and use meanwhile, as
/// StageMemory is that of its parts. Needs no parameters, so that plans count with it, too.
class DepthMemory {
public:
    /// What F leaves of one depth.
    struct Saved {
        DepthProjection::Saved projection;
        Tensor x;  ///< (N/t, h): the layer's input
        Activations layer;
    };
    /// What I leaves of one depth for W; B needs it of one depth at a time, without `layer`.
    struct ForWeight {
        Tensor projection;  ///< (N/t, 2 h): DepthProjection::gradient_view()
        Tensor dx;          ///< (N/t, h): gradient of the layer's input
        Bytes layer;
    };
    /// What B and I use meanwhile.
    struct Gradients {
        Tensor hidden;    ///< (N/t, h): gradient of h^k
        Tensor embedded;  ///< (N/t, h): gradient of the embedded tokens i + k, in row i
        /// (N, h): this rank's part of the gradient of all embedded tokens; empty without a team.
        Tensor all_embedded;
    };

    /// `projection`: that of any depth; must outlive it.
    DepthMemory(const DepthMemoryOptions& options, const DepthProjection& projection)
        : options_(options), projection_(&projection) {}

    [[nodiscard]] StageBytes bytes() const;

    /// [depth] The memory of the stage's own layers goes to `main`.
    std::vector<Saved> saved_views(Activations all, Activations& main) const;
    /// [depth] Likewise.
    std::vector<ForWeight> weight_views(Views& views, Bytes& main) const;
    ForWeight backward_view(Views& views) const;
    Gradients gradient_views(Views& views) const;
    /// Memory for the exchanges of embedded tokens; none without a team.
    Scratch team_scratch(Views& views) const;

private:
    [[nodiscard]] TokenViews tokens(Views& views) const {
        return {views, options_.tokens, options_.dtype};
    }
    [[nodiscard]] bool has_team() const { return options_.tokens.own < options_.tokens.all; }
    std::vector<Saved> saved_views(Views& saved, Views& recomputed, Activations& main) const;

    DepthMemoryOptions options_;
    const DepthProjection* projection_;
};

}  // namespace vocabpipe
