// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/training_loss.hpp"

#include "vocabpipe/distillation_loss.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/policy_loss.hpp"

#include <limits>

namespace vocabpipe {

namespace {

constexpr const char* kAdvantages = "advantages";
constexpr const char* kOld = "old_log_probs";
constexpr const char* kReference = "ref_log_prob";
constexpr const char* kListedLogprobs = "top_logprobs";
constexpr const char* kListedIds = "top_ids";

}  // namespace

std::string_view to_string(LossName name) {
    switch (name) {
        case LossName::cross_entropy:
            return "cross-entropy";
        case LossName::grpo:
            return "grpo";
        case LossName::distillation:
            return "distillation";
        case LossName::dpo:
            return "dpo";
    }
    return {};
}

LossName loss_name_from(std::string_view name) {
    for (const LossName known :
         {LossName::cross_entropy, LossName::grpo, LossName::distillation, LossName::dpo}) {
        if (name == to_string(known)) return known;
    }
    throw UsageError("--loss " + std::string(name) +
                     ": is unknown; use cross-entropy, grpo, distillation or dpo");
}

std::shared_ptr<const TokenLoss> TrainingLoss::make() const {
    switch (name) {
        case LossName::cross_entropy:
            return nullptr;
        case LossName::grpo:
            return std::make_shared<PolicyLoss>(policy);
        case LossName::distillation:
            return std::make_shared<DistillationLoss>(distillation);
        case LossName::dpo:
            // With the slopes of PreferenceStep. Its ratio is 1, and no clip says otherwise where a
            // second forward has other bits.
            return std::make_shared<PolicyLoss>(
                PolicyLossOptions{.clip_low = 1, .clip_high = std::numeric_limits<float>::max()});
    }
    return nullptr;
}

std::vector<NamedColumns> TrainingLoss::columns() const {
    if (name == LossName::distillation) {
        return {{.name = kListedLogprobs, .kind = ColumnKind::logprob, .count = distillation.top_k},
                {.name = kListedIds, .kind = ColumnKind::id, .count = distillation.top_k}};
    }
    if (name == LossName::cross_entropy) return {};
    if (name == LossName::dpo) {
        return {{.name = std::string(to_string(TokenRecord::logprob))}};  // of the reference
    }
    std::vector<NamedColumns> columns{{.name = kAdvantages}, {.name = kOld}};
    if (policy.columns() > 2) columns.push_back({.name = kReference});
    return columns;
}

std::vector<std::string> every_loss_column() {
    std::vector<std::string> names{kAdvantages, kOld, kReference, kListedIds};
    for (const TokenRecord record : kEveryTokenRecord) names.emplace_back(to_string(record));
    return names;
}

}  // namespace vocabpipe
