// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/depth_memory.hpp"
#include "src/model/blocks/depth_projection.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/model/transformer_stage.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/recompute.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace vocabpipe {

/// The last stage of a model with D depths of multi-token prediction (DeepSeek-V3, arXiv
/// 2412.19437, section 2.2): a stage of the model's layers, then the depths. Depth k = 1 .. D makes
///     h^k_i = norm_k(layer_k(M_k [norm(embedded token i + k); norm(h^{k-1}_i)])),
/// where h^0 is the model's own output after its final norm, as in Megatron-LM. Its output y
/// ((1 + D) N, h) has the rows of h^0, then those of h^1, and so on; the output layer takes all of
/// them at once, with the labels of the tokens i + k + 1.
///
/// Token i + k of the last k rows of a sequence is not known. These rows take 0 for it; they have
/// no label, and no row before them sees theirs.
///
/// If t tensor ranks share the stage, each has its N/t rows of x, of the embedded tokens, and of
/// what each depth makes: y is ((1 + D) N/t, h). Token i + k may be a row of another rank, so F
/// gathers the embedded tokens of all of them, and B and I add up their gradients, once for all
/// depths. Norms and M are whole on every rank, for its own rows.
///
/// A full recomputation makes all but the two inputs of each projection again, 2 D h columns.
class PredictingStage final : public StageModule {
public:
    /// As of TransformerStage; `options.layers.depths` is D. `parameters` are those of
    /// stage_parameters().
    PredictingStage(const ModelConfig& config, const StageOptions& options,
                    const kernels::Operators& operators, std::span<Parameter> parameters,
                    const RotaryTables* rotary);

    [[nodiscard]] StageBytes bytes() const override { return memory_->bytes(); }
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void begin_step(int microbatches) override;
    /// Without embedded tokens (evaluation) y has the N rows of h^0.
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
    struct Depth {
        DepthProjection projection;
        std::unique_ptr<TransformerStage> layer;  ///< and its norm
    };
    using Saved = DepthMemory::Saved;
    using ForWeight = DepthMemory::ForWeight;
    using Gradients = DepthMemory::Gradients;

    /// The pass of the exchanges of embedded tokens, with their scratch in the workspace.
    [[nodiscard]] StagePass team_pass(Context& ctx, const Microbatch& microbatch,
                                      Bytes workspace) const;
    /// Calls work(first, known, end) with the rank's rows of each sequence, counted among all N: of
    /// those from `known` on the sequence does not have the token k later.
    template <typename Work>
    void each_sequence(const Microbatch& microbatch, int64_t k, const Work& work) const;
    /// This rank's rows of `embedded` (N, h) by k tokens later; 0 where a sequence ends before.
    void take_later(Context& ctx, const Microbatch& microbatch, ConstTensor embedded, int64_t k,
                    Tensor out) const;
    /// The reverse: adds the gradient of the rows of take_later() to that of `embedded` (N, h).
    void add_later(Context& ctx, const Microbatch& microbatch, ConstTensor gradient, int64_t k,
                   Tensor embedded) const;
    /// F: the embedded tokens of all depths.
    void take_embedded(Context& ctx, const Microbatch& microbatch, ConstTensor embedded,
                       const std::vector<Saved>& saved, Bytes workspace) const;
    /// Backward of all depths, the last one first; weights.with_input: B, else I. Leaves the
    /// gradient of h^0 in `gradients.hidden`.
    void backward_depths(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                         const std::vector<Saved>& saved, const std::vector<ForWeight>& left,
                         const Gradients& gradients, Tensor embedded_gradient, Bytes workspace,
                         const WeightGradients& weights);

    TransformerStage main_;
    std::vector<Depth> depths_;
    std::span<Parameter> parameters_;
    Recompute recompute_;
    TokenCounts tokens_;
    int64_t first_row_;  ///< of this rank, among all
    std::optional<DepthMemory> memory_;
};

}  // namespace vocabpipe
