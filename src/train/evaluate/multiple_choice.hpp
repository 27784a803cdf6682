// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/choice_set.hpp"
#include "src/train/evaluate/sequence_losses.hpp"

#include <cstdint>

namespace vocabpipe {

/// The accuracy of a model on multiple choice.
struct ChoiceAccuracy {
    int64_t right = 0;
    int64_t examples = 0;
    [[nodiscard]] double accuracy() const {
        return examples == 0 ? 0 : static_cast<double>(right) / static_cast<double>(examples);
    }
};

/// The model chooses the completion with the least mean cross-entropy per token after the context
/// (llm.c's and HellaSwag's "normalised" accuracy), the first one in a tie. Each completion is one
/// sequence. Collective.
[[nodiscard]] ChoiceAccuracy choice_accuracy(SequenceLosses& losses, const ChoiceSet& set);

}  // namespace vocabpipe
