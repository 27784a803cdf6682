// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/schedule_source.hpp"
#include "vocabpipe/recompute.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Costs F,B or F,B,V of `--costs`: of the layers of an average rank, and S and T of an even share
/// of the vocabulary rows. E and G cost a quarter of V.
struct StageCosts {
    int64_t forward = 0;
    int64_t backward = 0;
    int64_t vocabulary = 0;
};
/// In `ticks` to a unit. Throws UsageError. Without V it is a third of F.
[[nodiscard]] StageCosts parse_stage_costs(const std::string& text, int ticks = 1);

/// "F 12, B 24, V 4, latency 1": the figures as given, for people. Throws as parse_stage_costs().
[[nodiscard]] std::string costs_text(const ScheduleFlags& flags);

/// A third of F, and a quarter of that, stay whole.
inline constexpr int kTicksPerUnit = 12;

/// What R costs after an F of `forward`; 0 for none.
[[nodiscard]] int64_t recompute_cost(int64_t forward, Recompute recompute, int64_t hidden_size);
/// The same per layer of a profile, and of a GPT where it was not measured.
[[nodiscard]] double recompute_ns_per_layer(const Profile& profile, Recompute recompute);

/// Sets costs and sizes of `step`, whose schedule is set, from these figures. `layers`: of every
/// stage, or empty for equal stages.
void set_costs(ScheduledStep& step, const StageCosts& costs, const std::vector<int>& layers,
               const ScheduleFlags& flags, Recompute recompute);

/// The same from a profile. Where the schedule has the profile's stages, ranks and shards, costs
/// and sizes are as measured; else they are scaled by layers and by vocabulary rows.
void set_costs(ScheduledStep& step, const Profile& profile, const std::vector<int>& layers);

/// Divides what stages save, as set from the profile, into what is kept and what R makes again.
/// Where the profile was measured with another granularity, R costs as much as F, or for selective
/// what recompute_ns_per_layer() says.
void set_recomputation(ScheduledStep& step, const Profile& profile, const std::vector<int>& layers,
                       Recompute recompute);

}  // namespace vocabpipe::tool
