// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/parameter_store.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/recompute.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Which layers of the model a stage holds.
struct StageLayers {
    int first = 0;
    int count = 0;
    /// First stage of a model that scales embedded tokens or adds their positions.
    bool embedding = false;
    bool final_norm = false;  ///< last stage: ends with the final norm
};

/// What a stage is besides its model.
struct StageOptions {
    StageLayers layers;
    int64_t sequences = 1;  ///< per microbatch
    int threads = 1;        ///< of the host's operators, which decide how large workspaces are
    Recompute recompute = Recompute::none;
};

/// Rows of all parameters of a stage, in the order that TransformerStage expects.
[[nodiscard]] std::vector<ParameterRows> stage_parameters(const ModelConfig& config,
                                                          const StageLayers& layers);

/// Consecutive decoder layers:
///     x_mid = x + attention(norm(x)),  out = x_mid + mlp(norm(x_mid)),
/// what is added being normalised too in models with post norms.
/// Saved per layer, in elements of the run's type per token: 4 h (6 h with post norms), q k v
/// (twice with norms of q and k), the attention's output, the MLP's two or three f, so 16 h for
/// GPT-2's f = 4 h; plus fp32 row statistics; nothing of [s, s]. Recompute says what is made again
/// instead.
class TransformerStage final : public StageModule {
public:
    /// `parameters`: this stage's part of a ParameterStore; `rotary`: rotary_table() in the
    /// device's memory, or empty. Both may be empty where only bytes() is asked for.
    TransformerStage(const ModelConfig& config, const StageOptions& options,
                     const kernels::Operators& operators, std::span<Parameter> parameters,
                     ConstTensor rotary);

    [[nodiscard]] StageBytes bytes() const override;
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                 Activations activations, Bytes workspace) override;
    void recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                   Activations activations, Bytes workspace) override;
    void backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                  Activations activations, Tensor dx, Bytes workspace, bool accumulate) override;
    void backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                        Activations activations, Tensor dx, Bytes for_weight,
                        Bytes workspace) override;
    void backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                         Activations activations, Bytes for_weight, Bytes workspace,
                         bool accumulate) override;

private:
    // --- parameters

    /// A norm's, or a linear layer's; null where there is none.
    struct Weights {
        Parameter* weight = nullptr;
        Parameter* bias = nullptr;
    };
    struct LayerWeights {
        Weights attention_norm, qkv, proj, post_attention_norm, mlp_norm, fc, fc_proj,
            post_mlp_norm;
        Parameter* q_norm = nullptr;
        Parameter* k_norm = nullptr;
    };

    // --- what the passes leave for each other. Tensors that a model lacks are empty.

    /// Input of a norm's backward besides its input: (N, 2) or (N, 1) fp32.
    using Statistics = Tensor;
    /// What F leaves of one layer.
    struct LayerSaved {
        Tensor x;  ///< (N, h) input, unless it is the stage's own input
        Statistics attention_norm_stats;
        Tensor attention_norm;  ///< (N, h)
        Tensor qkv;             ///< (N, qkv columns) what attention reads
        Tensor qkv_before;      ///< (N, qkv columns) before the norms of q and k
        Statistics qk_stats;    ///< (N, query and kv heads)
        Tensor lse;             ///< (N, heads) fp32
        Tensor attention;       ///< (N, query columns)
        Tensor proj;            ///< (N, h) what a post norm reads
        Statistics post_attention_stats;
        Tensor x_mid;  ///< (N, h)
        Statistics mlp_norm_stats;
        Tensor mlp_norm;  ///< (N, h)
        Tensor fc;        ///< (N, mlp columns) before the activation
        Tensor act;       ///< (N, f)
        Tensor fc_proj;   ///< (N, h) what a post norm reads
        Statistics post_mlp_stats;
    };
    struct Layers {
        std::vector<LayerSaved> layers;
        Tensor final_input;  ///< (N, h)
        Statistics final_stats;
    };
    /// Output gradients of a layer's operators: what the weight gradients need besides LayerSaved.
    struct LayerGradients {
        Tensor qkv;             ///< (N, qkv columns)
        Tensor qkv_normed;      ///< (N, qkv columns) after the norms of q and k
        Tensor attention_norm;  ///< (N, h)
        Tensor proj;            ///< (N, h) only before a post norm
        Tensor x_mid;           ///< (N, h)
        Tensor mlp_norm;        ///< (N, h)
        Tensor fc;              ///< (N, mlp columns)
        Tensor fc_proj;         ///< (N, h) only before a post norm
    };
    /// What I leaves for W: all that B consumes on the spot.
    struct ForWeight {
        std::vector<LayerGradients> gradients;  ///< per layer
        std::vector<Tensor> layer_dy;           ///< per layer (N, h): gradient of its output
        Tensor stage_dy;                        ///< (N, h)
        Tensor stage_dx;                        ///< (N, h) of what the first layer reads
    };
    struct Scratch {
        Tensor rows;  ///< (N, the widest of h, f and query columns)
        Bytes attention;
    };

    Layers saved_views(Views& saved_memory, Views& recomputed_memory) const;
    [[nodiscard]] Layers saved_views(Activations activations) const;
    ForWeight weight_views(Views& views) const;
    LayerGradients gradient_views(Views& views) const;
    Scratch scratch_views(Views& views) const;
    Tensor hidden(Views& views) const;
    [[nodiscard]] Tensor narrowed(Tensor rows, int64_t cols) const;
    /// Input of a layer: the previous layer's output, or the stage's.
    [[nodiscard]] ConstTensor layer_input(int layer, ConstTensor x, const Layers& saved) const;
    [[nodiscard]] ConstTensor final_input(ConstTensor x, const Layers& saved) const;
    [[nodiscard]] kernels::AttentionShape attention_of(int layer) const;

    /// What a pass that makes input gradients does with the norms' parameter gradients, which come
    /// from the same reads: a whole backward makes both, I leaves them for W.
    enum class OfNorms : std::uint8_t { left_for_weight, overwritten, added };

    // --- passes. An empty output is not computed: the backward does not need it.

    void run(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
             const Layers& saved, const Scratch& scratch);
    void layer_forward(Context& ctx, const Microbatch& microbatch, int layer, ConstTensor x,
                       const LayerSaved& saved, Tensor out, const Scratch& scratch);
    void layer_recompute(Context& ctx, int layer, ConstTensor x, const LayerSaved& saved);
    void qkv_to_attention(Context& ctx, int layer, const LayerSaved& saved);
    void layer_backward_input(Context& ctx, const Microbatch& microbatch, int layer, ConstTensor dy,
                              ConstTensor x, const LayerSaved& saved,
                              const LayerGradients& gradients, Tensor dx, const Scratch& scratch,
                              OfNorms of_norms);
    /// `norms`: those of the norms as well.
    void layer_backward_weight(Context& ctx, int layer, ConstTensor dy, ConstTensor x,
                               const LayerSaved& saved, const LayerGradients& gradients,
                               bool accumulate, bool norms);

    void embedding_backward_input(Context& ctx, Tensor dx) const;
    void embedding_backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor dx,
                                   bool accumulate) const;

    // --- norms of either kind

    void norm_forward(Context& ctx, ConstTensor x, const Weights& norm, ConstTensor residual,
                      Tensor y, Statistics statistics) const;
    void norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, const Weights& norm,
                       Statistics statistics, ConstTensor residual, Tensor dx,
                       OfNorms of_norms) const;
    void norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, const Weights& norm,
                              Statistics statistics, bool accumulate) const;
    [[nodiscard]] kernels::RmsNormOptions rms_norm() const;

    ModelConfig config_;
    StageOptions options_;
    int64_t tokens_;
    float embedding_scale_;
    int64_t attention_bytes_ = 0;  ///< workspace
    std::span<Parameter> parameters_;
    std::vector<LayerWeights> layers_;  ///< of this stage
    Weights final_norm_;
    Parameter* positions_ = nullptr;
    ConstTensor rotary_;
};

}  // namespace vocabpipe
