// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/tokenizer_beside.hpp"

#include "src/train/data/data_paths.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

TokenizerFiles tokenizer_beside(const DataOptions& data) {
    const std::vector<std::string>& words = data.train_path.empty() ? data.path : data.train_path;
    TokenizerFiles found;
    for (const WeightedPath& one : parse_data_paths("--data-path", words)) {
        std::string prefix = one.path;
        for (const char* const ending : {".bin", ".idx"}) {
            if (prefix.ends_with(ending)) prefix.resize(prefix.size() - 4);
        }
        TokenizerFiles files = tokenizer_files_beside(prefix);
        if (files.empty()) continue;
        if (!found.empty() && found != files) return {};
        found = std::move(files);
    }
    return found;
}

}  // namespace vocabpipe
