// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "src/tool/schedule/schedule_flags.hpp"
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

/// The GPT that is simulated where no profile says: sizes of its memory, and without --costs also
/// what its FLOPs cost. Without any flag it is GPT-3 175B, whatever the number of ranks, so that
/// two pipelines train the same model; with --costs F,B, which are of a rank, it has a layer and
/// 32000 vocabulary rows for every rank.
struct FiguredModel {
    int64_t layers = 0;
    int64_t hidden_size = 0;
    int64_t vocabulary_rows = 0;
};
[[nodiscard]] FiguredModel figured_model(const ScheduleFlags& flags, int ranks);

/// What decides the FLOPs of a layer of the figured model, with the sequence length of the flags.
[[nodiscard]] ModelConfig figured_layer(const ScheduleFlags& flags, int ranks);

/// "F 12, B 24, V 4, latency 1": the figures, for people; without --costs also the model that they
/// are of. Throws as parse_stage_costs().
[[nodiscard]] std::string costs_text(const ScheduleFlags& flags, int ranks);

/// Keeps F / 3, and a quarter of that, whole.
inline constexpr int kTicksPerUnit = 12;

/// Ticks per unit of the figures; 0: they are nanoseconds.
[[nodiscard]] int ticks_per_unit(const ScheduleFlags& flags);

/// Costs that are figures, for a figured_model() in bf16 with a feed-forward size of 4 h.
class FigureCosts final : public CostSource {
public:
    /// The flags must outlive it. Throws as parse_stage_costs().
    FigureCosts(const ScheduleFlags& flags, Recompute recompute);

    /// Those of the layout, where there is one. UsageError if it does not fit.
    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override;
    /// `layers` empty: every stage is an equal part of a rank's layers.
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override;

private:
    const ScheduleFlags& flags_;
    Recompute recompute_;
};

}  // namespace vocabpipe::tool
