// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What a field describes.
enum class FieldScope : uint8_t {
    model,  ///< all layers alike
    layer,  ///< each layer
    run,    ///< a run with the model: another one may have another value
    text,   ///< texts: programs that generate read it, and nothing is computed with it
};
[[nodiscard]] std::string_view to_string(FieldScope scope);

/// A member of ModelConfig. Flags, the comparison of models, keys of config.json and the table of
/// docs/models.md are made from these rows, so that a new member is described once.
struct ModelField {
    std::string_view member;  ///< "moe.top_k"
    std::string key = {};     ///< in config.json, as the model's family calls it; empty: none
    std::string called = {};  ///< in messages; empty: the key, or the member without one
    FieldScope scope = FieldScope::model;
    /// Its flag. Without one it has no names, only a `value`, which points into the ModelConfig; or
    /// not even that, where no Flag can hold it: then `text` has the value.
    Flag flag = {};
    /// A family sets the member after the flags were read; a given flag then sets it once more.
    bool by_family = false;
    /// The value in messages where it is not the member itself; "" where it has no meaning.
    std::function<std::string()> text = {};
    /// What makes a run's value that of a file; empty: the flag with the file's value, or --model.
    std::function<std::string()> remedy = {};

    /// Whether two models that differ in it compute something else.
    [[nodiscard]] bool is_architecture() const {
        return scope == FieldScope::model || scope == FieldScope::layer;
    }
    [[nodiscard]] bool is_of_run() const { return scope == FieldScope::run; }
    [[nodiscard]] std::string name() const;
    /// As config.json has it; "" where it has no meaning.
    [[nodiscard]] std::string value_text() const;
};

/// All members, those with a flag in the order of the flags. The rows point into the model, which
/// must outlive them.
[[nodiscard]] std::vector<ModelField> model_fields(ModelConfig& model);

}  // namespace vocabpipe
