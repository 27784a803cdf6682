// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/training_loss.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/policy_loss.hpp"

namespace vocabpipe {

namespace {

constexpr const char* kAdvantages = "advantages";
constexpr const char* kOld = "old_log_probs";
constexpr const char* kReference = "ref_log_prob";

}  // namespace

std::string_view to_string(LossName name) {
    return name == LossName::grpo ? "grpo" : "cross-entropy";
}

LossName loss_name_from(std::string_view name) {
    for (const LossName known : {LossName::cross_entropy, LossName::grpo}) {
        if (name == to_string(known)) return known;
    }
    throw UsageError("--loss " + std::string(name) + ": is unknown; use cross-entropy or grpo");
}

std::shared_ptr<const TokenLoss> TrainingLoss::make() const {
    if (name == LossName::cross_entropy) return nullptr;
    return std::make_shared<PolicyLoss>(policy);
}

std::vector<std::string> TrainingLoss::columns() const {
    if (name == LossName::cross_entropy) return {};
    std::vector<std::string> names{kAdvantages, kOld};
    if (policy.columns() > 2) names.emplace_back(kReference);
    return names;
}

std::vector<std::string> every_loss_column() {
    return {kAdvantages, kOld, kReference};
}

}  // namespace vocabpipe
