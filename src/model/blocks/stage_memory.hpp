// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/model_layer.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/recompute.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// What the memory of a stage depends on, besides its blocks.
struct StageMemoryOptions {
    int64_t hidden_size = 0;
    bool embeds = false;     ///< the first layer's input comes from EmbeddedTokens
    bool generates = false;  ///< F leaves nothing for a backward, and a member has all tokens
    Recompute recompute = Recompute::none;
    int expert = 1;  ///< e, ranks that share the experts of its layers
};

/// The layout of what the passes of a stage leave for each other and use meanwhile: views of the
/// bytes that the executor hands them, and the number of these bytes. Needs no parameters, so that
/// plans count with it, too.
class StageMemory {
public:
    /// What F leaves.
    struct Saved {
        /// (N/t, h): the input of each layer, then of the final norm. Empty where that is the
        /// stage's own input or output.
        std::vector<Tensor> inputs;
        std::vector<ModelLayer::Saved> layers;
        Statistics final_statistics;
    };
    /// What I leaves for W; B consumes all of it at once.
    struct ForWeight {
        std::vector<ModelLayer::Gradients> layers;
        std::vector<Tensor> layer_dy;  ///< per layer (N/t, h): gradient of its output
        Tensor stage_dy;               ///< (N/t, h)
        Tensor stage_dx;               ///< (N/t, h) of the first layer's input
    };
    /// Scratch memory of B.
    struct Backward {
        Tensor next, other;  ///< (N/t, h): gradients of the inputs of two neighbouring layers
        Scratch scratch;
        std::vector<ModelLayer::Gradients> layers;  ///< all in the same memory
    };

    StageMemory() = default;
    /// `layers` and `final_norm` (null: none) must outlive it; of `use` only the sizes count.
    StageMemory(const StageMemoryOptions& options, std::vector<const ModelLayer*> layers,
                const Norm* final_norm, const ScratchFor& use);

    [[nodiscard]] StageBytes bytes() const;

    [[nodiscard]] Saved saved_views(Activations activations) const;
    ForWeight weight_views(Views& memory) const;
    Backward backward_views(Views& memory) const;
    Scratch scratch_views(Views& memory) const;
    /// In a team that generates, F needs memory for all rows of its output; else empty.
    Tensor whole_output_view(Views& memory) const;
    /// Scratch of W: that of adapters, and the tensor that a tensor team gathers; or all scratch
    /// for a team of experts.
    Scratch weight_scratch_views(Views& memory) const;

private:
    [[nodiscard]] TokenViews tokens(Views& views) const { return {views, tokens_, dtype_}; }
    void take_adapters(Views& memory, Scratch& scratch) const;
    Saved saved_views(Views& saved, Views& recomputed) const;
    /// Without a backward all layers use the same memory in turn.
    Saved forward_views(Views& memory) const;

    StageMemoryOptions options_;
    std::vector<const ModelLayer*> layers_;
    const Norm* final_norm_ = nullptr;
    int tensor_ = 1;
    TokenCounts tokens_;
    DType dtype_ = DType::fp32;
    ScratchSize scratch_;
};

}  // namespace vocabpipe
