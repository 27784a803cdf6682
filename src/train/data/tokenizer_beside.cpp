// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/tokenizer_beside.hpp"

#include "src/train/data/data_paths.hpp"

#include <filesystem>
#include <system_error>
#include <vector>

namespace vocabpipe {

std::string tokenizer_beside(const DataOptions& data) {
    const std::vector<std::string>& words = data.train_path.empty() ? data.path : data.train_path;
    std::string found;
    for (const WeightedPath& one : parse_data_paths("--data-path", words)) {
        std::string model = one.path;
        for (const char* const ending : {".bin", ".idx"}) {
            if (model.ends_with(ending)) model.resize(model.size() - 4);
        }
        model += ".model";
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(model, ignored)) continue;
        if (!found.empty() && found != model) return "";
        found = model;
    }
    return found;
}

}  // namespace vocabpipe
