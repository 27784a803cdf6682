// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "vocabpipe/plan.hpp"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

/// Pass times of a CSV file "rank,op,stage,ns" (--pass-times; docs/plan-with-your-own-times.md) in
/// place of those that others give. Missing halves of a backward follow from B = I + W, or I = W =
/// B / 2.
class PassTimesFile final : public CostSource {
public:
    /// `keep`: a pass without a row keeps its cost; else F and a backward of every stage are
    /// required, and other passes cost 0.
    PassTimesFile(std::string path, std::unique_ptr<const CostSource> others, bool keep)
        : path_(std::move(path)), others_(std::move(others)), keep_(keep) {}

    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override {
        return others_->layers_per_stage(rank_of_stage, mode);
    }
    /// InputFileError with file, line, value and remedy.
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override;

private:
    std::string path_;
    std::unique_ptr<const CostSource> others_;
    bool keep_;
};

/// Reads the same file for `vocabpipe plan`: its rows determine ranks and stages, and F and a
/// backward of every stage are required.
[[nodiscard]] PlannedPassTimes read_planned_pass_times(const std::string& path);

}  // namespace vocabpipe::tool
