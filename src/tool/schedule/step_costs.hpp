// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/schedule/schedule_source.hpp"
#include "vocabpipe/recompute.hpp"

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

/// Cost of R after an F of `forward`; 0 for none.
[[nodiscard]] int64_t recompute_cost(int64_t forward, Recompute recompute, int64_t hidden_size);
/// The same per layer of a profile; a GPT's if it was not measured.
[[nodiscard]] double recompute_ns_per_layer(const Profile& profile, Recompute recompute);

/// Sets costs and sizes of `step`, whose schedule is set, from these figures. `layers`: per stage,
/// or empty for equal stages.
void set_costs(ScheduledStep& step, const StageCosts& costs, const std::vector<int>& layers,
               const ScheduleFlags& flags, Recompute recompute);

/// The same from a profile. If the schedule has the profile's stages, ranks and shards, costs and
/// sizes are as measured; else they are scaled by layers and by vocabulary rows.
void set_costs(ScheduledStep& step, const Profile& profile, const std::vector<int>& layers);

/// Splits the activations that stages save, as set from the profile, into those that are kept and
/// those that R recomputes. If the profile was measured with another granularity, R costs as much
/// as F, or for selective recomputation recompute_ns_per_layer().
void set_recomputation(ScheduledStep& step, const Profile& profile, const std::vector<int>& layers,
                       Recompute recompute);

}  // namespace vocabpipe::tool
