// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/added_tokens.hpp"

#include "src/train/tokenizer/bpe/character_kinds.hpp"
#include "src/train/tokenizer/bpe/utf8.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// The beginning of the last character before `end`.
size_t character_before(std::string_view text, size_t end) {
    size_t at = end - 1;
    while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
}

/// Whether no letter or digit touches the part of the text.
bool stands_alone(std::string_view text, size_t begin, size_t end) {
    const auto in_word = [&](size_t at) { return is_word_character(character_code(text, at)); };
    return (begin == 0 || !in_word(character_before(text, begin))) &&
           (end == text.size() || !in_word(end));
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<std::pair<std::string, AddedToken>>& texts) : nodes_(1) {
    for (const auto& [text, token] : texts) {
        if (text.empty()) continue;
        begins_[static_cast<unsigned char>(text[0])] = true;
        size_t at = 0;
        for (const char c : text) {
            const auto found = std::ranges::lower_bound(nodes_[at].children, c, {},
                                                        &std::pair<char, uint32_t>::first);
            if (found != nodes_[at].children.end() && found->first == c) {
                at = found->second;
                continue;
            }
            const auto next = static_cast<uint32_t>(nodes_.size());
            nodes_[at].children.insert(found, {c, next});
            nodes_.emplace_back();
            at = next;
        }
        // The first one of equal texts counts.
        if (nodes_[at].token >= 0) continue;
        nodes_[at].token = static_cast<int32_t>(tokens_.size());
        tokens_.push_back(token);
    }
}

const AddedTokens::Node* AddedTokens::child(const Node& node, char byte) const {
    const auto found =
        std::ranges::lower_bound(node.children, byte, {}, &std::pair<char, uint32_t>::first);
    if (found == node.children.end() || found->first != byte) return nullptr;
    return &nodes_[found->second];
}

bool AddedTokens::next(std::string_view text, size_t& from, size_t done, Found& found) const {
    if (tokens_.empty()) return false;
    for (; from < text.size(); ++from) {
        if (!begins_[static_cast<unsigned char>(text[from])]) continue;
        int32_t longest = -1;
        size_t end = 0;
        const Node* node = nodes_.data();
        for (size_t at = from; at < text.size(); ++at) {
            node = child(*node, text[at]);
            if (node == nullptr) break;
            if (node->token < 0) continue;
            longest = node->token;
            end = at + 1;
        }
        if (longest < 0) continue;
        const AddedToken& token = tokens_[static_cast<size_t>(longest)];
        found = {.begin = from, .end = end, .id = token.id};
        if (token.single_word && !stands_alone(text, from, end)) {
            from = end - 1;
            continue;
        }
        from = end;
        if (token.left_strip) {
            while (found.begin > done) {
                const size_t before = character_before(text, found.begin);
                if (before < done || !is_white_space(character_code(text, before))) break;
                found.begin = before;
            }
        }
        if (token.right_strip) {
            while (found.end < text.size() && is_white_space(character_code(text, found.end))) {
                found.end += valid_character_bytes(text[found.end]);
            }
        }
        return true;
    }
    return false;
}

}  // namespace vocabpipe
