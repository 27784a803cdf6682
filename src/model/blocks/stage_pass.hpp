// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/row_pieces.hpp"
#include "src/model/rotary_tables.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace vocabpipe {

class ResultMemory;

/// Memory that blocks use in turn, each for an operator or two.
struct Scratch {
    Tensor rows;      ///< (N, ScratchSize::columns), and own rows with ScratchSize::own_columns
    Bytes workspace;  ///< ScratchSize::workspace
    // Memory of adapters: (N, ScratchSize::adapter_low) and (N, ScratchSize::adapter_wide).
    Tensor adapter_low = {};
    Tensor adapter_wide = {};
    // Only in a team, see tensor_team.hpp.
    Tensor gathered = {};  ///< (N, h) of all members; partial products on their way to them
    Tensor received = {};  ///< partial products by member: (N, h) of the own rows; or (t N, h)

    /// (N, cols), dense.
    [[nodiscard]] Tensor columns(int64_t cols) const {
        return {rows.data, rows.rows, cols, rows.dtype};
    }
    /// (count, cols), dense, in the same memory; no more elements than all own rows have.
    [[nodiscard]] Tensor own_rows(int64_t count, int64_t cols) const {
        return {rows.data, count, cols, rows.dtype};
    }
};

/// The scratch that a block needs.
struct ScratchSize {
    int64_t columns = 0;      ///< of all tokens
    int64_t own_columns = 0;  ///< of own rows only
    // Columns of all tokens for adapters, beside what the products that they add to use.
    int64_t adapter_low = 0;   ///< of x A^T
    int64_t adapter_wide = 0;  ///< of what is added to x or y
    int64_t workspace = 0;     ///< bytes

    /// The larger of both, member by member.
    [[nodiscard]] ScratchSize or_larger(const ScratchSize& other) const {
        return {.columns = std::max(columns, other.columns),
                .own_columns = std::max(own_columns, other.own_columns),
                .adapter_low = std::max(adapter_low, other.adapter_low),
                .adapter_wide = std::max(adapter_wide, other.adapter_wide),
                .workspace = std::max(workspace, other.workspace)};
    }
};

/// What the size of a microbatch's scratch depends on.
struct ScratchFor {
    const kernels::Operators& operators;
    int64_t sequences = 1;
    int64_t seq_length = 1;  ///< of a context rank its own
    DType dtype = DType::fp32;
    int threads = 1;  ///< of the host's operators
    int context = 1;  ///< C, ranks that share the sequences
    int tensor = 1;   ///< t, ranks that share the tokens

    /// N/t.
    [[nodiscard]] int64_t own_tokens() const { return sequences * seq_length / tensor; }
};

/// How a backward makes the gradients of weights.
struct WeightGradients {
    bool accumulate = false;  ///< adds to the present values
    /// A whole backward: norms and a team's RowLinear compute their weight gradients in
    /// backward_input(), which reads the same tensors; their backward_weight() does nothing.
    bool with_input = false;
};

/// Generation: the keys and values kept of earlier tokens. The microbatch is one sequence.
struct CachedTokens {
    /// (positions, key_value_columns) of this layer: k | v; empty: none are kept
    Tensor keys_values;
    int64_t count = 0;  ///< cached tokens; the position of the microbatch's first token

    [[nodiscard]] explicit operator bool() const { return static_cast<bool>(keys_values); }
};

/// The ranks that share the stage, as a pass meets them.
struct TensorTeam {
    TileLink* link = nullptr;  ///< null: the rank does not share the stage
    /// The N tokens by member and piece. Null: generation, whose few tokens every member has.
    const TileMap* tiles = nullptr;

    [[nodiscard]] explicit operator bool() const { return link != nullptr; }
    /// Whether a member has only N/t rows of the residual stream.
    [[nodiscard]] bool cuts_rows() const { return link != nullptr && tiles != nullptr; }
};

/// The ranks that share the sequences of a microbatch, as a pass meets them.
struct ContextTeam {
    TileLink* link = nullptr;         ///< null: the rank has whole sequences
    const ContextCut* cut = nullptr;  ///< the tokens of this rank

    [[nodiscard]] explicit operator bool() const { return link != nullptr; }
};

/// One pass of a stage over one microbatch, as its blocks see it.
struct StagePass {
    Context& ctx;
    const Microbatch& microbatch;
    const RotaryTables* rotary = nullptr;  ///< null where no layer has rotary positions
    Recompute recompute = Recompute::none;
    Scratch scratch = {};
    WeightGradients weight_gradients = {};
    CachedTokens cached = {};
    TensorTeam team = {};
    ContextTeam context = {};
    TileLink* experts = nullptr;  ///< to the ranks that share the experts; null: none
    /// W: where the router of this layer adds up its statistics (Operators::sum_routing); empty:
    /// nowhere.
    std::span<double> router_sums = {};
    /// Whether they have those of earlier microbatches of the step. Gradients may begin anew within
    /// a step (LowerOptions::zero), router statistics never do.
    bool adds_router_sums = false;
    double* loss = nullptr;                 ///< F: where a model's own losses are added up
    const ResultMemory* results = nullptr;  ///< F: where its results are kept
    RowPieces input = {};                   ///< of the block's input, or of the gradient it gets
    RowPieces output = {};                  ///< of the block's output

    /// The passes for the first and the second of two blocks that run one after the other: only the
    /// first waits for input pieces, only the second releases output pieces.
    [[nodiscard]] StagePass first_part() const {
        StagePass pass = *this;
        pass.output = {};
        return pass;
    }
    [[nodiscard]] StagePass last_part() const {
        StagePass pass = *this;
        pass.input = {};
        return pass;
    }
    /// Generation goes on by several tokens (drafts): each has the bits that it has alone.
    [[nodiscard]] bool keeps_rows_apart(int64_t rows) const { return cached.count > 0 && rows > 1; }
    [[nodiscard]] const kernels::Operators& op() const { return ctx.operators(); }
};

}  // namespace vocabpipe
