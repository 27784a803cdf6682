// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/tokenizer_json.hpp"

#include "src/support/strict_json.hpp"
#include "src/train/tokenizer/bpe/byte_alphabet.hpp"
#include "src/train/tokenizer/bpe/json_steps.hpp"
#include "src/train/tokenizer/bpe/special_tokens.hpp"

#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

// A hundred times what published models have; keeps an id of a broken file from filling the memory.
constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr size_t kMostMerges = size_t{1} << 26;

/// Refuses a value that would change how texts are encoded.
void must_be_unset(const StrictJson& json, const char* key) {
    if (!json.has(key) || json.at(key).is_null()) return;
    json.at(key).fail("is not supported; set it to null");
}

void set_text(BpeDescription& tokenizer, int64_t id, std::string text) {
    const auto i = static_cast<size_t>(id);
    if (i >= tokenizer.texts.size()) tokenizer.texts.resize(i + 1);
    tokenizer.texts[i] = std::move(text);
}

TokenIds ids_of(const std::vector<std::string>& texts) {
    TokenIds ids;
    ids.reserve(texts.size());
    for (size_t id = 0; id < texts.size(); ++id) {
        if (!texts[id].empty()) (void)ids.add(texts[id], static_cast<int32_t>(id));
    }
    return ids;
}

/// Reads the vocabulary, and returns the ids of its tokens as the file writes them.
TokenIds read_vocabulary(const StrictJson& vocab, BpeDescription& tokenizer) {
    const auto members = vocab.members();
    TokenIds ids;
    ids.reserve(members.size());
    for (const auto& [token, value] : members) {
        const int64_t id = value.integer(0, kMostIds - 1);
        const auto i = static_cast<size_t>(id);
        if (i < tokenizer.texts.size() && !tokenizer.texts[i].empty()) {
            value.fail(std::to_string(id) + " is also the id of \"" + tokenizer.texts[i] +
                       "\"; every token has one of its own");
        }
        (void)ids.add(token, static_cast<int32_t>(id));
        set_text(tokenizer, id, token);
    }
    return ids;
}

/// "a b", or ["a", "b"].
std::pair<std::string, std::string> read_pair(const StrictJson& merge) {
    if (merge.is_array()) {
        const auto pair = merge.items(2);
        if (pair.size() != 2) merge.fail("must have two tokens");
        return {pair[0].text(), pair[1].text()};
    }
    const std::string text = merge.text();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        merge.fail("must have two tokens and one space between them");
    }
    return {text.substr(0, space), text.substr(space + 1)};
}

Merges read_merges(const StrictJson& json, const TokenIds& ids) {
    const auto list = json.items(kMostMerges);
    Merges merges(list.size());
    const auto id_of = [&](const StrictJson& merge, const std::string& token) {
        const int32_t id = ids.find(token);
        if (id < 0) merge.fail("\"" + token + "\" is not in the vocabulary");
        return id;
    };
    uint32_t rank = 0;
    for (const StrictJson& merge : list) {
        const auto [left, right] = read_pair(merge);
        const int32_t left_id = id_of(merge, left);
        const int32_t right_id = id_of(merge, right);
        merges.add(left_id, right_id, {.rank = rank++, .id = id_of(merge, left + right)});
    }
    return merges;
}

/// First of all: files of other models also have other parts that are not supported.
void check_model_type(const StrictJson& model) {
    if (model.has("type") && model.at("type").text() != "BPE") {
        model.at("type").fail("\"" + model.at("type").text() +
                              "\" is not supported; only BPE is (for others: SentencePiece's own "
                              ".model file)");
    }
}

void read_model(const StrictJson& model, BpeDescription& tokenizer) {
    model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    must_be_unset(model, "dropout");
    for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (model.has(affix) && !model.at(affix).is_null() && !model.at(affix).text().empty()) {
            must_be_unset(model, affix);
        }
    }
    TokenIds ids = read_vocabulary(model.at("vocab"), tokenizer);
    WordModel::Options& words = tokenizer.words;
    words.merges = read_merges(model.at("merges"), ids);
    words.fuse_unknown = flag_or(model, "fuse_unk", false);
    words.byte_fallback = flag_or(model, "byte_fallback", false);
    words.whole_words = flag_or(model, "ignore_merges", false);
    if (model.has("unk_token") && !model.at("unk_token").is_null()) {
        words.unknown = ids.find(model.at("unk_token").text());
        if (words.unknown < 0) model.at("unk_token").fail("is not in the vocabulary");
    }
    if (!words.bytes) {
        words.tokens = std::move(ids);
        return;
    }
    words.tokens.reserve(ids.size());
    ids.for_each([&](const std::string& token, int32_t id) {
        // Others are special tokens, which no word can become.
        if (const auto bytes = bytes_of_alphabet(token)) (void)words.tokens.add(*bytes, id);
    });
}

/// Adds the tokens to the vocabulary, and to `known`, the ids of its tokens.
void read_added_tokens(const StrictJson& list, BpeDescription& tokenizer, TokenIds& known) {
    std::unordered_set<std::string> seen;
    for (const StrictJson& json : list.items(static_cast<size_t>(kMostIds))) {
        json.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
        const int64_t id = json.at("id").integer(0, kMostIds - 1);
        const bool special = flag_or(json, "special", false);
        AddedToken token{.content = json.at("content").text(),
                         .id = static_cast<int32_t>(id),
                         .special = special,
                         .single_word = flag_or(json, "single_word", false),
                         .left_strip = flag_or(json, "lstrip", false),
                         .right_strip = flag_or(json, "rstrip", false),
                         .normalized = flag_or(json, "normalized", !special)};
        if (token.content.empty()) json.at("content").fail("is empty");
        if (!seen.insert(token.content).second) json.at("content").fail("appears twice; keep one");
        const int32_t in_vocabulary = known.find(token.content);
        const auto i = static_cast<size_t>(id);
        const bool taken = i < tokenizer.texts.size() && !tokenizer.texts[i].empty();
        if (in_vocabulary >= 0 ? in_vocabulary != id : taken) {
            json.at("id").fail(std::to_string(id) + " is " +
                               (in_vocabulary >= 0 ? "not its id in the vocabulary, " +
                                                         std::to_string(in_vocabulary)
                                                   : "the id of \"" + tokenizer.texts[i] + "\"") +
                               "; save the tokenizer anew");
        }
        set_text(tokenizer, id, token.content);
        if (in_vocabulary < 0) (void)known.add(token.content, static_cast<int32_t>(id));
        tokenizer.added.push_back(std::move(token));
    }
}

}  // namespace

BpeDescription read_tokenizer_json(std::string_view text, const std::string& path) {
    const StrictJson json = StrictJson::parse(text, path);
    json.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
               "post_processor", "decoder", "model"});
    check_model_type(json.at("model"));
    must_be_unset(json, "truncation");
    must_be_unset(json, "padding");
    BpeDescription tokenizer;
    tokenizer.name = "huggingface";
    if (json.has("normalizer")) read_normalizer(json.at("normalizer"), tokenizer.normalizer);
    if (json.has("pre_tokenizer")) {
        tokenizer.words.bytes =
            read_pre_tokenizer(json.at("pre_tokenizer"), tokenizer.pre_tokenizer);
    }
    tokenizer.decoder = read_decoder(json.at("decoder"));
    read_model(json.at("model"), tokenizer);
    TokenIds ids = ids_of(tokenizer.texts);
    if (json.has("added_tokens")) read_added_tokens(json.at("added_tokens"), tokenizer, ids);

    std::optional<std::string> begin;
    if (json.has("post_processor")) begin = read_begin(json.at("post_processor"));
    const DocumentTokens tokens =
        find_document_tokens(path, [&](std::string_view token) { return ids.find(token) >= 0; });
    tokenizer.end_of_document = ids.find(tokens.end);
    if (!begin) begin = tokens.begin;
    if (begin) tokenizer.begin_of_document = ids.find(*begin);
    return tokenizer;
}

}  // namespace vocabpipe
