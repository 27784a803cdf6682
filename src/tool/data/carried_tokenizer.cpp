// SPDX-License-Identifier: Apache-2.0
#include "src/tool/data/carried_tokenizer.hpp"

#include "src/support/output_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/same_file.hpp"

#include <filesystem>
#include <system_error>

namespace vocabpipe::tool {

void CarriedTokenizer::take_files(const TokenizerFiles& files) {
    for (const auto& [name, file] : files) {
        const std::string place = tokenizer_file_beside(prefix_, name);
        if (same_file(file, place)) {
            in_place_.insert(place);
        } else {
            contents_[place] = read_whole_file(file, "it is copied beside the tokens");
        }
    }
}

void CarriedTokenizer::take_model(std::string model) {
    contents_[tokenizer_file_beside(prefix_, "tokenizer.model")] = std::move(model);
}

void CarriedTokenizer::check(OutputCheck& check, const std::string& prefix,
                             const TokenizerFiles& files, const OutputKind& kind) {
    for (const std::string_view name : kTokenizerFiles) {
        const std::string place = tokenizer_file_beside(prefix, name);
        const auto file = files.find(name);
        if (file != files.end() && same_file(file->second, place)) continue;
        check.add("--output", place, kind);
    }
}

void CarriedTokenizer::publish() const {
    for (const auto& [path, content] : contents_) {
        OutputFile file(path);
        file.write(content);
        file.sync();
        file.publish();
    }
    for (const std::string_view name : kTokenizerFiles) {
        const std::string path = tokenizer_file_beside(prefix_, name);
        std::error_code ignored;
        if (!contents_.contains(path) && !in_place_.contains(path)) {
            std::filesystem::remove(path, ignored);
        }
    }
}

void CarriedTokenizer::remove() const noexcept {
    for (const auto& [path, content] : contents_) {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
}

}  // namespace vocabpipe::tool
