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

/// Ticks per unit of the figures; 0: they are nanoseconds.
[[nodiscard]] int ticks_per_unit(const ScheduleFlags& flags);

/// Costs that are figures, for a GPT in bf16 with a feed-forward size of 4 h.
class FigureCosts final : public CostSource {
public:
    /// The flags must outlive it. Throws as parse_stage_costs().
    FigureCosts(const ScheduleFlags& flags, Recompute recompute);

    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override;
    /// `layers` empty: every stage is an equal part of a rank's layers.
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override;

private:
    const ScheduleFlags& flags_;
    Recompute recompute_;
    StageCosts figures_;
};

}  // namespace vocabpipe::tool
