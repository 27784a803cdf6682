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
                   " has no expert that all tokens share; remove the flag, or use qwen2_moe");
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
