// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/depth_projection.hpp"
#include "src/model/key_value_cache.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/model/transformer_stage.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace vocabpipe {

/// Generation: a stage that only runs F.
class ForwardStage : public StageModule {
public:
    void backward_input(Context& /*ctx*/, const Microbatch& /*microbatch*/, ConstTensor /*dy*/,
                        ConstTensor /*x*/, Activations /*activations*/, Tensor /*dx*/,
                        Bytes /*for_weight*/, Bytes /*workspace*/) final {}
    void backward_weight(Context& /*ctx*/, const Microbatch& /*microbatch*/, ConstTensor /*x*/,
                         Activations /*activations*/, Bytes /*for_weight*/, Bytes /*workspace*/,
                         bool /*accumulate*/) final {}
};

/// Generation: another stage whose output is also kept, for a depth that reads it later.
class KeptStage final : public ForwardStage {
public:
    /// `kept` (positions, h): row i is for token i of the sequence. `cache`: that of the stage,
    /// which says where its microbatches begin. It must outlive the stage.
    KeptStage(std::unique_ptr<StageModule> stage, const KeyValueCache& cache, Tensor kept)
        : stage_(std::move(stage)), cache_(cache), kept_(kept) {}

    [[nodiscard]] StageBytes bytes() const override { return stage_->bytes(); }
    [[nodiscard]] std::span<Parameter> parameters() override { return stage_->parameters(); }
    void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                 Activations activations, Bytes workspace) override {
        stage_->forward(ctx, microbatch, x, y, activations, workspace);
        ctx.operators().convert(ctx, y, kept_.row_range(cache_.tokens(), y.rows));
    }

private:
    std::unique_ptr<StageModule> stage_;
    const KeyValueCache& cache_;
    Tensor kept_;
};

/// What a DraftStage computes with besides its parameters. All must outlive it.
struct DraftStageOptions {
    int depth = 0;       ///< k - 1
    int64_t tokens = 1;  ///< N, of a microbatch
    int threads = 1;     ///< of the host's operators
    /// Keys and values of the depth's layer: those of rows [0, r).
    const KeyValueCache* cache = nullptr;
    Tensor hidden = {};  ///< (positions, h): h^{k-1}
    const RotaryTables* rotary = nullptr;
};

/// Generation: depth k = 1 .. D of multi-token prediction (PredictingStage), as a stage of its own
/// that continues the sequence. With r rows in the cache, F makes
///     h^k_i = norm_k(layer_k(M_k [norm(embedded token i + k); norm(h^{k-1}_i)])),  i = r .. r+N-1,
/// where the layer sees rows 0 .. i, at the rotary position i as in training. Its input x (N, h)
/// has embedded token r + k in row 0: the microbatch's tokens are those from r + k on. Its output y
/// (N, h) has h^k_r in row 0, from which the output layer predicts token r + k + 1.
class DraftStage final : public ForwardStage {
public:
    /// `parameters`: of the depth, in the order of stage_parameters(); none where only bytes() is
    /// asked for.
    DraftStage(const ModelConfig& config, const DraftStageOptions& options,
               const kernels::Operators& operators, std::span<Parameter> parameters);

    [[nodiscard]] StageBytes bytes() const override;
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                 Activations activations, Bytes workspace) override;

private:
    struct Memory {
        DepthProjection::Saved projection;
        Tensor x;  ///< (N, h): the layer's input
        Activations layer;
    };
    [[nodiscard]] Memory memory(Views& views) const;

    DraftStageOptions options_;
    int64_t hidden_size_;
    DType dtype_;
    std::span<Parameter> parameters_;
    DepthProjection projection_;
    std::unique_ptr<TransformerStage> layer_;
};

}  // namespace vocabpipe
