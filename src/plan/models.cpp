// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/model_config_json.hpp"
#include "src/plan/named_file.hpp"
#include "vocabpipe/transformer_shape.hpp"

namespace vocabpipe {

std::string known_models() {
    return names_of(embedded::models());
}

TransformerShape load_model(const std::string& name_or_path) {
    const NamedText file = named_text("--model", name_or_path, embedded::models());
    TransformerShape shape = shape_of(parse_model_config(file.text, name_or_path));
    shape.name = file.name;
    return shape;
}

}  // namespace vocabpipe
