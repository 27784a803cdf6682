// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/word_model.hpp"

#include "src/train/tokenizer/bpe/utf8.hpp"

#include <algorithm>
#include <cstdio>
#include <unordered_set>
#include <utility>

namespace vocabpipe {

WordModel::WordModel(Options options) : options_(std::move(options)) {
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
        const char c = static_cast<char>(byte);
        const bool one = options_.bytes || byte < 0x80;
        byte_ids_.at(byte) = one ? options_.tokens.find({&c, 1}) : -1;
        std::array<char, 8> name{};
        std::snprintf(name.data(), name.size(), "<0x%02zX>", byte);
        fallback_.at(byte) = options_.byte_fallback ? options_.tokens.find(name.data()) : -1;
    }
}

void WordModel::encode(std::string_view word, Merger& merger, std::vector<Symbol>& symbols) const {
    symbols.clear();
    if (options_.whole_words) {
        if (const int32_t id = options_.tokens.find(word); id >= 0) {
            symbols.push_back({.id = id, .bytes = static_cast<uint32_t>(word.size())});
            return;
        }
    }
    Symbol unknown{.id = options_.unknown, .bytes = 0};  // not in `symbols` yet
    size_t bytes = 1;
    for (size_t at = 0; at < word.size(); at += bytes) {
        if (!options_.bytes) bytes = valid_character_bytes(word[at]);
        add_character(word.substr(at, bytes), symbols, unknown);
    }
    if (unknown.bytes > 0) symbols.push_back(unknown);
    merger.run(options_.merges, symbols);
}

void WordModel::add_character(std::string_view character, std::vector<Symbol>& symbols,
                              Symbol& unknown) const {
    const auto byte_of = [](char c) { return static_cast<unsigned char>(c); };
    const int32_t id = character.size() == 1 ? byte_ids_.at(byte_of(character[0]))
                                             : options_.tokens.find(character);
    if (id >= 0) {
        if (unknown.bytes > 0) symbols.push_back(unknown);
        unknown.bytes = 0;
        symbols.push_back({.id = id, .bytes = static_cast<uint32_t>(character.size())});
        return;
    }
    const auto has_fallback = [&](char c) { return fallback_.at(byte_of(c)) >= 0; };
    if (options_.byte_fallback && std::ranges::all_of(character, has_fallback)) {
        for (const char c : character) {
            symbols.push_back({.id = fallback_.at(byte_of(c)), .bytes = 1});
        }
        return;
    }
    if (options_.unknown < 0) return;
    if (unknown.bytes > 0 && !options_.fuse_unknown) {
        symbols.push_back(unknown);
        unknown.bytes = 0;
    }
    unknown.bytes += static_cast<uint32_t>(character.size());
}

bool WordModel::can_cut_before(std::string_view mark) const {
    if (options_.bytes || options_.whole_words || options_.tokens.find(mark) < 0) return false;
    std::unordered_set<int32_t> merged;
    options_.merges.for_each([&](const Merges::Merge& merge) { merged.insert(merge.id); });
    bool can = true;
    options_.tokens.for_each([&](const std::string& token, int32_t id) {
        if (!merged.contains(id)) return;
        for (size_t at = token.find(mark, 1); at != std::string::npos;
             at = token.find(mark, at + 1)) {
            const bool follows_mark =
                at >= mark.size() &&
                std::string_view(token).substr(at - mark.size(), mark.size()) == mark;
            can = can && follows_mark;
        }
    });
    return can;
}

}  // namespace vocabpipe
