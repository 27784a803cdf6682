// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "src/tool/schedule/schedule_flags.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Costs F,B or F,B,V of `--costs`: of the layers of an average rank, and of S and T together on an
/// even share of the vocabulary rows. E and G cost a quarter of V each.
struct StageCosts {
    int64_t forward = 0;
    int64_t backward = 0;
    int64_t vocabulary = 0;
};
/// With `ticks` per unit. UsageError. Without V it is F / 3.
[[nodiscard]] StageCosts parse_stage_costs(const std::string& text, int ticks = 1);

/// "F 12, B 24, V 4, latency 1": the given figures, for people. Throws as parse_stage_costs().
[[nodiscard]] std::string costs_text(const ScheduleFlags& flags);

/// Keeps F / 3, and a quarter of that, whole.
inline constexpr int kTicksPerUnit = 12;

/// Figures in place of measurements, and the model that decides bytes.
struct FigureCostOptions {
    std::string costs;                   ///< text of `--costs`
    int ticks_per_unit = kTicksPerUnit;  ///< 0: figures are nanoseconds
    int64_t latency = 0;                 ///< units per message
    int64_t hop = 0;                     ///< units that a boundary travels; 0: no time
    int num_layers = 0;                  ///< 0: all stages are alike
    int64_t seq_length = 2048;           ///< as in ScheduleFlags
    int64_t micro_batch_size = 1;
    int64_t hidden_size = 4096;
};
[[nodiscard]] FigureCostOptions figures_of(const ScheduleFlags& flags);

/// Costs that are figures, for a GPT in bf16 with a feed-forward size of 4 h.
class FigureCosts final : public CostSource {
public:
    /// Throws as parse_stage_costs().
    FigureCosts(FigureCostOptions options, Recompute recompute);

    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override;
    /// `layers` empty: every stage is an equal part of a rank's layers.
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override;

private:
    FigureCostOptions options_;
    Recompute recompute_;
    StageCosts figures_;
};

}  // namespace vocabpipe::tool
