// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/logits_layer.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/step_plan.hpp"
#include "vocabpipe/text_generator.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace vocabpipe {

/// The model with a sequence length of `tokens`, rounded up to a multiple of t.
[[nodiscard]] ModelConfig filled_up(const TextGeneratorOptions& options, int64_t tokens);

/// A forward of `tokens` tokens of one sequence; the stages do not depend on their number.
/// UsageError for options that do not fit the model.
[[nodiscard]] StepPlan plan_forward(const TextGeneratorOptions& options, int64_t tokens);

/// A forward of a depth of multi-token prediction for `tokens` tokens: a pipeline with one stage
/// (DraftStage), on the rank of the model's last one. The vocabulary stays where it is.
[[nodiscard]] StepPlan plan_draft(const TextGeneratorOptions& options, int64_t tokens);

/// The module of a stage of this rank.
using MakeStage = std::function<std::unique_ptr<StageModule>(int stage, const Mesh::Place& place)>;

/// The program of a forward of some number of tokens, with the stages that run it.
class Forward {
public:
    /// `plan`: of these tokens; `output`: null without rows of the vocabulary. World, model and
    /// output must outlive it. Collective; AgreedError.
    Forward(Communicator& world, ModelRank& model, LogitsLayer* output,
            const TextGeneratorOptions& options, StepPlan plan, const MakeStage& make);

    /// Runs these tokens, and leaves the logits of the last `scored` of them in `output`.
    /// Collective.
    void run(std::span<const int32_t> tokens, int64_t scored = 1);

private:
    StepPlan plan_;
    LogitsLayer* output_;
    std::vector<std::unique_ptr<StageModule>> stages_;  ///< [stage], null elsewhere
    std::optional<Executor> executor_;
};

}  // namespace vocabpipe
