// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/special_tokens.hpp"

#include "src/support/read_whole_file.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <array>
#include <filesystem>
#include <system_error>

namespace vocabpipe {

namespace {

/// What published models without instructions end documents with.
constexpr std::array<std::string_view, 5> kEnds{
    "<|endoftext|>", "<|end_of_text|>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "</s>", "<eos>"};

std::optional<StrictJson> json_beside(const std::string& path, std::string_view name) {
    const std::string file = beside_tokenizer(path, name);
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) return {};
    return StrictJson::parse(read_whole_file(file, "it belongs to the tokenizer"), file);
}

/// A token is its text, or an object that has it as content.
std::optional<std::string> token_at(const StrictJson& json, std::string_view key,
                                    const std::function<bool(std::string_view)>& has_token) {
    if (!json.has(key) || json.at(key).is_null()) return {};
    const StrictJson value = json.at(key);
    std::string token = value.has("content") ? value.at("content").text() : value.text();
    if (!has_token(token)) {
        value.fail("\"" + token + "\" is no token of the tokenizer; name one that is");
    }
    return token;
}

}  // namespace

std::string beside_tokenizer(const std::string& path, std::string_view name) {
    constexpr std::string_view kName = "tokenizer.json";
    if (path.ends_with(kName)) {
        return path.substr(0, path.size() - kName.size()) + std::string(name);
    }
    return (std::filesystem::path(path).parent_path() / name).string();
}

DocumentTokens find_document_tokens(const std::string& path,
                                    const std::function<bool(std::string_view)>& has_token) {
    DocumentTokens result;
    const auto config = json_beside(path, "tokenizer_config.json");
    const auto map = json_beside(path, "special_tokens_map.json");
    const auto named = [&](std::string_view key) -> std::optional<std::string> {
        for (const auto* const file : {&config, &map}) {
            if (!file->has_value()) continue;
            if (auto token = token_at(**file, key, has_token)) return token;
        }
        return {};
    };
    const bool adds_begin = config && config->has("add_bos_token") &&
                            !config->at("add_bos_token").is_null() &&
                            config->at("add_bos_token").boolean();
    if (adds_begin) result.begin = named("bos_token");
    if (const auto end = named("eos_token")) {
        result.end = *end;
        return result;
    }
    for (const std::string_view end : kEnds) {
        if (!has_token(end)) continue;
        result.end = end;
        return result;
    }
    throw InputFileError(path + ": nothing says which token ends a document; name it in " +
                         beside_tokenizer(path, "tokenizer_config.json") +
                         ", such as {\"eos_token\": \"" + std::string(kEnds[0]) + "\"}");
}

}  // namespace vocabpipe
