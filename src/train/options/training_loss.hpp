// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/sample_columns.hpp"
#include "vocabpipe/distillation_options.hpp"
#include "vocabpipe/policy_loss_options.hpp"
#include "vocabpipe/token_loss.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What a run minimises.
enum class LossName : uint8_t {
    cross_entropy,  ///< of every label
    grpo,           ///< PolicyLoss, the clipped objective of PPO and GRPO
    distillation,   ///< DistillationLoss, against lists of a teacher
    dpo,            ///< preference_loss() of pairs of samples (PreferenceStep)
};
/// "cross-entropy" and so on.
[[nodiscard]] std::string_view to_string(LossName name);
/// UsageError for another name.
[[nodiscard]] LossName loss_name_from(std::string_view name);

/// The loss of a run; the comments name the flags of train_gpt, which are Megatron's, and of
/// distillation torchtune's.
struct TrainingLoss {
    LossName name = LossName::cross_entropy;  // --loss; what a language model is trained with
    /// --grpo-clamp-eps-lower, --grpo-clamp-eps-upper, --grpo-kl-beta, --grpo-kl-estimator,
    /// --grpo-entropy-term-weight
    PolicyLossOptions policy;
    DistillationOptions distillation;  // --kd-top-k, --kd-ratio
    double dpo_beta = 0.1;             // --dpo-beta; TRL's default

    /// Samples 2 i and 2 i + 1 are a pair, which a forward-only step looks at first.
    [[nodiscard]] bool compares_pairs() const { return name == LossName::dpo; }

    /// StepWork::loss; null for the cross-entropy.
    [[nodiscard]] std::shared_ptr<const TokenLoss> make() const;
    /// The columns that it reads, in the order of Sample::columns, by the names that verl gives
    /// them, or vocabpipe score.
    [[nodiscard]] std::vector<NamedColumns> columns() const;
};

/// Every column of any loss, and the records that a file of vocabpipe score may have beside them.
[[nodiscard]] std::vector<std::string> every_loss_column();

}  // namespace vocabpipe
