// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/tokenizer_beside.hpp"

#include "src/train/data/data_paths.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

std::string prefix_of_data(const std::string& path) {
    const bool file = path.ends_with(".bin") || path.ends_with(".idx");
    return file ? path.substr(0, path.size() - 4) : path;
}

TokenizerFiles tokenizer_beside(const DataOptions& data) {
    const std::vector<std::string>& words = data.train_path.empty() ? data.path : data.train_path;
    TokenizerFiles found;
    for (const WeightedPath& one : parse_data_paths("--data-path", words)) {
        TokenizerFiles files = tokenizer_files_beside(prefix_of_data(one.path));
        if (files.empty()) continue;
        if (!found.empty() && found != files) return {};
        found = std::move(files);
    }
    return found;
}

}  // namespace vocabpipe
