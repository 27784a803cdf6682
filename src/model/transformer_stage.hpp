// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/embedded_tokens.hpp"
#include "src/model/blocks/model_layer.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/blocks/stage_memory.hpp"
#include "src/model/key_value_cache.hpp"
#include "src/model/parameter_rows.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/model/router_sums.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Which layers of the model a stage holds.
struct StageLayers {
    int first = 0;
    int count = 0;
    /// First stage of a model that scales embedded tokens or adds learned positions.
    bool embedding = false;
    bool final_norm = false;  ///< last stage: ends with the final norm
    int depths = 0;           ///< last stage: of multi-token prediction (PredictingStage)
    /// The layer of a depth, which ends with the depth's norm.
    bool depth_norm = false;
};

/// Properties of a stage that its model does not determine.
struct StageOptions {
    StageLayers layers;
    int64_t sequences = 1;                      ///< per microbatch
    std::vector<int64_t> shorter_lengths = {};  ///< as in ModelPartition
    int threads = 1;  ///< of the host's operators; workspaces depend on it
    Recompute recompute = Recompute::none;
    /// Generation: F continues the sequence whose keys and values are kept here, and leaves nothing
    /// for a backward. The number of tokens is arbitrary; t ranks pad boundaries to a multiple of
    /// t. Null: training.
    const KeyValueCache* cache = nullptr;
    TeamPlace context = {};  ///< C ranks share the sequences; this one has its ContextCut of them
    ContextExchange context_exchange = {};
    TeamPlace tensor = {};  ///< t ranks share the stage; parameters are this rank's tensor_shard()
    int tensor_pieces = 1;  ///< K, pieces of a member's rows in exchanges
    TeamPlace expert = {};  ///< e ranks share the experts of its layers
    double moe_row_factor = kMoeRowFactor;  ///< as in ModelPartition
    ExpertPieces expert_pieces = {};        ///< likewise
    /// Where W adds up statistics of routers; null: nowhere.
    const RouterSums* router_sums = nullptr;
    bool streams = true;  ///< false: part of another stage, which does not work by pieces
};

/// All parameters of a stage, in the order that TransformerStage expects, before they are cut among
/// ranks.
[[nodiscard]] std::vector<ParameterRows> stage_parameters(const ModelConfig& config,
                                                          const StageLayers& layers);

/// Consecutive decoder layers; in the first stage preceded by the preparation of embedded tokens,
/// in the last one followed by the final norm. The layers' blocks (src/model/blocks/) decide what
/// is computed and kept; the stage hands them memory and each other's outputs. If t ranks share the
/// stage, it has N/t rows of its boundaries x, y, dy and dx: rank i those from N i/t on. All passes
/// but a selective R then use the link to the tensor ranks (Context::link()), and all these ranks
/// run the same passes in the same order. The same holds for e ranks that share experts, and for C
/// ranks that share sequences, and their links.
class TransformerStage final : public StageModule {
public:
    /// `parameters`: this stage's part of a ParameterStore; `rotary`: null where no layer has
    /// rotary positions. Neither is needed where only bytes() is asked for. Throws UsageError as
    /// check_tensor_parallel() does.
    TransformerStage(const ModelConfig& config, const StageOptions& options,
                     const kernels::Operators& operators, std::span<Parameter> parameters,
                     const RotaryTables* rotary);
    TransformerStage(const TransformerStage&) = delete;

    /// false in a team, whose products take rows in another order.
    [[nodiscard]] bool streams() const override {
        return options_.streams && options_.tensor.ranks == 1;
    }
    /// Bytes of the longest sequences.
    [[nodiscard]] StageBytes bytes() const override { return bytes_for(0); }
    /// k above 0: of StageOptions::shorter_lengths[k - 1].
    [[nodiscard]] StageBytes bytes_for(size_t length) const {
        return lengths_[length].memory.bytes();
    }
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void begin_step(int /*microbatches*/) override { has_router_sums_ = false; }
    /// The tensor ranks that share the stage, as its passes over the microbatch meet them; `ctx`
    /// must live as long as they do.
    [[nodiscard]] TensorTeam team(Context& ctx, const Microbatch& microbatch) const;
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
    using Saved = StageMemory::Saved;
    using ForWeight = StageMemory::ForWeight;

    /// What follows from the length of a microbatch's sequences.
    struct OfLength {
        ContextCut cut;  ///< of every sequence
        TokenCounts tokens;
        TileMap tiles;       ///< rows of the boundaries of t members
        StageMemory memory;  ///< of the stage's blocks
    };

    /// Adds the next entry of lengths_.
    void add_length(const ModelConfig& config, int64_t seq_length,
                    const kernels::Operators& operators);
    [[nodiscard]] const OfLength& of(const Microbatch& microbatch) const;

    /// Pieces of boundaries of `rows` rows; none in a team.
    [[nodiscard]] RowPieces input_pieces(Context& ctx, int64_t rows) const {
        return streams() ? RowPieces::of_input(ctx, rows) : RowPieces();
    }
    [[nodiscard]] RowPieces output_pieces(Context& ctx, int64_t rows) const {
        return streams() ? RowPieces::of_output(ctx, rows) : RowPieces();
    }
    /// Whether this is generation by a team.
    [[nodiscard]] bool generates_in_team() const {
        return options_.cache != nullptr && options_.tensor.ranks > 1;
    }

    /// Null for a team of one. Throws Error where the context has another link, or none.
    [[nodiscard]] static TileLink* link_to(Context& ctx, Axis axis, TeamPlace place);
    [[nodiscard]] StagePass begin_pass(Context& ctx, const Microbatch& microbatch,
                                       const OfLength& length) const;
    /// The pass that W of layer `i` sees.
    [[nodiscard]] StagePass weight_pass(const StagePass& pass, size_t i) const;
    /// Whether a W that accumulates or not adds to the step's router statistics; call once in each.
    [[nodiscard]] bool adds_router_sums(bool accumulate) {
        return std::exchange(has_router_sums_, true) || accumulate;
    }
    /// Input of layer `i`; for i = number of layers, of the final norm.
    [[nodiscard]] static ConstTensor input(const Saved& saved, size_t i, ConstTensor x);
    /// F: fills `saved`. An empty y is not computed: the backward does not need it.
    void run(const StagePass& pass, ConstTensor x, Tensor y, const Saved& saved) const;
    /// As run(), where members have N/t rows of x and y, and all N in between; `all_y` (N, h).
    void run_on_all_rows(StagePass pass, ConstTensor x, Tensor y, const Saved& saved,
                         Tensor all_y) const;

    StageOptions options_;
    int64_t hidden_size_;
    std::span<Parameter> parameters_;
    const RotaryTables* rotary_;
    std::vector<ModelLayer> layers_;
    std::optional<EmbeddedTokens> embedded_tokens_;
    std::optional<Norm> final_norm_;
    std::vector<OfLength> lengths_;  ///< the longest, then those of StageOptions
    bool has_router_sums_ = false;   ///< of the running step
};

}  // namespace vocabpipe
