// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/merges.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The symbols of short words that were seen before: most words of a text. 2 MiB; a word that comes
/// later takes the place of an older one.
class WordCache {
public:
    static constexpr size_t kMostBytes = 24;
    static constexpr size_t kMostSymbols = 7;  // an entry is one line of the CPU's caches

    struct alignas(64) Entry {
        std::array<uint64_t, kMostBytes / sizeof(uint64_t)> word{};  ///< its bytes, then zeros
        std::array<int32_t, kMostSymbols> ids{};
        std::array<uint8_t, kMostSymbols> bytes{};  ///< of each symbol
        uint8_t count = 0;
        uint8_t word_bytes = 0;  ///< a word is not empty; 0: unused
    };
    static_assert(sizeof(Entry) == 64);

    WordCache() : entries_(kEntries) {}

    /// Null: not known.
    [[nodiscard]] const Entry* find(std::string_view word) const {
        if (word.size() > kMostBytes) return nullptr;
        const auto key = key_of(word);
        const Entry& entry = entries_[slot(key)];
        return entry.word_bytes == word.size() && entry.word == key ? &entry : nullptr;
    }
    void keep(std::string_view word, std::span<const Symbol> symbols) {
        if (word.size() > kMostBytes || symbols.size() > kMostSymbols) return;
        const auto key = key_of(word);
        Entry& entry = entries_[slot(key)];
        entry.word = key;
        entry.word_bytes = static_cast<uint8_t>(word.size());
        entry.count = static_cast<uint8_t>(symbols.size());
        for (size_t i = 0; i < symbols.size(); ++i) {
            entry.ids[i] = symbols[i].id;
            entry.bytes[i] = static_cast<uint8_t>(symbols[i].bytes);
        }
    }

private:
    static constexpr size_t kEntries = size_t{1} << 15;
    using Key = decltype(Entry::word);

    static Key key_of(std::string_view word) {
        Key key{};
        std::memcpy(key.data(), word.data(), word.size());
        return key;
    }
    static size_t slot(const Key& key) {
        uint64_t hash = 0;
        for (const uint64_t part : key) {
            hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
            hash ^= hash >> 32;
        }
        return static_cast<size_t>(hash) % kEntries;
    }

    std::vector<Entry> entries_;
};

}  // namespace vocabpipe
