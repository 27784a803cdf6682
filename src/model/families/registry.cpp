// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/families.hpp"
#include "src/model/families/other_families.hpp"
#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>

namespace vocabpipe {

std::span<const ModelFamily> all_families() {
    static const std::array kFamilies{
        families::gpt2(),    families::llama(),      families::mistral(), families::qwen2(),
        families::qwen3(),   families::gemma(),      families::gemma2(),  families::gemma3_text(),
        families::olmo2(),   families::phi3(),       families::smollm3(), families::gpt_neox(),
        families::mixtral(), families::qwen3_moe(),  families::olmoe(),   families::qwen2_moe(),
        families::dots1(),   families::deepseek_v3()};
    return kFamilies;
}

const ModelFamily* find_family(std::string_view name) {
    const std::span<const ModelFamily> all = all_families();
    const auto found = std::ranges::find(all, name, &ModelFamily::name);
    return found == all.end() ? nullptr : &*found;
}

const ModelFamily& model_family(std::string_view name) {
    if (const ModelFamily* const found = find_family(name)) return *found;
    throw UsageError("--model-type " + std::string(name.substr(0, 40)) + ": must be one of " +
                     known_families() + nearest_family(name));
}

std::string known_families() {
    return joined(all_families(), ", ", &ModelFamily::name);
}

std::string nearest_family(std::string_view name) {
    for (const OtherFamily& other : other_families()) {
        if (other.name != name) continue;
        return "; the nearest is " + std::string(other.nearest) + ", missing is " +
               std::string(other.missing);
    }
    std::vector<std::string_view> known;
    for (const ModelFamily& family : all_families()) known.push_back(family.name);
    return did_you_mean(name, known);
}

std::vector<std::string> model_families() {
    std::vector<std::string> names;
    for (const ModelFamily& family : all_families()) names.emplace_back(family.name);
    return names;
}

}  // namespace vocabpipe
