// SPDX-License-Identifier: Apache-2.0
// The memory in which attention_panels.hpp computes a head. Private to its files, of which
// attention_memory.cpp runs on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/panel_words.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr int64_t kQueries = 64;  ///< queries per block: four vectors
constexpr int64_t kKeys = 64;     ///< keys per block, even
constexpr int kRowsOfTile = 6;    ///< rows of a product that stays in registers

/// Scratch memory of a head; all parts start on cache lines.
struct Memory {
    // Words and columns of q and k are those of Sizes::keys, of v and out those of Sizes::values.
    Word* k_rows;   ///< (length, row_words)
    Word* v_rows;   ///< (length, row_words): backwards
    Word* terms;    ///< (words of length, columns): v forwards, k backwards
    float* dk;      ///< (length, columns)
    float* dv;      ///< (length, columns)
    Word* q;        ///< (words of the head, kQueries), transposed
    Word* dout;     ///< (words of the head, kQueries), transposed
    Word* q_terms;  ///< (words of kQueries, columns)
    Word* dout_terms;
    float* scores;   ///< (kKeys, kQueries): forwards
    Word* ds;        ///< (kKeys, words of kQueries): backwards, the same memory
    Word* pairs;     ///< (words of kKeys, kQueries): p or ds; fp32: scores or ds
    Word* p;         ///< (kKeys, words of kQueries): backwards
    float* tile;     ///< (kRowsOfTile, kQueries) scores: backwards
    float* dp;       ///< (kRowsOfTile, kQueries): backwards
    float* sums;     ///< (kQueries, columns): out, of values, or dq, of keys
    float* maximum;  ///< (kQueries); backwards log_sum_exp
    float* total;    ///< (kQueries); backwards delta
    float* kept;     ///< (kQueries)
    int32_t* first;  ///< (kQueries)
    int64_t bytes;
};

/// A row of a head: of q and k, or of v and out.
template <DType type>
struct HeadRow {
    int64_t size;
    int64_t words = words_of<type>(size);         ///< words per head
    int64_t row_words = round_up(words, kLanes);  ///< words per packed row
    int64_t columns = round_up(size, kLanes);     ///< columns of a row of sums
};

template <DType type>
struct Sizes {
    int64_t length;
    HeadRow<type> keys, values;
    int64_t query_words = words_of<type>(kQueries);

    [[nodiscard]] Memory memory(std::byte* begin) const {
        Memory m{};
        const auto take = [&](int64_t words) {
            std::byte* const taken = begin == nullptr ? nullptr : begin + m.bytes;
            m.bytes += round_up(words * int64_t{sizeof(Word)}, 64);
            return reinterpret_cast<Word*>(taken);
        };
        const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count)); };
        const int64_t wider = larger(keys.columns, values.columns);
        m.k_rows = take(length * keys.row_words);
        m.v_rows = take(length * values.row_words);
        m.terms = take(words_of<type>(length) * wider);
        m.dk = floats(length * keys.columns);
        m.dv = floats(length * values.columns);
        m.q = take(keys.words * kQueries);
        m.dout = take(values.words * kQueries);
        m.q_terms = take(query_words * keys.columns);
        m.dout_terms = take(query_words * values.columns);
        m.scores = floats(kKeys * kQueries);
        m.ds = reinterpret_cast<Word*>(m.scores);
        m.pairs = type == DType::bf16 ? take(words_of<type>(kKeys) * kQueries) : m.ds;
        m.p = take(kKeys * query_words);
        m.tile = floats(kRowsOfTile * kQueries);
        m.dp = floats(kRowsOfTile * kQueries);
        m.sums = floats(kQueries * wider);
        m.maximum = floats(kQueries);
        m.total = floats(kQueries);
        m.kept = floats(kQueries);
        m.first = reinterpret_cast<int32_t*>(take(kQueries));
        return m;
    }
};

}  // namespace

}  // namespace vocabpipe::kernels::host
