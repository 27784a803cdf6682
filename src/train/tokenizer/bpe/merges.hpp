// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A part of a word that has an id.
struct Symbol {
    int32_t id;
    uint32_t bytes;
};

/// Which pairs of ids become one, and which of them first.
class Merges {
public:
    struct Merge {
        uint32_t rank;  ///< the lowest one in a word is done first
        int32_t id;
    };

    /// Room for `count` pairs.
    explicit Merges(size_t count = 0);
    /// The last one added for a pair is the one that counts.
    void add(int32_t left, int32_t right, Merge merge);
    /// Null: the pair stays apart.
    [[nodiscard]] const Merge* find(int32_t left, int32_t right) const {
        const uint64_t key = key_of(left, right);
        for (size_t at = slot(key);; at = (at + 1) & mask_) {
            if (entries_[at].key == key) return &entries_[at].merge;
            if (entries_[at].key == kEmpty) return nullptr;
        }
    }
    /// Calls `use(merge)` for each.
    template <typename Use>
    void for_each(const Use& use) const {
        for (const Entry& entry : entries_) {
            if (entry.key != kEmpty) use(entry.merge);
        }
    }

private:
    static constexpr uint64_t kEmpty = UINT64_MAX;  // ids are not negative
    struct Entry {
        uint64_t key = kEmpty;
        Merge merge{};
    };
    static uint64_t key_of(int32_t left, int32_t right) {
        return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    }
    [[nodiscard]] size_t slot(uint64_t key) const {
        return static_cast<size_t>((key * 0x9E3779B97F4A7C15U) >> 32) & mask_;
    }

    std::vector<Entry> entries_;  ///< a power of two, at most half of them used
    size_t mask_ = 0;
};

/// Merges the symbols of one word: again and again the pair with the lowest rank, of equal ones the
/// leftmost. O(n log n) for n symbols.
class Merger {
public:
    void run(const Merges& merges, std::vector<Symbol>& symbols);

private:
    void run_short(const Merges& merges, std::vector<Symbol>& symbols);
    void run_long(const Merges& merges, std::vector<Symbol>& symbols);

    struct Candidate {
        uint32_t rank;
        uint32_t at;  ///< of the left symbol
        int32_t id;
    };
    struct Link {
        uint32_t previous, next;
    };
    std::vector<Merges::Merge> pairs_;   ///< of run_short(): each symbol with the next one
    std::vector<Candidate> candidates_;  ///< of run_long(): a heap
    std::vector<Link> links_;            ///< of run_long()
};

}  // namespace vocabpipe
