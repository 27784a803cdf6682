// SPDX-License-Identifier: Apache-2.0
#include "src/support/tokenizer_files.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

template <typename PathOf>
TokenizerFiles existing(const PathOf& path_of) {
    TokenizerFiles files;
    for (const std::string_view name : kTokenizerFiles) {
        std::string path = path_of(name);
        std::error_code ignored;
        if (std::filesystem::is_regular_file(path, ignored)) files.emplace(name, std::move(path));
    }
    return files;
}

}  // namespace

std::string tokenizer_file_beside(const std::string& prefix, std::string_view name) {
    return prefix + "." + std::string(name == "tokenizer.model" ? "model" : name);
}

TokenizerFiles tokenizer_files_in(const std::string& folder) {
    return existing([&](std::string_view name) { return folder + "/" + std::string(name); });
}

TokenizerFiles tokenizer_files_beside(const std::string& prefix) {
    return existing([&](std::string_view name) { return tokenizer_file_beside(prefix, name); });
}

}  // namespace vocabpipe
