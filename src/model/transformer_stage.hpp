// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/decoder_layer.hpp"
#include "src/model/blocks/embedded_tokens.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/key_value_cache.hpp"
#include "src/model/parameter_rows.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/model/router_sums.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <optional>
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
    /// Generation: F continues the sequence whose keys and values are kept here, and leaves nothing
    /// for a backward. Any number of tokens, to which t ranks add some at the boundaries until t
    /// divides them. Null: training.
    const KeyValueCache* cache = nullptr;
    TeamPlace tensor = {};  ///< t ranks share the stage; parameters are this rank's tensor_shard()
    int tensor_pieces = 1;  ///< K, pieces of a member's rows in what these ranks exchange
    TeamPlace expert = {};  ///< e ranks share the experts of its layers
    double moe_row_factor = kMoeRowFactor;  ///< as in ModelPartition
    ExpertPieces expert_pieces = {};        ///< likewise
    /// Where W adds up what routers did; null: nowhere.
    const RouterSums* router_sums = nullptr;
};

/// All parameters of a stage, in the order that TransformerStage expects; not yet which part of
/// them a rank holds.
[[nodiscard]] std::vector<ParameterRows> stage_parameters(const ModelConfig& config,
                                                          const StageLayers& layers);

/// Consecutive decoder layers; in the first stage what is done to embedded tokens before them, in
/// the last one the final norm after them. What layers compute and keep is their blocks' business
/// (src/model/blocks/); the stage hands them memory and each other's outputs. Shared by t ranks it
/// has N/t rows of its boundaries x, y, dy and dx: rank i those from N i/t on. All but a selective
/// R then use the link to the tensor ranks (Context::link()), whose members run the same passes in
/// the same order. So do the passes of a stage whose experts e ranks share, with theirs.
class TransformerStage final : public StageModule {
public:
    /// `parameters`: this stage's part of a ParameterStore; `rotary`: null where no layer has
    /// rotary positions. Neither is needed where only bytes() is asked for. Throws UsageError as
    /// check_tensor_parallel() does.
    TransformerStage(const ModelConfig& config, const StageOptions& options,
                     const kernels::Operators& operators, std::span<Parameter> parameters,
                     const RotaryTables* rotary);

    /// Not by a team, whose products take rows in an order of their own.
    [[nodiscard]] bool streams() const override { return options_.tensor.ranks == 1; }
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
    /// What F leaves.
    struct Saved {
        /// (N/t, h): what each layer reads, then what the final norm reads. Empty where that is the
        /// stage's own input or output.
        std::vector<Tensor> inputs;
        std::vector<DecoderLayer::Saved> layers;
        Statistics final_statistics;
    };
    /// What I leaves for W: all that B consumes on the spot.
    struct ForWeight {
        std::vector<DecoderLayer::Gradients> layers;
        std::vector<Tensor> layer_dy;  ///< per layer (N/t, h): gradient of its output
        Tensor stage_dy;               ///< (N/t, h)
        Tensor stage_dx;               ///< (N/t, h) of what the first layer reads
    };
    /// What B works in.
    struct BackwardMemory {
        Tensor next, other;  ///< (N/t, h): gradients of the inputs of two neighbouring layers
        Scratch scratch;
        std::vector<DecoderLayer::Gradients> layers;  ///< all in the same memory
    };

    [[nodiscard]] TokenViews tokens(Views& views) const;
    /// Of the boundaries; none in a team.
    [[nodiscard]] RowPieces input_pieces(Context& ctx) const {
        return streams() ? RowPieces::of_input(ctx, tokens_.all) : RowPieces();
    }
    [[nodiscard]] RowPieces output_pieces(Context& ctx) const {
        return streams() ? RowPieces::of_output(ctx, tokens_.all) : RowPieces();
    }
    Saved saved_views(Views& saved, Views& recomputed) const;
    /// Without a backward layers use the same memory, one after the other.
    Saved forward_views(Views& memory) const;
    [[nodiscard]] Saved saved_views(Activations activations) const;
    ForWeight weight_views(Views& views) const;
    BackwardMemory backward_views(Views& views) const;
    Scratch scratch_views(Views& views) const;
    /// Generation by a team: all rows of what F makes.
    [[nodiscard]] bool generates_in_team() const {
        return options_.cache != nullptr && options_.tensor.ranks > 1;
    }
    Tensor whole_output_view(Views& views) const;
    /// Of W: what a tensor team gathers, or all that a team of experts needs; nothing alone.
    Scratch weight_scratch_views(Views& views) const;

    /// Null for a team of one. Throws Error where the context has another link, or none.
    [[nodiscard]] static TileLink* link_to(Context& ctx, Axis axis, TeamPlace place);
    [[nodiscard]] StagePass begin_pass(Context& ctx, const Microbatch& microbatch) const;
    /// W of layer `i`.
    [[nodiscard]] StagePass weight_pass(const StagePass& pass, size_t i) const;
    /// What layer `i`, or after the last one the final norm, reads.
    [[nodiscard]] static ConstTensor input(const Saved& saved, size_t i, ConstTensor x);
    /// F: fills `saved`. An empty y is not computed: the backward does not need it.
    void run(const StagePass& pass, ConstTensor x, Tensor y, const Saved& saved) const;
    /// The same where members have N/t rows of x and y, and all N in between; `all_y` (N, h).
    void run_on_all_rows(StagePass pass, ConstTensor x, Tensor y, const Saved& saved,
                         Tensor all_y) const;

    StageOptions options_;
    TokenCounts tokens_;
    TileMap tiles_;  ///< rows of the boundaries of t members
    int64_t hidden_size_;
    DType dtype_;
    std::span<Parameter> parameters_;
    const RotaryTables* rotary_;
    std::vector<DecoderLayer> layers_;
    std::optional<EmbeddedTokens> embedded_tokens_;
    std::optional<Norm> final_norm_;
    ScratchSize scratch_;
};

}  // namespace vocabpipe
