// SPDX-License-Identifier: Apache-2.0
#include "src/model/config/fields.hpp"

#include "src/model/config/field_groups.hpp"
#include "src/model/config_json/decoder_keys.hpp"

#include <nlohmann/json.hpp>
#include <variant>

namespace vocabpipe {

std::string_view to_string(FieldScope scope) {
    switch (scope) {
        case FieldScope::model:
            return "model";
        case FieldScope::layer:
            return "layer";
        case FieldScope::run:
            return "run";
        case FieldScope::text:
            break;
    }
    return "text";
}

std::string ModelField::name() const {
    return !called.empty() ? called : !key.empty() ? key : std::string(member);
}

std::string ModelField::value_text() const {
    if (text) return text();
    if (const auto* const value = std::get_if<bool*>(&flag.value)) {
        return **value ? "true" : "false";
    }
    if (const auto* const value = std::get_if<float*>(&flag.value)) {
        return nlohmann::json(shortest(**value)).dump();
    }
    return flag.text();
}

std::vector<ModelField> model_fields(ModelConfig& model) {
    std::vector<ModelField> fields;
    for (auto& group : {size_fields(model), expert_fields(model), family_fields(model),
                        run_fields(model), adapter_fields(model)}) {
        fields.insert(fields.end(), group.begin(), group.end());
    }
    return fields;
}

}  // namespace vocabpipe
