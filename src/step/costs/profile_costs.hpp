// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "vocabpipe/profile.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Work of a selective R in one layer of the profiled model, per token.
struct SelectiveWork {
    double elements = 0;  ///< read and written
    int64_t bytes = 0;    ///< made again, of what the layer saves
};

/// Costs and sizes as a profile measured them. A step with the profile's stages, ranks and shards
/// has them as measured; others are scaled by layers and vocabulary rows.
class ProfileCosts final : public CostSource {
public:
    /// The profile must outlive it. `layers`: of the model; 0: as many as were profiled.
    ProfileCosts(const Profile& profile, Recompute recompute, const SelectiveWork& selective,
                 int layers = 0);

    /// As profiled where the number of stages is the same; else even, or balanced by the measured
    /// costs of the output layer.
    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override;
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override;

private:
    void set_stages(StepPrice& price, const std::vector<int>& layers) const;
    void set_shards(StepPrice& price, const Schedule& placed) const;
    void set_recomputation(StepPrice& price, const std::vector<int>& layers) const;
    void set_tensor_ranks(StepPrice& price, int pipeline) const;

    const Profile& profile_;
    Recompute recompute_;
    SelectiveWork selective_;
    int layers_;
    double recompute_ns_;  ///< of R, per layer
};

}  // namespace vocabpipe
