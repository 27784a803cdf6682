// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/model_config_json.hpp"
#include "src/model/published/published_models.hpp"
#include "src/support/joined.hpp"
#include "vocabpipe/plan.hpp"

namespace vocabpipe {

std::string known_models() {
    return joined(published_models());
}

PlannedModel load_model(const std::string& name_or_path) {
    const NamedModel model = named_model(name_or_path);
    PlannedModel planned{.name = model.name,
                         .config = parse_model_config(model.text, model.path),
                         .source = name_or_path};
    planned.file_vocab_size = planned.config.vocab_size;
    planned.file_mtp_layers = planned.config.mtp_num_layers;
    return planned;
}

}  // namespace vocabpipe
