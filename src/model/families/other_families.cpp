// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/other_families.hpp"

#include <array>

namespace vocabpipe {

namespace {

constexpr std::array kOtherFamilies{
    OtherFamily{"bloom", "gpt2", "ALiBi: scores that fall with the distance"},
    OtherFamily{"cohere", "gpt_neox",
                "rotary positions of neighbouring columns, and LayerNorm without a bias"},
    OtherFamily{"deepseek_v2", "deepseek_v3", "softmax scores of experts"},
    OtherFamily{"falcon", "gpt_neox", "one norm of what attention and MLP read"},
    OtherFamily{"gemma3", "gemma3_text", "images"},
    OtherFamily{"gpt_neo", "gpt2", "attention without a scale"},
    OtherFamily{"gpt_oss", "mixtral",
                "biases of experts and of their router, and their clamped activation"},
    OtherFamily{"gptj", "gpt_neox", "rotary positions of neighbouring columns"},
    OtherFamily{
        "llama4", "llama",
        "images, a mixture of experts, attention in chunks, and rotary positions of neighbouring "
        "columns"},
    OtherFamily{
        "llama4_text", "llama",
        "a mixture of experts, attention in chunks, rotary positions of neighbouring columns, "
        "norms of q and k after them, and a temperature of attention"},
    OtherFamily{"opt", "gpt2", "ReLU"},
};

}  // namespace

std::span<const OtherFamily> other_families() {
    return kOtherFamilies;
}

}  // namespace vocabpipe
