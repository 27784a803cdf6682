// SPDX-License-Identifier: Apache-2.0
// The loops of panel_product(), for any vectors: private to panel_product_*.cpp, each of which is
// compiled for its own instructions and gets its own copy. Nothing of the standard library may be
// instantiated here, because the linker might use that instance elsewhere, too.
//
// V, the vectors, has
//   kLanes: words of a vector; kTileRows x kTileVectors: sums of a tile, in registers
//   kPackedRows: rows of a transposed a that are packed together, a multiple of kTileRows
//   Floats, Words: vectors of floats and of words, which may be added; Mask: some lanes
//   first_lanes(count), load_floats<type>(), store_floats<type>(), add_words<type>(), every_lane()
//   pack_rows<type, width>(), pack_columns<type>(): panel_packing.hpp
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/panel_code.hpp"
#include "kernels/host/panel_words.hpp"

namespace vocabpipe::kernels::host {
namespace {

constexpr int64_t kPanel = 48;  ///< columns of a panel of b, cut into strips as wide as a tile

/// Terms per block: a panel of b, 72 KB in bf16 and 144 in fp32, stays in a second-level cache.
constexpr int64_t kBlockTerms = 768;
/// Words that are multiplied between two prefetches.
constexpr int64_t kChunkWords = 64;
constexpr int64_t kLine = 64;
/// Words per group of terms: all columns are computed for one group before the next, so that 256
/// rows of a, 3 MB, stay in a third-level cache between panels of b.
constexpr int64_t kGroupWords = 3072;
/// Rows per block, for each of which b is packed again. A block of a transposed a has more where
/// their packed words take less than 512 KB.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kPackedWords = int64_t{1} << 17;

template <typename Floats>
Floats load_whole(const float* from) {
    Floats values;
    __builtin_memcpy(&values, from, sizeof(values));
    return values;
}
template <typename Floats>
void store_whole(float* to, Floats values) {
    __builtin_memcpy(to, &values, sizeof(values));
}

/// Rows of op(a) in words: word s of row r is at data + r row + s step (bytes).
struct Left {
    const std::byte* data = nullptr;
    int64_t row = 0, step = 0;
};

/// Where a tile's sums go.
template <typename V>
struct Target {
    std::byte* c = nullptr;
    int64_t stride = 0;   ///< bytes
    bool add = false;     ///< to the old values of c
    bool narrow = false;  ///< c is bf16
    const float* bias = nullptr;
    typename V::Mask last{};  ///< columns of the last vector
    int rows_per_chunk = 0;   ///< rows of c prefetched per chunk
};

/// The part of b that is packed for a panel and a block of terms.
struct Source {
    Stored from;
    int64_t terms = 0, columns = 0;
    bool transposed = false;  ///< terms are along the stored rows
};

/// Prefetches a source's cache lines while the tiles before it are computed, a few at a time: a
/// core drops most prefetches that come at once.
class Prefetch {
public:
    /// Prefetches nothing.
    Prefetch() = default;
    /// `size`: bytes of a term.
    Prefetch(const Source& source, int64_t size)
        : row_(source.from.data),
          stride_(source.from.stride),
          rows_(source.transposed ? source.columns : source.terms),
          last_((source.transposed ? source.terms : source.columns) * size - 1),
          long_rows_(source.transposed) {}

    /// Sets how many lines a call of next() prefetches, so that `calls` calls prefetch all.
    void spread(int64_t calls) {
        // A row that begins within a line touches one more.
        const int64_t lines = rows_ * (last_ / kLine + 2);
        lines_ = (lines + calls - 1) / calls;
        // Few rows of a, and long rows of b, which a core prefetches by itself unless bursts of
        // ours hinder it.
        if (long_rows_ && lines_ > kMostLinesOfLongRows) lines_ = 0;
    }
    void next() {
        for (int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
            __builtin_prefetch(row_ + smaller(at_, last_), 0, 3);
            at_ += kLine;
            if (at_ < last_ + kLine) continue;
            at_ = 0;
            row_ += stride_;
            --rows_;
        }
    }

private:
    const std::byte* row_ = nullptr;
    int64_t stride_ = 0, rows_ = 0;
    static constexpr int64_t kMostLinesOfLongRows = 16;
    int64_t last_ = -1;  ///< last byte of a row
    bool long_rows_ = false;
    int64_t at_ = 0;
    int64_t lines_ = 0;
};

/// b: a strip of as many columns as the vectors of a whole tile have. `single`: one more term,
/// without a partner in a.
template <typename V, DType type, int rows, int vectors>
void tile(const Left& a, const Word* b, int64_t words, bool single, const Target<V>& to,
          Prefetch& prefetch) {
    using Floats = typename V::Floats;
    using Words = typename V::Words;
    constexpr int64_t kStrip = V::kTileVectors * V::kLanes;
    Floats sums[rows][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; ++v) sums[r][v] = Floats{};
    }
    const std::byte* at = a.data;
    int row = 0;
    for (int64_t s = 0; s < words;) {
        prefetch.next();
        // Otherwise the last stores would wait for lines of c that are in no near cache.
        for (int i = 0; i < to.rows_per_chunk && row < rows; ++i, ++row) {
            for (int v = 0; v < vectors; ++v) {
                __builtin_prefetch(
                    to.c + row * to.stride + v * static_cast<int64_t>(sizeof(Floats)), 1, 3);
            }
        }
        for (const int64_t end = smaller(s + kChunkWords, words); s < end;
             ++s, at += a.step, b += kStrip) {
            Words columns[vectors];
#pragma GCC unroll 3
            for (int v = 0; v < vectors; ++v) columns[v] = V::load_words(b + v * V::kLanes);
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r) {
                const Words word = V::every_lane(load<Word>(at + r * a.row));
#pragma GCC unroll 3
                for (int v = 0; v < vectors; ++v) {
                    sums[r][v] = V::template add_words<type>(sums[r][v], word, columns[v]);
                }
            }
        }
    }
    if (type == DType::bf16 && single) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
            const Words word = V::every_lane(load<uint16_t>(at + r * a.row));
#pragma GCC unroll 3
            for (int v = 0; v < vectors; ++v) {
                sums[r][v] =
                    V::template add_words<type>(sums[r][v], word, V::load_words(b + v * V::kLanes));
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; ++v) {
            const auto lanes = v + 1 == vectors ? to.last : V::first_lanes(V::kLanes);
            Floats sum = sums[r][v];
            if (to.bias != nullptr) sum = sum + load_whole<Floats>(to.bias + v * V::kLanes);
            std::byte* const of_row = to.c + r * to.stride;
            if constexpr (type == DType::bf16) {
                if (to.narrow) {
                    V::template store_floats<type>(of_row + v * V::kLanes * 2, lanes, sum);
                    continue;
                }
            }
            std::byte* const c = of_row + v * V::kLanes * 4;
            if (to.add) sum = V::template load_floats<DType::fp32>(c, lanes) + sum;
            V::template store_floats<DType::fp32>(c, lanes, sum);
        }
    }
}

template <typename V>
using Tile = void (*)(const Left&, const Word*, int64_t, bool, const Target<V>&, Prefetch&);

/// The tile of so many rows, at most `most`, and vectors.
template <typename V, DType type, int most, int most_vectors = V::kTileVectors>
Tile<V> tile_of(int64_t rows, int64_t vectors) {
    if constexpr (most_vectors > 1) {
        if (vectors < most_vectors) return tile_of<V, type, most, most_vectors - 1>(rows, vectors);
    }
    if constexpr (most > 1) {
        if (rows < most) return tile_of<V, type, most - 1, most_vectors>(rows, vectors);
    }
    return tile<V, type, most, most_vectors>;
}

/// A range of terms, rows or columns.
struct Range {
    int64_t begin = 0, end = 0;

    [[nodiscard]] int64_t count() const { return end - begin; }
    /// Moves to the next `length` before `last`; returns whether there are any.
    bool advance(int64_t length, int64_t last) {
        if (end == last) return false;
        begin = end;
        end = smaller(end + length, last);
        return true;
    }
};

/// Layout of the caller's memory: offsets in bytes.
struct Layout {
    int64_t b = 0;     ///< a panel of a block of terms: strips of words x columns of a tile
    int64_t a = 0;     ///< a transposed a: (block_rows / kPackedRows) x words x kPackedRows
    int64_t sums = 0;  ///< (block_rows, sum_columns) fp32
    int64_t bias = 0;  ///< of a panel's columns, in fp32
    int64_t bytes = 0;
    int64_t block_rows = 0;
    int64_t sum_columns = 0;  ///< 0 unless c is bf16 and k is cut into blocks
};

template <typename V, DType type>
Layout layout_of(const MatmulShape& s) {
    Layout layout;
    const auto take = [&](int64_t words) {
        const int64_t begin = layout.bytes;
        layout.bytes += round_up(words * int64_t{sizeof(Word)}, 64);
        return begin;
    };
    const int64_t words = words_of<type>(s.k);
    layout.block_rows = smaller(s.m, round_up(kBlockRows, V::kPackedRows));
    layout.b = take(smaller(words, kBlockTerms / kWordTerms<type>) * kPanel);
    if (s.transpose_a) {
        layout.block_rows =
            round_up(smaller(s.m, larger(kPackedWords / words, kBlockRows)), V::kPackedRows);
        layout.a = take(layout.block_rows * words);
    }
    if (s.c_type == DType::bf16 && s.k > kBlockTerms) {
        layout.sum_columns = words > kGroupWords ? round_up(s.n, kPanel) : kPanel;
        layout.sums = take(layout.block_rows * layout.sum_columns);
    }
    layout.bias = take(kPanel);
    return layout;
}

/// The unit of work between two packed panels.
struct Block {
    Range rows;
    Range group;    ///< terms, several blocks
    Range columns;  ///< a panel's columns
    Range terms;

    [[nodiscard]] bool begins_rows() const { return columns.begin == 0 && terms.begin == 0; }
};

template <typename V, DType type>
class Product {
public:
    Product(const MatmulShape& shape, const void* a, const void* b, void* c, const void* bias,
            std::byte* memory)
        : s_(shape),
          layout_(layout_of<V, type>(shape)),
          packed_b_(reinterpret_cast<Word*>(memory + layout_.b)),
          packed_a_(reinterpret_cast<Word*>(memory + layout_.a)),
          sums_(reinterpret_cast<float*>(memory + layout_.sums)),
          wide_bias_(reinterpret_cast<float*>(memory + layout_.bias)),
          a_{static_cast<const std::byte*>(a), shape.a_stride * kSize},
          b_{static_cast<const std::byte*>(b), shape.b_stride * kSize},
          c_{static_cast<std::byte*>(c)},
          c_size_(shape.c_type == DType::bf16 ? 2 : 4),
          bias_(static_cast<const std::byte*>(bias)) {}

    void run() {
        Block block = first();
        for (bool more = true; more;) {
            if (s_.transpose_a && block.begins_rows()) pack_a(block.rows);
            if (s_.has_bias && block.terms.begin == 0) widen_bias(block.columns);
            pack_b(source_of(block));
            Block next = block;
            more = advance(next);
            multiply(block, more ? Prefetch(source_of(next), kSize) : Prefetch());
            if (layout_.sum_columns > 0 && block.terms.end == s_.k) {
                narrow(block.rows, block.columns);
            }
            block = next;
        }
    }

private:
    static constexpr int64_t kSize = type == DType::bf16 ? 2 : 4;  ///< bytes of a term
    static constexpr int64_t kGroupTerms = kGroupWords * kWordTerms<type>;
    static constexpr int64_t kStrip = V::kTileVectors * V::kLanes;  ///< columns
    static_assert(kPanel % kStrip == 0 && V::kPackedRows % V::kTileRows == 0);

    [[nodiscard]] Block first() const {
        Block block;
        block.rows.advance(layout_.block_rows, s_.m);
        begin_rows(block);
        return block;
    }
    void begin_rows(Block& block) const {
        block.group = {};
        block.group.advance(kGroupTerms, s_.k);
        begin_group(block);
    }
    void begin_group(Block& block) const {
        block.columns = {};
        block.columns.advance(kPanel, s_.n);
        begin_columns(block);
    }
    void begin_columns(Block& block) const {
        block.terms = {block.group.begin, block.group.begin};
        block.terms.advance(kBlockTerms, block.group.end);
    }
    /// Advances by terms of a group first, then by columns, groups and rows; returns false at the
    /// end.
    [[nodiscard]] bool advance(Block& block) const {
        if (block.terms.advance(kBlockTerms, block.group.end)) return true;
        if (block.columns.advance(kPanel, s_.n)) {
            begin_columns(block);
        } else if (block.group.advance(kGroupTerms, s_.k)) {
            begin_group(block);
        } else if (block.rows.advance(layout_.block_rows, s_.m)) {
            begin_rows(block);
        } else {
            return false;
        }
        return true;
    }

    void pack_a(const Range& rows) {
        // Several panels at a time: a cache line holds columns of two, and the next lines are
        // likely to be prefetched.
        constexpr int64_t kAtOnce = 128 / V::kPackedRows * V::kPackedRows;
        for (int64_t i = 0; i < rows.count(); i += kAtOnce) {
            V::template pack_rows<type, V::kPackedRows>(
                {a_.data + (rows.begin + i) * kSize, a_.stride}, s_.k,
                smaller(kAtOnce, rows.count() - i), packed_a_ + i * words_of<type>(s_.k),
                V::kPackedRows * words_of<type>(s_.k));
        }
    }

    void widen_bias(const Range& columns) {
        if constexpr (type == DType::bf16) {
            if (s_.bias_type == DType::bf16) return widen_bias_of<DType::bf16>(columns);
        }
        widen_bias_of<DType::fp32>(columns);
    }
    template <DType bias_type>
    void widen_bias_of(const Range& columns) {
        constexpr int64_t kBiasSize = bias_type == DType::bf16 ? 2 : 4;
        const std::byte* const from = bias_ + columns.begin * kBiasSize;
        for (int64_t i = 0; i < columns.count(); i += V::kLanes) {
            const auto lanes = V::first_lanes(columns.count() - i);
            store_whole(wide_bias_ + i,
                        V::template load_floats<bias_type>(from + i * kBiasSize, lanes));
        }
    }

    [[nodiscard]] Source source_of(const Block& block) const {
        const int64_t row = s_.transpose_b ? block.columns.begin : block.terms.begin;
        const int64_t column = s_.transpose_b ? block.terms.begin : block.columns.begin;
        return {{b_.data + row * b_.stride + column * kSize, b_.stride},
                block.terms.count(),
                block.columns.count(),
                s_.transpose_b};
    }

    void pack_b(const Source& source) {
        const int64_t apart = kStrip * words_of<type>(source.terms);
        if (!source.transposed) {
            V::template pack_rows<type, kStrip>(source.from, source.terms, source.columns,
                                                packed_b_, apart);
            return;
        }
        Stored from = source.from;
        Word* to = packed_b_;
        for (int64_t i = 0; i < source.columns; i += kStrip, to += apart) {
            V::template pack_columns<type, kStrip>(from, source.terms,
                                                   smaller(kStrip, source.columns - i), to);
            from.data += kStrip * from.stride;
        }
    }

    /// Words of op(a)'s rows from `row` on, which is `packed` rows into the packed block.
    [[nodiscard]] Left left_of(int64_t row, int64_t packed, int64_t term) const {
        if (!s_.transpose_a)
            return {a_.data + row * a_.stride + term * kSize, a_.stride, sizeof(Word)};
        constexpr int64_t kRows = V::kPackedRows;
        const Word* const panel = packed_a_ + packed / kRows * kRows * words_of<type>(s_.k) +
                                  term / kWordTerms<type> * kRows + packed % kRows;
        return {reinterpret_cast<const std::byte*>(panel), sizeof(Word),
                kRows * int64_t{sizeof(Word)}};
    }

    [[nodiscard]] float* sums_at(const Range& columns) const {
        return sums_ + (layout_.sum_columns == kPanel ? 0 : columns.begin);
    }

    void multiply(const Block& block, Prefetch prefetch) {
        const auto& [rows, group, columns, terms] = block;
        // Packed words of a have zeros where a term has no partner.
        const bool single = !s_.transpose_a && terms.count() % kWordTerms<type> != 0;
        const int64_t all_words = words_of<type>(terms.count());
        const int64_t words = single ? terms.count() / kWordTerms<type> : all_words;
        const bool in_sums = layout_.sum_columns > 0;
        Target<V> to;
        to.add = terms.begin > 0 || s_.accumulate;
        to.narrow = s_.c_type == DType::bf16 && !in_sums;
        to.stride = in_sums ? layout_.sum_columns * int64_t{sizeof(float)} : s_.c_stride * c_size_;
        std::byte* const c = in_sums ? reinterpret_cast<std::byte*>(sums_at(columns))
                                     : c_ + rows.begin * to.stride + columns.begin * c_size_;
        const int64_t column_size = in_sums ? int64_t{sizeof(float)} : c_size_;
        const bool biased = s_.has_bias && terms.begin == 0;
        const int64_t strips = (columns.count() + kStrip - 1) / kStrip;
        const int64_t tiles = (rows.count() + V::kTileRows - 1) / V::kTileRows;
        const int64_t chunks = larger((words + kChunkWords - 1) / kChunkWords, 1);
        to.rows_per_chunk = static_cast<int>((V::kTileRows + chunks - 1) / chunks);
        prefetch.spread(tiles * strips * chunks);
        for (int64_t i = 0; i < rows.count(); i += V::kTileRows) {
            const Left left = left_of(rows.begin + i, i, terms.begin);
            const int64_t count = smaller(V::kTileRows, rows.count() - i);
            // A tile's rows of a stay in a first-level cache.
            for (int64_t j = 0; j < columns.count(); j += kStrip) {
                const int64_t left_over = smaller(kStrip, columns.count() - j);
                const int64_t vectors = (left_over + V::kLanes - 1) / V::kLanes;
                to.c = c + i * to.stride + j * column_size;
                to.last = V::first_lanes(left_over - (vectors - 1) * V::kLanes);
                to.bias = biased ? wide_bias_ + j : nullptr;
                tile_of<V, type, V::kTileRows>(count, vectors)(left, packed_b_ + j * all_words,
                                                               words, single, to, prefetch);
            }
        }
    }

    void narrow(const Range& rows, const Range& columns) {
        if constexpr (type == DType::bf16) {
            for (int64_t row = 0; row < rows.count(); ++row) {
                const float* const from = sums_at(columns) + row * layout_.sum_columns;
                std::byte* const to = c_ + ((rows.begin + row) * s_.c_stride + columns.begin) * 2;
                for (int64_t i = 0; i < columns.count(); i += V::kLanes) {
                    V::template store_floats<type>(to + i * 2, V::first_lanes(columns.count() - i),
                                                   load_whole<typename V::Floats>(from + i));
                }
            }
        }
    }

    const MatmulShape& s_;
    Layout layout_;
    Word* packed_b_;
    Word* packed_a_;
    float* sums_;
    float* wide_bias_;
    Stored a_, b_;
    std::byte* c_;
    int64_t c_size_;
    const std::byte* bias_;
};

template <typename V, DType type>
int64_t bytes_of_panels(const MatmulShape& shape) {
    return layout_of<V, type>(shape).bytes;
}
template <typename V, DType type>
void product_in_panels(const MatmulShape& shape, const void* a, const void* b, void* c,
                       const void* bias, std::byte* memory) {
    Product<V, type>(shape, a, b, c, bias, memory).run();
}
/// V's products of a type.
template <typename V, DType type>
constexpr PanelCode kPanelCode{bytes_of_panels<V, type>, product_in_panels<V, type>};

}  // namespace
}  // namespace vocabpipe::kernels::host
