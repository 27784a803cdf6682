// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/merges.hpp"

#include <algorithm>
#include <bit>

namespace vocabpipe {

namespace {

/// Below this number of symbols, looking at all pairs is faster than a heap.
constexpr size_t kShort = 64;
constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kNoSymbol = UINT32_MAX;

}  // namespace

Merges::Merges(size_t count) : entries_(std::bit_ceil(2 * count + 2)), mask_(entries_.size() - 1) {}

void Merges::add(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    size_t at = slot(key);
    while (entries_[at].key != kEmpty && entries_[at].key != key) at = (at + 1) & mask_;
    entries_[at] = {.key = key, .merge = merge};
}

void Merger::run(const Merges& merges, std::vector<Symbol>& symbols) {
    if (symbols.size() < kShort) {
        run_short(merges, symbols);
    } else {
        run_long(merges, symbols);
    }
}

void Merger::run_short(const Merges& merges, std::vector<Symbol>& symbols) {
    const auto pair_at = [&](size_t i) {
        const Merges::Merge* const found =
            i + 1 < symbols.size() ? merges.find(symbols[i].id, symbols[i + 1].id) : nullptr;
        return found != nullptr ? *found : Merges::Merge{.rank = kNoRank, .id = 0};
    };
    pairs_.clear();
    for (size_t i = 0; i < symbols.size(); ++i) pairs_.push_back(pair_at(i));
    while (symbols.size() > 1) {
        const auto best = std::ranges::min_element(pairs_, {}, &Merges::Merge::rank);
        if (best->rank == kNoRank) return;
        const auto i = static_cast<size_t>(best - pairs_.begin());
        symbols[i] = {.id = best->id, .bytes = symbols[i].bytes + symbols[i + 1].bytes};
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        pairs_.erase(best);
        pairs_[i] = pair_at(i);
        if (i > 0) pairs_[i - 1] = pair_at(i - 1);
    }
}

void Merger::run_long(const Merges& merges, std::vector<Symbol>& symbols) {
    const auto count = static_cast<uint32_t>(symbols.size());
    const auto later = [](const Candidate& a, const Candidate& b) {
        return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    };
    const auto consider = [&](uint32_t left, uint32_t right, bool as_heap) {
        const Merges::Merge* const found = merges.find(symbols[left].id, symbols[right].id);
        if (found == nullptr) return;
        candidates_.push_back({.rank = found->rank, .at = left, .id = found->id});
        if (as_heap) std::ranges::push_heap(candidates_, later);
    };
    candidates_.clear();
    links_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
        links_[i] = {.previous = i == 0 ? kNoSymbol : i - 1,
                     .next = i + 1 == count ? kNoSymbol : i + 1};
        if (i + 1 < count) consider(i, i + 1, /*as_heap=*/false);
    }
    std::ranges::make_heap(candidates_, later);
    while (!candidates_.empty()) {
        std::ranges::pop_heap(candidates_, later);
        const Candidate best = candidates_.back();
        candidates_.pop_back();
        const uint32_t left = best.at;
        const uint32_t right = links_[left].next;
        if (symbols[left].bytes == 0 || right == kNoSymbol) continue;
        const Merges::Merge* const now = merges.find(symbols[left].id, symbols[right].id);
        if (now == nullptr || now->id != best.id) continue;  // one of both has been merged since
        symbols[left] = {.id = best.id, .bytes = symbols[left].bytes + symbols[right].bytes};
        symbols[right].bytes = 0;
        const uint32_t after = links_[right].next;
        links_[left].next = after;
        if (after != kNoSymbol) links_[after].previous = left;
        if (links_[left].previous != kNoSymbol) {
            consider(links_[left].previous, left, /*as_heap=*/true);
        }
        if (after != kNoSymbol) consider(left, after, /*as_heap=*/true);
    }
    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.bytes == 0; });
}

}  // namespace vocabpipe
