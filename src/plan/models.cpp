// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/model_config_json.hpp"
#include "src/model/published/published_models.hpp"
#include "vocabpipe/transformer_shape.hpp"

namespace vocabpipe {

std::string known_models() {
    std::string names;
    for (const std::string& name : published_models()) names += (names.empty() ? "" : ", ") + name;
    return names;
}

TransformerShape load_model(const std::string& name_or_path) {
    const NamedModel model = named_model(name_or_path);
    TransformerShape shape = shape_of(parse_model_config(model.text, model.path));
    shape.name = model.name;
    return shape;
}

}  // namespace vocabpipe
