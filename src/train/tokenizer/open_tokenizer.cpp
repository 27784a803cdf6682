// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/open_tokenizer.hpp"

#include "src/support/read_whole_file.hpp"
#include "src/train/tokenizer/bpe/bpe_tokenizer.hpp"
#include "src/train/tokenizer/bpe/tiktoken_file.hpp"
#include "src/train/tokenizer/bpe/tokenizer_json.hpp"
#include "src/train/tokenizer/sentencepiece_tokenizer.hpp"
#include "vocabpipe/error.hpp"

#include <filesystem>
#include <string_view>
#include <system_error>

namespace vocabpipe {

namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

}  // namespace

std::string tokenizer_file_in(const std::string& folder) {
    for (const char* const name : {"tokenizer.json", "tokenizer.model"}) {
        std::string path = folder + "/" + name;
        if (is_file(path)) return path;
    }
    std::string found;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string path = at->path().string();
        if (!path.ends_with(".tiktoken") || !is_file(path)) continue;
        if (!found.empty()) return "";
        found = path;
    }
    return found;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        const std::string file = tokenizer_file_in(path);
        if (!file.empty()) return open_tokenizer(file);
        throw InputFileError(path +
                             ": has no tokenizer.json, no tokenizer.model and not one .tiktoken "
                             "file; name the tokenizer's file");
    }
    const std::string bytes =
        read_whole_file(path, "use a tokenizer.json, a .model of SentencePiece, or a .tiktoken");
    const size_t first = bytes.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && bytes[first] == '{') {
        return std::make_unique<BpeTokenizer>(read_tokenizer_json(bytes, path));
    }
    if (begins_as_tiktoken(bytes)) {
        return std::make_unique<BpeTokenizer>(read_tiktoken_file(bytes, path));
    }
    return std::make_unique<SentencePieceTokenizer>(bytes, path);
}

}  // namespace vocabpipe
