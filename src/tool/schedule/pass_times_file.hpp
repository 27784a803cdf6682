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

/// Rows "rank,op,stage,ns" below a line that says so (docs/plan-with-your-own-times.md).
struct PassTimesText {
    std::string name;  ///< of the file, for messages
    std::string text;  ///< what is in it
};
/// InputFileError naming the file and the remedy.
[[nodiscard]] PassTimesText read_pass_times_text(const std::string& path);

/// Pass times of a CSV file (--pass-times) in place of those that others give. Missing halves of a
/// backward follow from B = I + W, or I = W = B / 2.
class PassTimesFile final : public CostSource {
public:
    /// `keep`: a pass without a row keeps its cost; else F and a backward of every stage are
    /// required, and other passes cost 0.
    PassTimesFile(PassTimesText file, std::unique_ptr<const CostSource> others, bool keep)
        : file_(std::move(file)), others_(std::move(others)), keep_(keep) {}

    [[nodiscard]] std::vector<int> layers_per_stage(std::span<const int> rank_of_stage,
                                                    VocabMode mode) const override {
        return others_->layers_per_stage(rank_of_stage, mode);
    }
    /// InputFileError with file, line, value and remedy.
    [[nodiscard]] StepPrice price(const Schedule& placed,
                                  const std::vector<int>& layers) const override;

private:
    PassTimesText file_;
    std::unique_ptr<const CostSource> others_;
    bool keep_;
};

/// Reads the same file for `vocabpipe plan`: its rows determine ranks and stages, and F and a
/// backward of every stage are required.
[[nodiscard]] PlannedPassTimes read_planned_pass_times(const std::string& path);

}  // namespace vocabpipe::tool
