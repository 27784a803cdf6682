// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/moe_config.hpp"

#include "src/model/families/families.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_config.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

namespace {

std::string families_with_experts() {
    std::string names;
    for (const ModelFamily& family : all_families()) {
        if (!family.has_experts()) continue;
        names += (names.empty() ? "" : " or ") + std::string(family.name);
    }
    return names;
}

void refuse(const std::string& flag, int64_t value, const std::string& why) {
    throw UsageError(flag + " " + std::to_string(value) + ": " + why);
}

void check_groups(const MoeConfig& moe) {
    if (moe.groups < 1 || moe.experts % moe.groups != 0) {
        refuse("--moe-router-num-groups", moe.groups,
               "must divide --num-experts " + std::to_string(moe.experts));
    }
    if (moe.top_groups < 1 || moe.top_groups > moe.groups) {
        refuse("--moe-router-group-topk", moe.top_groups,
               "must be from 1 to --moe-router-num-groups " + std::to_string(moe.groups));
    }
    const int64_t open = moe.top_groups * (moe.experts / moe.groups);
    if (moe.top_k > open) {
        refuse("--moe-router-group-topk", moe.top_groups,
               "these groups have " + std::to_string(open) + " experts, but --moe-router-topk is " +
                   std::to_string(moe.top_k) + "; raise one or lower the other");
    }
}

}  // namespace

void check_experts(const ModelConfig& c) {
    const MoeConfig& moe = c.moe;
    if (!model_family(c.family).has_experts()) {
        if (moe.experts == 0) return;
        refuse("--num-experts", moe.experts,
               "--model-type " + c.family + " has no experts; use " + families_with_experts() +
                   ", or remove the flag");
    }
    if (moe.experts < 1 || moe.experts > kMostExperts) {
        refuse("--num-experts", moe.experts, "must be from 1 to " + std::to_string(kMostExperts));
    }
    if (moe.top_k < 1 || moe.top_k > moe.experts) {
        refuse("--moe-router-topk", moe.top_k,
               "must be from 1 to --num-experts " + std::to_string(moe.experts));
    }
    if (moe.shared_ffn_hidden_size != 0 && !moe.shared_expert) {
        refuse("--moe-shared-expert-intermediate-size", moe.shared_ffn_hidden_size,
               "--model-type " + c.family +
                   " has no expert that all tokens share; remove the flag, or use qwen2_moe, "
                   "dots1 or deepseek_v3");
    }
    check_groups(moe);
    if (!moe.correction_bias) {
        const auto refuse_flag = [&](bool given, const std::string& flag, const std::string& what) {
            if (!given) return;
            throw UsageError(flag + ": --model-type " + c.family + " has no " + what +
                             "; remove the flag, or use dots1 or deepseek_v3");
        };
        refuse_flag(moe.bias_rate > 0, "--moe-router-enable-expert-bias", "correction bias");
        refuse_flag(moe.groups > 1, "--moe-router-num-groups", "groups of experts");
        refuse_flag(moe.scaling != 1, "--moe-router-topk-scaling-factor", "scaled weights");
    }
    if (!moe.sparse.empty() && std::ssize(moe.sparse) != c.num_layers) {
        refuse(
            "--moe-layer-freq", std::ssize(moe.sparse),
            "entries, but must have one for each of --num-layers " + std::to_string(c.num_layers));
    }
    if (!moe.sparse.empty() && std::ranges::find(moe.sparse, true) == moe.sparse.end()) {
        throw UsageError(
            "--moe-layer-freq: no layer has experts; set a 1, or use a family without "
            "experts");
    }
}

}  // namespace vocabpipe
