// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/open_tokenizer.hpp"

#include "src/support/read_whole_file.hpp"
#include "src/train/tokenizer/bpe/bpe_tokenizer.hpp"
#include "src/train/tokenizer/bpe/special_tokens.hpp"
#include "src/train/tokenizer/bpe/tiktoken_file.hpp"
#include "src/train/tokenizer/bpe/tokenizer_json.hpp"
#include "src/train/tokenizer/sentencepiece_tokenizer.hpp"
#include "vocabpipe/error.hpp"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

std::string read_tokenizer(const std::string& file) {
    return read_whole_file(file, "use a tokenizer.json, a .model of SentencePiece, or a .tiktoken");
}

bool is_json(std::string_view bytes) {
    const size_t first = bytes.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && bytes[first] == '{';
}

/// The file itself, or that of a folder.
std::string file_of(const std::string& path) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return path;
    std::string file = tokenizer_file_in(path);
    if (!file.empty()) return file;
    throw InputFileError(path +
                         ": has no tokenizer.json, no tokenizer.model and not one .tiktoken file; "
                         "name the tokenizer's file");
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
    const std::string file = file_of(path);
    const std::string bytes = read_tokenizer(file);
    if (is_json(bytes)) return std::make_unique<BpeTokenizer>(read_tokenizer_json(bytes, file));
    if (begins_as_tiktoken(bytes)) {
        return std::make_unique<BpeTokenizer>(read_tiktoken_file(bytes, file));
    }
    return std::make_unique<SentencePieceTokenizer>(bytes, file);
}

std::unique_ptr<Tokenizer> open_tokenizer_beside(const std::string& prefix) {
    const TokenizerFiles files = tokenizer_files_beside(prefix);
    for (const char* const name : {"tokenizer.json", "tokenizer.model"}) {
        if (const auto file = files.find(name); file != files.end()) {
            return open_tokenizer(file->second);
        }
    }
    return nullptr;
}

TokenizerFiles files_of_tokenizer(const std::string& path) {
    const std::string file = file_of(path);
    TokenizerFiles files;
    for (const std::string_view name : kTokenizerFiles) {
        if (name == "tokenizer.json" || name == "tokenizer.model") continue;
        std::string beside = beside_tokenizer(file, name);
        if (is_file(beside)) files.emplace(name, std::move(beside));
    }
    files.emplace(is_json(read_tokenizer(file)) ? "tokenizer.json" : "tokenizer.model", file);
    return files;
}

}  // namespace vocabpipe
