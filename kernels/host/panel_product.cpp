// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 on every machine: nothing of the standard library may be instantiated here,
// because the linker might use that instance elsewhere, too.
#include "kernels/host/panel_product.hpp"

#ifdef __AVX512BF16__

#include <immintrin.h>

#include "kernels/host/panel_packing.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
constexpr int64_t kPanel = kTileVectors * kLanes;  ///< columns of a panel of b

/// Terms per block: a panel of b, 72 KB in bf16 and 144 in fp32, stays in a second-level cache.
constexpr int64_t kBlockTerms = 768;
/// Words that are multiplied between two prefetches.
constexpr int64_t kChunkWords = 64;
constexpr int64_t kLine = 64;
/// Words per group of terms: all columns are computed for one group before the next, so that 256
/// rows of a, 3 MB, stay in a third-level cache between panels of b.
constexpr int64_t kGroupWords = 3072;
/// Rows of a transposed a are packed until they take 512 KB, but at least kFewestPackedRows: b is
/// packed again for each of these blocks.
constexpr int64_t kPackedWords = int64_t{1} << 17;
constexpr int64_t kFewestPackedRows = 256;

/// Rows of op(a) in words: word s of row r is at data + r row + s step (bytes).
struct Left {
    const std::byte* data = nullptr;
    int64_t row = 0, step = 0;
};

/// Where a tile's sums go.
struct Target {
    std::byte* c = nullptr;
    int64_t stride = 0;   ///< bytes
    bool add = false;     ///< to the old values of c
    bool narrow = false;  ///< c is bf16
    const float* bias = nullptr;
    __mmask16 last = 0;      ///< columns of the last vector
    int rows_per_chunk = 0;  ///< rows of c prefetched per chunk
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
          last_((source.transposed ? source.terms : source.columns) * size - 1) {}

    /// Sets how many lines a call of next() prefetches, so that `calls` calls prefetch all.
    void spread(int64_t calls) {
        // A row that begins within a line touches one more.
        const int64_t lines = rows_ * (last_ / kLine + 2);
        lines_ = (lines + calls - 1) / calls;
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
    int64_t last_ = -1;  ///< last byte of a row
    int64_t at_ = 0;
    int64_t lines_ = 0;
};

/// `single`: one more term, without a partner in a.
template <DType type, int rows, int vectors>
void tile(const Left& a, const Word* b, int64_t words, bool single, const Target& to,
          Prefetch& prefetch) {
    __m512 sums[rows][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_setzero_ps();
    }
    const std::byte* at = a.data;
    int row = 0;
    for (int64_t s = 0; s < words;) {
        prefetch.next();
        // Otherwise the last stores would wait for lines of c that are in no near cache.
        for (int i = 0; i < to.rows_per_chunk && row < rows; ++i, ++row) {
            for (int v = 0; v < vectors; ++v) {
                __builtin_prefetch(to.c + row * to.stride + v * 64, 1, 3);
            }
        }
        for (const int64_t end = smaller(s + kChunkWords, words); s < end;
             ++s, at += a.step, b += kPanel) {
            __m512i columns[vectors];
#pragma GCC unroll 3
            for (int v = 0; v < vectors; ++v) columns[v] = _mm512_load_si512(b + v * kLanes);
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r) {
                const __m512i word =
                    _mm512_set1_epi32(static_cast<int>(load<Word>(at + r * a.row)));
#pragma GCC unroll 3
                for (int v = 0; v < vectors; ++v) {
                    sums[r][v] = add_words<type>(sums[r][v], word, columns[v]);
                }
            }
        }
    }
    if (type == DType::bf16 && single) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
            const __m512i word = _mm512_set1_epi32(load<uint16_t>(at + r * a.row));
#pragma GCC unroll 3
            for (int v = 0; v < vectors; ++v) {
                sums[r][v] = add_words<type>(sums[r][v], word, _mm512_load_si512(b + v * kLanes));
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; ++v) {
            const __mmask16 mask = v + 1 == vectors ? to.last : first_lanes(kLanes);
            __m512 sum = sums[r][v];
            if (to.bias != nullptr) {
                sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to.bias + v * kLanes));
            }
            std::byte* const row = to.c + r * to.stride;
            if (type == DType::bf16 && to.narrow) {
                store_floats<DType::bf16>(row + v * kLanes * 2, mask, sum);
                continue;
            }
            float* const c = reinterpret_cast<float*>(row) + v * kLanes;
            if (to.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), sum);
            _mm512_mask_storeu_ps(c, mask, sum);
        }
    }
}

using Tile = void (*)(const Left&, const Word*, int64_t, bool, const Target&, Prefetch&);
template <DType type, int rows>
constexpr Tile kTilesOfRows[kTileVectors] = {tile<type, rows, 1>, tile<type, rows, 2>,
                                             tile<type, rows, 3>};
template <DType type>
constexpr const Tile* kTiles[kTileRows] = {
    kTilesOfRows<type, 1>, kTilesOfRows<type, 2>, kTilesOfRows<type, 3>, kTilesOfRows<type, 4>,
    kTilesOfRows<type, 5>, kTilesOfRows<type, 6>, kTilesOfRows<type, 7>, kTilesOfRows<type, 8>};

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
    int64_t b = 0;     ///< a panel of a block of terms: words x 48
    int64_t a = 0;     ///< panels of a transposed a: (block_rows / 16) x words x 16
    int64_t sums = 0;  ///< (block_rows, sum_columns) fp32
    int64_t bias = 0;  ///< of a panel's columns, in fp32
    int64_t bytes = 0;
    int64_t block_rows = 0;
    int64_t sum_columns = 0;  ///< 0 unless c is bf16 and k is cut into blocks
};

template <DType type>
Layout layout_of(const MatmulShape& s) {
    Layout layout;
    const auto take = [&](int64_t words) {
        const int64_t begin = layout.bytes;
        layout.bytes += round_up(words * int64_t{sizeof(Word)}, 64);
        return begin;
    };
    const int64_t words = words_of<type>(s.k);
    layout.block_rows = s.m;
    layout.b = take(smaller(words, kBlockTerms / kWordTerms<type>) * kPanel);
    if (s.transpose_a) {
        const int64_t fit = kPackedWords / words / kLanes * kLanes;
        layout.block_rows = smaller(round_up(s.m, kLanes), larger(fit, kFewestPackedRows));
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

template <DType type>
class Product {
public:
    Product(const MatmulShape& shape, const void* a, const void* b, void* c, const void* bias,
            std::byte* memory)
        : s_(shape),
          layout_(layout_of<type>(shape)),
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
        constexpr int64_t kAtOnce = 8 * kLanes;
        for (int64_t i = 0; i < rows.count(); i += kAtOnce) {
            pack_by_rows<type>({a_.data + (rows.begin + i) * kSize, a_.stride}, s_.k,
                               smaller(kAtOnce, rows.count() - i),
                               packed_a_ + i * words_of<type>(s_.k), kLanes,
                               kLanes * words_of<type>(s_.k));
        }
    }

    void widen_bias(const Range& columns) {
        const bool narrow = s_.bias_type == DType::bf16;
        const std::byte* const from = bias_ + columns.begin * (narrow ? 2 : 4);
        for (int64_t i = 0; i < columns.count(); i += kLanes) {
            const __mmask16 mask = first_lanes(columns.count() - i);
            _mm512_store_ps(wide_bias_ + i, narrow ? load_floats<DType::bf16>(from + i * 2, mask)
                                                   : load_floats<DType::fp32>(from + i * 4, mask));
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
        if (source.transposed) {
            pack_by_columns<type>(source.from, source.terms, source.columns, packed_b_, kPanel);
        } else {
            pack_by_rows<type>(source.from, source.terms, source.columns, packed_b_, kPanel,
                               kLanes);
        }
    }

    /// Words of op(a)'s rows from `row` on, which is `packed` rows into the packed block.
    [[nodiscard]] Left left_of(int64_t row, int64_t packed, int64_t term) const {
        if (!s_.transpose_a)
            return {a_.data + row * a_.stride + term * kSize, a_.stride, sizeof(Word)};
        const Word* const panel = packed_a_ + packed / kLanes * kLanes * words_of<type>(s_.k) +
                                  term / kWordTerms<type> * kLanes + packed % kLanes;
        return {reinterpret_cast<const std::byte*>(panel), sizeof(Word),
                kLanes * int64_t{sizeof(Word)}};
    }

    [[nodiscard]] float* sums_at(const Range& columns) const {
        return sums_ + (layout_.sum_columns == kPanel ? 0 : columns.begin);
    }

    void multiply(const Block& block, Prefetch prefetch) {
        const auto& [rows, group, columns, terms] = block;
        // Packed words of a have zeros where a term has no partner.
        const bool single = !s_.transpose_a && terms.count() % kWordTerms<type> != 0;
        const int64_t words =
            single ? terms.count() / kWordTerms<type> : words_of<type>(terms.count());
        const int64_t vectors = (columns.count() + kLanes - 1) / kLanes;
        Target to;
        to.add = terms.begin > 0 || s_.accumulate;
        const bool in_sums = layout_.sum_columns > 0;
        to.narrow = s_.c_type == DType::bf16 && !in_sums;
        to.last = first_lanes(columns.count() - (vectors - 1) * kLanes);
        to.bias = s_.has_bias && terms.begin == 0 ? wide_bias_ : nullptr;
        to.stride = in_sums ? layout_.sum_columns * int64_t{sizeof(float)} : s_.c_stride * c_size_;
        std::byte* const c = in_sums ? reinterpret_cast<std::byte*>(sums_at(columns))
                                     : c_ + rows.begin * to.stride + columns.begin * c_size_;
        const int64_t tiles = (rows.count() + kTileRows - 1) / kTileRows;
        const int64_t chunks = larger((words + kChunkWords - 1) / kChunkWords, 1);
        to.rows_per_chunk = static_cast<int>((kTileRows + chunks - 1) / chunks);
        prefetch.spread(tiles * chunks);
        for (int64_t i = 0; i < rows.count(); i += kTileRows) {
            to.c = c + i * to.stride;
            const int64_t count = smaller(kTileRows, rows.count() - i);
            kTiles<type>[count - 1][vectors - 1](left_of(rows.begin + i, i, terms.begin), packed_b_,
                                                 words, single, to, prefetch);
        }
    }

    void narrow(const Range& rows, const Range& columns) {
        for (int64_t row = 0; row < rows.count(); ++row) {
            const float* const from = sums_at(columns) + row * layout_.sum_columns;
            std::byte* const to = c_ + ((rows.begin + row) * s_.c_stride + columns.begin) * 2;
            for (int64_t i = 0; i < columns.count(); i += kLanes) {
                store_floats<DType::bf16>(to + i * 2, first_lanes(columns.count() - i),
                                          _mm512_load_ps(from + i));
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

}  // namespace

int64_t panel_product_bytes(const MatmulShape& shape) {
    return shape.ab_type == DType::bf16 ? layout_of<DType::bf16>(shape).bytes
                                        : layout_of<DType::fp32>(shape).bytes;
}

void panel_product(const MatmulShape& shape, const void* a, const void* b, void* c,
                   const void* bias, std::byte* memory) {
    if (shape.ab_type == DType::bf16) {
        Product<DType::bf16>(shape, a, b, c, bias, memory).run();
    } else {
        Product<DType::fp32>(shape, a, b, c, bias, memory).run();
    }
}

}  // namespace vocabpipe::kernels::host

#else

namespace vocabpipe::kernels::host {

int64_t panel_product_bytes(const MatmulShape& /*shape*/) {
    return 0;
}
void panel_product(const MatmulShape& /*shape*/, const void* /*a*/, const void* /*b*/, void* /*c*/,
                   const void* /*bias*/, std::byte* /*memory*/) {}

}  // namespace vocabpipe::kernels::host

#endif
