// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The layers of every stage.
struct StageLayout {
    std::vector<int> layers;     ///< transformer layers per stage, 0 allowed
    bool sharded_input = false;  ///< embedding sharded over all ranks, not whole in the first stage
    bool sharded_output =
        false;           ///< output layer sharded over all ranks, not whole in the last stage
    int mtp_layers = 0;  ///< depths of multi-token prediction, all in one stage
    int mtp_stage = -1;  ///< that stage; -1: there are none

    /// Transformer layers of all stages together.
    [[nodiscard]] int num_layers() const;
    /// Member by member.
    friend bool operator==(const StageLayout&, const StageLayout&) = default;
};

/// Numbers that the layout must match; 0 or -1: not checked.
struct StageLayoutOptions {
    int ranks = 0;        ///< p: the number of stages must be a multiple of it
    int chunks = 0;       ///< v: with p, there must be p * v stages
    int num_layers = -1;  ///< transformer layers of the model
    int mtp_layers = -1;  ///< depths of multi-token prediction of the model
    /// Whose vocabulary layers the layout must have: V for both in a mode that shards them, else E
    /// and L. None: not checked.
    std::optional<VocabMode> vocab_mode = std::nullopt;
};

/// Parses the notation of Megatron's --pipeline-model-parallel-layout: one letter per layer, `E`
/// embedding, `t` transformer, `m` depth of multi-token prediction, `L` output layer and loss, `|`
/// between stages, `x*n` and `(...)*n` repeat, commas and blanks are ignored. One letter is added:
/// `V` instead of E or L stands for that layer sharded over all ranks.
///
///     Ettt|tttt|tttt|tttL      Et*3|(tt|)*29,m|L      Vt*4|t*4mV
///
/// E (or V) comes first in the first stage and L (or V) last in the last one, as in Megatron. So
/// are depths placed: after all transformer layers, all in one stage, in the last chunk of its
/// rank, and not on the first rank. Throws UsageError with the position and the remedy.
[[nodiscard]] StageLayout parse_stage_layout(std::string_view text,
                                             const StageLayoutOptions& options = {});

/// The layout in that notation, with repeats for runs of equal layers and stages;
/// parse_stage_layout() reverses it.
[[nodiscard]] std::string print_stage_layout(const StageLayout& layout);

/// Time of one microbatch, forward and backward, in any one unit.
struct LayerCosts {
    double layer = 1;         ///< one transformer layer
    double embedding = 0;     ///< the whole input layer
    double output_layer = 0;  ///< the whole output layer and loss
    double mtp_layers = 0;    ///< all depths of multi-token prediction, in the last stage
};

/// Transformer layers per stage for any placement that minimise the work of the busiest rank and
/// then the layers of the longest stage. Exact: layers are alike, so both limits are found by
/// counting what fits below them. Whole vocabulary layers (none, redistributed) are work of the
/// ranks of the first and last stage; sharded ones are the same work on every rank and have no
/// effect. Depths of multi-token prediction are work of the last stage in every mode.
/// layers_per_stage() (make_schedule.hpp) is the paper's closed rule for one stage per
/// rank. Throws UsageError for a negative number of layers, no stage, or costs that are not finite
/// and positive (layer) or negative (others).
[[nodiscard]] std::vector<int> balanced_layers(int num_layers, std::span<const int> rank_of_stage,
                                               const LayerCosts& costs, VocabMode mode);

/// Layers of the ranks that hold the model's first and its last stage, as Megatron's
/// --decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers give them; -1: as
/// many as the others.
struct EndLayers {
    int first = -1;  ///< of the first stage; -1: not given
    int last = -1;   ///< of the last stage; -1: not given

    /// Whether either is given.
    [[nodiscard]] bool given() const { return first >= 0 || last >= 0; }
};

/// Transformer layers per stage: `ends` where given, the rest evenly over the other ranks, and each
/// rank's layers evenly over its stages, earlier stages first. Throws UsageError, naming the flags,
/// if first and last stage share a rank, or layers do not fit.
[[nodiscard]] std::vector<int> layers_with_ends(int num_layers, std::span<const int> rank_of_stage,
                                                const EndLayers& ends);

}  // namespace vocabpipe
