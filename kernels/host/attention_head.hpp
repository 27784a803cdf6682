// SPDX-License-Identifier: Apache-2.0
// The base of both directions in attention_panels.hpp for one head: it packs operands and says
// which keys a block of queries sees. Private to attention_panels.cpp and
// attention_panels_backward.cpp, and compiled for AVX-512 like them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/attention_memory.hpp"
#include "kernels/host/attention_panels.hpp"
#include "kernels/host/attention_tiles.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Initial maximum of a query that has seen no key: finite, and below every score.
constexpr float kLowest = -3e38F;

int64_t vectors_of(int64_t columns) {
    return (columns + kLanes - 1) / kLanes;
}

/// Calls function(first column, mask) for every 16 numbers of a row; the last vector may be
/// partial.
template <typename Function>
void for_each_vector(int64_t columns, Function&& function) {
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) function(j, first_lanes(kLanes));
    if (j < columns) function(j, first_lanes(columns - j));
}

template <DType type>
class Head {
protected:
    using Row = HeadRow<type>;
    static constexpr int64_t kSize = type == DType::bf16 ? 2 : 4;
    static constexpr int64_t kAhead = 16;  ///< rows prefetched ahead of packing

    Head(const AttentionHead& head, std::byte* memory)
        : head_(head),
          sizes_{head.length, {head.size}, {head.value_size}},
          at_(sizes_.memory(memory)) {}

    static const std::byte* row(const void* data, int64_t index, int64_t stride) {
        return static_cast<const std::byte*>(data) + index * stride * kSize;
    }
    static std::byte* row(void* data, int64_t index, int64_t stride) {
        return static_cast<std::byte*>(data) + index * stride * kSize;
    }

    /// Prefetches a row, if there are so many: rows are so far apart that the CPU does not predict
    /// the next one.
    void prefetch(const Row& of, const void* from, int64_t stride, int64_t index,
                  int64_t rows) const {
        if (index >= rows) return;
        const std::byte* const begin = row(from, index, stride);
        const int64_t bytes = of.size * kSize;
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at, 0, 3);
        __builtin_prefetch(begin + bytes - 1, 0, 3);
    }

    /// Rows of keys or values side by side; words beyond a row's are zeros.
    void pack_rows(const Row& of, const void* from, Word* to) const {
        constexpr int64_t kTermsOfVector = kLanes * kWordTerms<type>;
        for (int64_t i = 0; i < head_.length; ++i, to += of.row_words) {
            prefetch(of, from, head_.kv_stride, i + kAhead, head_.length);
            const std::byte* const source = row(from, i, head_.kv_stride);
            for (int64_t j = 0; j < of.row_words; j += kLanes) {
                const int64_t left = of.size - j * kWordTerms<type>;
                const std::byte* const at = source + j * int64_t{sizeof(Word)};
                __m512i words;
                if (left >= kTermsOfVector) {
                    words = _mm512_loadu_si512(at);
                } else if constexpr (type == DType::bf16) {
                    words = _mm512_maskz_loadu_epi16((1U << left) - 1, at);
                } else {
                    words = _mm512_maskz_loadu_epi32(first_lanes(left), at);
                }
                _mm512_store_si512(to + j, words);
            }
        }
    }

    /// Packs rows as terms of a product.
    void pack_terms(const Row& of, const void* from, int64_t stride, int64_t rows, Word* to) const {
        pack_by_rows<type>({static_cast<const std::byte*>(from), stride * kSize}, rows, of.size, to,
                           of.columns, kLanes);
    }

    /// Packs rows as columns, in whole vectors.
    void pack_lanes(const Row& of, const void* from, int64_t stride, int64_t rows, Word* to) const {
        pack_by_columns<type>({static_cast<const std::byte*>(from), stride * kSize}, of.size, rows,
                              to, kQueries);
    }

    /// Sets the block's queries.
    void set_block(int64_t begin) {
        begin_ = begin;
        // A query that is not causal sees what the last token would.
        token_ = head_.causal ? head_.length - head_.queries + begin : head_.length - 1;
        rows_ = smaller(kQueries, head_.queries - begin);
        first_key_ = token_;
        last_first_ = 0;
        for (int64_t i = 0; i < kQueries; ++i) {
            int64_t first = head_.window > 0 ? larger(token_ + i - head_.window + 1, 0) : 0;
            if (head_.first_visible != nullptr && i < rows_) {
                first = larger(first, head_.first_visible[begin + i]);
            }
            at_.first[i] = static_cast<int32_t>(first);
            if (i >= rows_) continue;
            first_key_ = smaller(first_key_, first);
            last_first_ = larger(last_first_, first);
        }
        first_key_ -= first_key_ % kWordTerms<DType::bf16>;
        pack_lanes(sizes_.keys, row(head_.q, begin, head_.q_stride), head_.q_stride, rows_, at_.q);
    }
    [[nodiscard]] int64_t end_key() const { return smaller(token_ + rows_, head_.length); }

    /// Whether all queries of the block see all of these keys.
    [[nodiscard]] bool all_see(int64_t key, int64_t count) const {
        return key >= last_first_ && key + count - 1 <= token_;
    }
    /// The queries of a vector that see a key.
    [[nodiscard]] __mmask16 who_see(int64_t key, int64_t vector) const {
        const auto number = _mm512_set1_epi32(static_cast<int>(key));
        const auto first = _mm512_load_si512(at_.first + vector * kLanes);
        // Query i is token token_ + i.
        const int64_t hidden = key - token_ - vector * kLanes;
        const auto causal = hidden <= 0        ? 0xffffU
                            : hidden >= kLanes ? 0U
                                               : (0xffffU << hidden) & 0xffffU;
        return _mm512_mask_cmple_epi32_mask(static_cast<__mmask16>(causal), first, number);
    }

    struct Range {
        int64_t begin, end;
        [[nodiscard]] bool empty() const { return begin >= end; }
    };
    /// Vectors of queries of which some may see some of these keys.
    [[nodiscard]] Range vectors_that_see(int64_t key, int64_t count) const {
        Range range{larger(key - token_, 0) / kLanes, vectors_of(rows_)};
        if (head_.window > 0) {
            const int64_t last = key + count + head_.window - 1;  // one past the last query
            range.end = smaller(range.end, vectors_of(larger(last - token_, 0)));
        }
        return range;
    }
    /// Words of a block of `count` keys from `key` on that some of `rows` queries may see.
    [[nodiscard]] Range words_seen(int64_t query, int64_t rows, int64_t key, int64_t count) const {
        const int64_t last = token_ + query + rows;  // one past the last key
        Range range{0, words_of<type>(larger(smaller(count, last - key), 0))};
        if (head_.window > 0) {
            const int64_t first = token_ + query - head_.window + 1;
            range.begin = larger(first - key, 0) / kWordTerms<type>;
        }
        return range;
    }

    /// Multiplies `rows` rows from `key` on, of packed keys or values, by the block's queries;
    /// writes only the vectors in `range`.
    void multiply_lanes(const Row& of, const Word* packed, int64_t key, int64_t rows,
                        const Word* queries, Range range, float* to) const {
        if (range.empty()) return;
        const int64_t column = range.begin * kLanes;
        sum_rows<type>({packed + key * of.row_words, of.row_words, 1}, {queries + column, kQueries},
                       of.words, rows, range.end - range.begin, {to + column, kQueries, nullptr});
    }

    /// sums = kept sums + (pairs of the block's keys) (terms)
    void add_to_queries(const Row& of, int64_t key, int64_t count, const Word* pairs,
                        const float* kept) const {
        const Word* const terms = at_.terms + key / kWordTerms<type> * of.columns;
        for (int64_t i = 0; i < rows_; i += kRowsOfTile) {
            const int64_t rows = smaller(kRowsOfTile, rows_ - i);
            const Range words = words_seen(i, rows, key, count);
            // The first block of keys initialises the sums, with 0 if it adds nothing.
            if (words.empty() && kept != nullptr) continue;
            const int64_t begin = words.empty() ? words.end : words.begin;
            sum_rows<type>(
                {pairs + begin * kQueries + i, 1, kQueries},
                {terms + begin * of.columns, of.columns}, words.end - begin, rows,
                of.columns / kLanes,
                {at_.sums + i * of.columns, of.columns, kept == nullptr ? nullptr : kept + i});
        }
    }

    const AttentionHead& head_;
    const Sizes<type> sizes_;
    const Memory at_;
    int64_t begin_ = 0, rows_ = 0;  ///< the block of queries
    int64_t token_ = 0;             ///< of the block's first query: the last key that it sees
    int64_t first_key_ = 0, last_first_ = 0;  ///< first key that any query sees, that all see
};

/// Words of the pairs of two rows.
void store_pairs(Word* to, __m512i row, __m512i next) {
    const Interleaved words = interleave(row, next);
    _mm512_store_si512(to, words.first);
    _mm512_store_si512(to + kLanes, words.second);
}

}  // namespace
}  // namespace vocabpipe::kernels::host
