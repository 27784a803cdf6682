// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention_shape.hpp"
#include "kernels/operators.hpp"
#include "src/model/model_config.hpp"
#include "src/model/parameter_store.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Which layers of the model a stage holds.
struct StageLayers {
    int first = 0;
    int count = 0;
    bool positions = false;   ///< first stage: adds the position embedding
    bool final_norm = false;  ///< last stage: ends with ln_f
};

/// Rows of all parameters of a stage, in the order that TransformerStage expects.
[[nodiscard]] std::vector<ParameterRows> stage_parameters(const ModelConfig& config,
                                                          const StageLayers& layers);

/// Consecutive pre-LayerNorm decoder layers:
///     x_mid = x + proj(attention(ln_1(x))),  out = x_mid + mlp(ln_2(x_mid)).
/// Saved per layer, in elements of the run's type per token: 8 h + 2 f, so 16 h for GPT-2's f = 4 h
/// (bf16: 32 bytes per hidden unit), plus fp32 row statistics; no tensor of shape [s, s].
class TransformerStage final : public StageModule {
public:
    /// `operators` and `threads` (of the host's operators) say how large workspaces are;
    /// `parameters`: this stage's part of a ParameterStore.
    TransformerStage(const ModelConfig& config, const StageLayers& layers,
                     const kernels::Operators& operators, int64_t sequences, int threads,
                     std::span<Parameter> parameters);

    [[nodiscard]] StageBytes bytes() const override;
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y, Saved saved,
                 Bytes workspace) override;
    void recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x, Saved saved,
                   Bytes workspace) override;
    void backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                  Saved saved, Tensor dx, Bytes workspace, bool overwrite) override;
    void backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                        Saved saved, Tensor dx, Bytes for_weight, Bytes workspace) override;
    void backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x, Saved saved,
                         Bytes for_weight, Bytes workspace, bool overwrite) override;

private:
    /// What F keeps of one layer.
    struct LayerSaved {
        Tensor x;          ///< (N, h) input, unless it is the stage's own input
        Tensor ln1_stats;  ///< (N, 2) fp32
        Tensor ln1;        ///< (N, h)
        Tensor qkv;        ///< (N, 3h)
        Tensor lse;        ///< (N, heads) fp32
        Tensor attention;  ///< (N, h)
        Tensor x_mid;      ///< (N, h)
        Tensor ln2_stats;  ///< (N, 2) fp32
        Tensor ln2;        ///< (N, h)
        Tensor fc;         ///< (N, f) before GELU
        Tensor gelu;       ///< (N, f)
    };
    struct Layers {
        std::vector<LayerSaved> layers;
        Tensor final_input;  ///< (N, h)
        Tensor final_stats;  ///< (N, 2) fp32
    };
    /// Output gradients of a layer's operators: what the weight gradients need besides LayerSaved.
    struct LayerGradients {
        Tensor qkv;    ///< (N, 3h)
        Tensor ln1;    ///< (N, h)
        Tensor x_mid;  ///< (N, h) also the output gradient of the attention projection
        Tensor ln2;    ///< (N, h)
        Tensor fc;     ///< (N, f)
    };

    /// What I keeps for W: all that B consumes on the spot.
    struct KeptForWeight {
        std::vector<LayerGradients> gradients;  ///< per layer
        std::vector<Tensor> layer_dy;           ///< per layer (N, h): gradient of its output
        Tensor stage_dy;                        ///< (N, h)
        Tensor stage_dx;                        ///< (N, h)
    };

    Layers saved_views(Views& views) const;
    KeptForWeight kept_views(Views& views) const;
    LayerGradients gradient_views(Views& views) const;
    Tensor hidden(Views& views) const;
    [[nodiscard]] std::span<Parameter> layer_parameters(int layer);

    void layer_forward(Context& ctx, int layer, ConstTensor x, const LayerSaved& saved, Tensor out,
                       Tensor scratch, Bytes attention_workspace);
    void layer_backward_input(Context& ctx, int layer, ConstTensor dy, ConstTensor x,
                              const LayerSaved& saved, const LayerGradients& gradients, Tensor dx,
                              Tensor scratch, Bytes attention_workspace);
    void layer_backward_weight(Context& ctx, int layer, ConstTensor dy, ConstTensor x,
                               const LayerSaved& saved, const LayerGradients& gradients,
                               bool overwrite);
    /// Input of a layer: the previous layer's output, or the stage's.
    [[nodiscard]] ConstTensor layer_input(int layer, ConstTensor x, const Layers& saved) const;

    ModelConfig config_;
    StageLayers layers_;
    int64_t tokens_;
    kernels::AttentionShape attention_;
    int64_t attention_bytes_;  ///< workspace
    std::span<Parameter> parameters_;
};

}  // namespace vocabpipe
