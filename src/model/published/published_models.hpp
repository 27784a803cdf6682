// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// Models that `--model` knows by name, in planning and in training: the files of this folder, with
// the content of the published config.json.

namespace vocabpipe {

[[nodiscard]] std::vector<std::string> published_models();

/// The model that --model names.
struct NamedModel {
    std::string name;  ///< of the published model, the file or the folder, without ".json"
    std::string path;  ///< of the config.json, for messages; a published model's name
    std::string text;  ///< of the config.json
};
/// A published model, a config.json, or a folder that has one. Throws like named_text().
[[nodiscard]] NamedModel named_model(const std::string& name_or_path);

}  // namespace vocabpipe
