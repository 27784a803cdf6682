// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Costs of the layers of an average rank, and of S and of T on an even share of the vocabulary
/// rows. E and G cost a quarter of V each.
struct StageCosts {
    int64_t forward = 0;
    int64_t backward = 0;
    double vocabulary = 0;
};
/// Those of `--costs F,B` or F,B,V, with `ticks` per unit. UsageError. Without V it is F / 3.
[[nodiscard]] StageCosts parse_stage_costs(const std::string& text, int ticks = 1);

/// Figures of costs, and of the model that they are of; 0 and "" mean "not given".
struct FigureOptions {
    std::string costs;         ///< F,B or F,B,V; empty: FLOPs of figured_model()
    bool replaced = false;     ///< by pass times: the model is then the same as with `costs`
    bool are_ns = false;       ///< whether `costs` are nanoseconds, and not in a unit of their own
    int64_t latency = 0;       ///< of a message
    int64_t hop = 0;           ///< of a boundary on a link
    int exchange_percent = 0;  ///< TableCosts::exchange_permille / 10
    int num_layers = 0;
    int mtp_num_layers = 0;
    std::string layout;  ///< of the stages; empty: balanced
    int64_t hidden_size = 0;
    int64_t vocab_size = 0;
    int64_t seq_length = 2048;  ///< a common one; memory depends on it, and FLOPs
    int64_t micro_batch_size = 1;
};

/// The GPT that is simulated where no profile says: sizes of its memory, and without
/// FigureOptions::costs also what its FLOPs cost. Without any option it is GPT-3 175B, whatever the
/// number of ranks, so that two pipelines train the same model; with costs, which are of a rank, it
/// has a layer and 32000 vocabulary rows for every rank.
struct FiguredModel {
    int64_t layers = 0;
    int64_t hidden_size = 0;
    int64_t vocabulary_rows = 0;
};
[[nodiscard]] FiguredModel figured_model(const FigureOptions& figures, int ranks);

/// What decides the FLOPs of a layer of the figured model, with the sequence length of the figures.
[[nodiscard]] ModelConfig figured_layer(const FigureOptions& figures, int ranks);

/// "F 12, B 24, V 4, latency 1": the figures, for people; without --costs also the model that they
/// are of. Throws as parse_stage_costs().
[[nodiscard]] std::string costs_text(const FigureOptions& figures, int ranks);

/// Keeps F / 3, and a quarter of that, whole.
inline constexpr int kTicksPerUnit = 12;

/// Ticks per unit of the figures; 0: they are nanoseconds.
[[nodiscard]] int ticks_per_unit(const FigureOptions& figures);

/// Costs that are figures, for a figured_model() in bf16 with a feed-forward size of 4 h.
class FigureCosts final : public CostSource {
public:
    /// Throws as parse_stage_costs().
    FigureCosts(FigureOptions figures, Recompute recompute);

    /// Those of the layout, where there is one. UsageError if it does not fit.
    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override;
    /// `layers` empty: every stage is an equal part of a rank's layers.
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override;

private:
    FigureOptions figures_;
    Recompute recompute_;
};

}  // namespace vocabpipe::tool
