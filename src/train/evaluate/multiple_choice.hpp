// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/choice_set.hpp"
#include "src/train/evaluate/sequence_losses.hpp"

#include <cstdint>

namespace vocabpipe {

/// How many examples a model completes rightly.
struct ChoiceAccuracy {
    int64_t right = 0;
    int64_t examples = 0;
    [[nodiscard]] double accuracy() const {
        return examples == 0 ? 0 : static_cast<double>(right) / static_cast<double>(examples);
    }
};

/// The model's choice is the completion whose tokens have the least mean cross-entropy behind the
/// context (llm.c's and HellaSwag's "normalised" accuracy), of equal ones the first. A completion
/// is a sequence. Collective.
[[nodiscard]] ChoiceAccuracy choice_accuracy(SequenceLosses& losses, const ChoiceSet& set);

}  // namespace vocabpipe
