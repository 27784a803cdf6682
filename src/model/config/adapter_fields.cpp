// SPDX-License-Identifier: Apache-2.0
#include "src/model/config/field_groups.hpp"
#include "src/model/config_json/config_values.hpp"
#include "src/model/config_json/lora_keys.hpp"
#include "src/support/joined.hpp"
#include "src/support/split_text.hpp"

namespace vocabpipe {

namespace {

/// Names between commas.
std::vector<std::string> names_in(const std::string& text) {
    const std::vector<std::string_view> names = split_text(text);
    return {names.begin(), names.end()};
}

std::string text_of(const std::vector<std::string>& names) {
    return joined(names, ",");
}

}  // namespace

std::vector<ModelField> adapter_fields(ModelConfig& m) {
    LoraConfig& lora = m.lora;
    return {
        {.member = "lora.rank",
         .key = kLoraKey,
         .scope = FieldScope::run,
         .flag = {.names = "--lora-rank",
                  .value = &lora.rank,
                  .help = "Train low-rank adapters (LoRA) of this rank instead of the model, whose "
                          "own tensors are frozen",
                  .unit = "N",
                  .range = between(1, static_cast<double>(kWidest)),
                  .unset = "no adapters, or those of the loaded step",
                  .absent = 0}},
        {.member = "lora.alpha",
         .key = kLoraKey,
         .scope = FieldScope::run,
         .flag = {.names = "--lora-alpha",
                  .value = &lora.alpha,
                  .help = "The product of an adapter is multiplied by alpha / rank",
                  .unit = "X",
                  .range = above(0),
                  .unset = "the rank",
                  .absent = 0}},
        {.member = "lora.target_modules",
         .key = kLoraKey,
         .scope = FieldScope::run,
         .flag = {.names = "--lora-target-modules",
                  .value = FlagText{.set =
                                        [&lora](const auto& words) {
                                            const bool all = words.back() == kAllLinear;
                                            lora.target_modules = all ? std::vector<std::string>()
                                                                      : names_in(words.back());
                                        },
                                    .get = [&lora] { return text_of(lora.target_modules); }},
                  .help = "The linear layers that get adapters, such as q_proj,v_proj: the last "
                          "parts of their names",
                  .unit = "NAMES",
                  .unset = kAllLinear}},
    };
}

}  // namespace vocabpipe
