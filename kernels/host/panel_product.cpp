// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 whatever the machine: nothing of the standard library is instantiated here,
// because the linker might take that instance for others, too.
#include "kernels/host/panel_product.hpp"

#ifdef __AVX512BF16__

#include <immintrin.h>

#include "kernels/host/panel_packing.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
constexpr int64_t kPanel = kTileVectors * kLanes;  ///< columns of a panel of b

/// Words of a block of terms: a panel of b, 72 KB, stays in a second-level cache.
constexpr int64_t kBlockWords = 384;
constexpr int64_t kBlockTerms = kBlockWords * kTerms;
/// Terms that all columns are computed of before the next ones: rows of a stay in a third-level
/// cache between panels of b, 3 MB of 256 rows.
constexpr int64_t kGroupTerms = 8 * kBlockTerms;
/// Of a transposed a, rows are packed until they take 512 KB, but at least so many rows: b is
/// packed again for each of these blocks.
constexpr int64_t kPackedWords = int64_t{1} << 17;
constexpr int64_t kFewestPackedRows = 256;

int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
int64_t larger(int64_t a, int64_t b) {
    return a < b ? b : a;
}
int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// Rows of op(a) in words: word s of row r is at data + r row + s step (bytes).
struct Left {
    const std::byte* data = nullptr;
    int64_t row = 0, step = 0;
};

/// Where a tile's sums go.
struct Target {
    std::byte* c = nullptr;
    int64_t stride = 0;   ///< bytes
    bool add = false;     ///< to what is there
    bool narrow = false;  ///< c is bf16
    const float* bias = nullptr;
    __mmask16 last = 0;  ///< columns of the last vector
};

__m512 add_products(__m512 sum, Word a, __m512i b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a))),
                            reinterpret_cast<__m512bh>(b));
}

/// `single`: one more term, which has no partner in a.
template <int rows, int vectors>
void tile(const Left& a, const Word* b, int64_t words, bool single, const Target& to) {
    __m512 sums[rows][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; ++v) {
            sums[r][v] = _mm512_setzero_ps();
            // The last stores would wait for lines of c that are nowhere near.
            __builtin_prefetch(to.c + r * to.stride + v * 64, 1, 3);
        }
    }
    const std::byte* at = a.data;
    for (int64_t s = 0; s < words; ++s, at += a.step, b += kPanel) {
        __m512i columns[vectors];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; ++v) columns[v] = _mm512_load_si512(b + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
            const Word word = load<Word>(at + r * a.row);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; ++v) {
                sums[r][v] = add_products(sums[r][v], word, columns[v]);
            }
        }
    }
    if (single) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
            const Word word = load<uint16_t>(at + r * a.row);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; ++v) {
                sums[r][v] = add_products(sums[r][v], word, _mm512_load_si512(b + v * kLanes));
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
            if (to.narrow) {
                store_floats<DType::bf16>(row + v * kLanes * 2, mask, sum);
                continue;
            }
            float* const c = reinterpret_cast<float*>(row) + v * kLanes;
            if (to.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), sum);
            _mm512_mask_storeu_ps(c, mask, sum);
        }
    }
}

using Tile = void (*)(const Left&, const Word*, int64_t, bool, const Target&);
constexpr Tile kTiles[kTileRows][kTileVectors] = {
    {tile<1, 1>, tile<1, 2>, tile<1, 3>}, {tile<2, 1>, tile<2, 2>, tile<2, 3>},
    {tile<3, 1>, tile<3, 2>, tile<3, 3>}, {tile<4, 1>, tile<4, 2>, tile<4, 3>},
    {tile<5, 1>, tile<5, 2>, tile<5, 3>}, {tile<6, 1>, tile<6, 2>, tile<6, 3>},
    {tile<7, 1>, tile<7, 2>, tile<7, 3>}, {tile<8, 1>, tile<8, 2>, tile<8, 3>}};

/// What a block of terms, rows or columns covers.
struct Range {
    int64_t begin = 0, count = 0;
};

/// What is kept in the caller's memory: bytes from its beginning.
struct Layout {
    int64_t b = 0;     ///< a panel of a block of terms: words x 48
    int64_t a = 0;     ///< panels of a transposed a: (block_rows / 16) x words x 16
    int64_t sums = 0;  ///< (block_rows, sum_columns) fp32
    int64_t bias = 0;  ///< of a panel's columns, in fp32
    int64_t bytes = 0;
    int64_t block_rows = 0;
    int64_t sum_columns = 0;  ///< 0 unless c is bf16 and k is cut into blocks
};

Layout layout_of(const MatmulShape& s) {
    Layout layout;
    const auto take = [&](int64_t words) {
        const int64_t begin = layout.bytes;
        layout.bytes += round_up(words * int64_t{sizeof(Word)}, 64);
        return begin;
    };
    const int64_t words = words_of(s.k);
    layout.block_rows = s.m;
    layout.b = take(smaller(words, kBlockWords) * kPanel);
    if (s.transpose_a) {
        const int64_t fit = kPackedWords / words / kLanes * kLanes;
        layout.block_rows = smaller(round_up(s.m, kLanes), larger(fit, kFewestPackedRows));
        layout.a = take(layout.block_rows * words);
    }
    if (s.c_type == DType::bf16 && words > kBlockWords) {
        layout.sum_columns = s.k > kGroupTerms ? round_up(s.n, kPanel) : kPanel;
        layout.sums = take(layout.block_rows * layout.sum_columns);
    }
    layout.bias = take(kPanel);
    return layout;
}

/// The part of b that is packed for a panel and a block of terms.
struct Source {
    Stored from;
    int64_t terms = 0, columns = 0;
    bool transposed = false;  ///< terms are along the stored rows
};

/// Asks for a source's lines while the tiles before it are computed.
class Prefetch {
public:
    Prefetch() = default;
    explicit Prefetch(const Source& source)
        : from_(source.from),
          rows_(source.transposed ? source.columns : source.terms),
          bytes_((source.transposed ? source.terms : source.columns) * 2) {}
    /// A part of several equal ones, in rows.
    void next(int64_t part, int64_t parts) const {
        for (int64_t row = rows_ * part / parts; row < rows_ * (part + 1) / parts; ++row) {
            const std::byte* const begin = from_.data + row * from_.stride;
            for (int64_t at = 0; at < bytes_; at += kLine) __builtin_prefetch(begin + at, 0, 2);
            __builtin_prefetch(begin + bytes_ - 1, 0, 2);
        }
    }

private:
    static constexpr int64_t kLine = 64;
    Stored from_;
    int64_t rows_ = 0, bytes_ = 0;
};

class Product {
public:
    Product(const MatmulShape& shape, const void* a, const void* b, void* c, const void* bias,
            std::byte* memory)
        : s_(shape),
          layout_(layout_of(shape)),
          packed_b_(reinterpret_cast<Word*>(memory + layout_.b)),
          packed_a_(reinterpret_cast<Word*>(memory + layout_.a)),
          sums_(reinterpret_cast<float*>(memory + layout_.sums)),
          wide_bias_(reinterpret_cast<float*>(memory + layout_.bias)),
          a_{static_cast<const std::byte*>(a), shape.a_stride * 2},
          b_{static_cast<const std::byte*>(b), shape.b_stride * 2},
          c_{static_cast<std::byte*>(c)},
          c_size_(shape.c_type == DType::bf16 ? 2 : 4),
          bias_(static_cast<const std::byte*>(bias)) {}

    void run() {
        for (int64_t m = 0; m < s_.m; m += layout_.block_rows) {
            const Range rows{m, smaller(layout_.block_rows, s_.m - m)};
            if (s_.transpose_a) pack_a(rows);
            for (int64_t k = 0; k < s_.k; k += kGroupTerms) {
                multiply(rows, {k, smaller(kGroupTerms, s_.k - k)});
            }
        }
    }

private:
    void multiply(const Range& rows, const Range& group) {
        const int64_t end = group.begin + group.count;
        for (int64_t n = 0; n < s_.n; n += kPanel) {
            const Range columns{n, smaller(kPanel, s_.n - n)};
            if (s_.has_bias && group.begin == 0) widen_bias(columns);
            for (int64_t k = group.begin; k < end; k += kBlockTerms) {
                const Range terms{k, smaller(kBlockTerms, end - k)};
                pack_b(terms, columns);
                multiply(rows, columns, terms, prefetch_after(terms, columns, group));
            }
            if (layout_.sum_columns > 0 && end == s_.k) narrow(rows, columns);
        }
    }

    void pack_a(const Range& rows) {
        // Several panels at a time: a line of the cache has the columns of two, and the next ones
        // are likely to be on their way.
        constexpr int64_t kAtOnce = 8 * kLanes;
        for (int64_t i = 0; i < rows.count; i += kAtOnce) {
            pack_by_rows({a_.data + (rows.begin + i) * 2, a_.stride}, s_.k,
                         smaller(kAtOnce, rows.count - i), packed_a_ + i * words_of(s_.k), kLanes,
                         kLanes * words_of(s_.k));
        }
    }

    void widen_bias(const Range& columns) {
        const bool narrow = s_.bias_type == DType::bf16;
        const std::byte* const from = bias_ + columns.begin * (narrow ? 2 : 4);
        for (int64_t i = 0; i < columns.count; i += kLanes) {
            const __mmask16 mask = first_lanes(columns.count - i);
            _mm512_store_ps(wide_bias_ + i, narrow ? load_floats<DType::bf16>(from + i * 2, mask)
                                                   : load_floats<DType::fp32>(from + i * 4, mask));
        }
    }

    [[nodiscard]] Source source_of(const Range& terms, const Range& columns) const {
        const int64_t row = s_.transpose_b ? columns.begin : terms.begin;
        const int64_t column = s_.transpose_b ? terms.begin : columns.begin;
        return {{b_.data + row * b_.stride + column * 2, b_.stride},
                terms.count,
                columns.count,
                s_.transpose_b};
    }

    void pack_b(const Range& terms, const Range& columns) {
        const Source source = source_of(terms, columns);
        if (source.transposed) {
            pack_by_columns(source.from, terms.count, columns.count, packed_b_, kPanel);
        } else {
            pack_by_rows(source.from, terms.count, columns.count, packed_b_, kPanel, kLanes);
        }
    }

    /// Of what pack_b() packs next.
    [[nodiscard]] Prefetch prefetch_after(const Range& terms, const Range& columns,
                                          const Range& group) const {
        const int64_t end = group.begin + group.count;
        Range next_terms{terms.begin + terms.count, 0};
        Range next_columns = columns;
        if (next_terms.begin == end) {
            next_terms.begin = group.begin;
            next_columns.begin += columns.count;
            if (next_columns.begin == s_.n) return {};
            next_columns.count = smaller(kPanel, s_.n - next_columns.begin);
        }
        next_terms.count = smaller(kBlockTerms, end - next_terms.begin);
        return Prefetch(source_of(next_terms, next_columns));
    }

    /// Words of op(a)'s rows from `row` on, which is `packed` rows into the packed block.
    [[nodiscard]] Left left_of(int64_t row, int64_t packed, int64_t term) const {
        if (!s_.transpose_a) return {a_.data + row * a_.stride + term * 2, a_.stride, sizeof(Word)};
        const Word* const panel = packed_a_ + packed / kLanes * kLanes * words_of(s_.k) +
                                  term / kTerms * kLanes + packed % kLanes;
        return {reinterpret_cast<const std::byte*>(panel), sizeof(Word),
                kLanes * int64_t{sizeof(Word)}};
    }

    [[nodiscard]] float* sums_at(const Range& columns) const {
        return sums_ + (layout_.sum_columns == kPanel ? 0 : columns.begin);
    }

    void multiply(const Range& rows, const Range& columns, const Range& terms,
                  const Prefetch& prefetch) {
        // Packed words of a have zeros where a term has no partner.
        const bool single = !s_.transpose_a && terms.count % kTerms != 0;
        const int64_t words = single ? terms.count / kTerms : words_of(terms.count);
        const int64_t vectors = (columns.count + kLanes - 1) / kLanes;
        Target to;
        to.add = terms.begin > 0 || s_.accumulate;
        const bool in_sums = layout_.sum_columns > 0;
        to.narrow = s_.c_type == DType::bf16 && !in_sums;
        to.last = first_lanes(columns.count - (vectors - 1) * kLanes);
        to.bias = s_.has_bias && terms.begin == 0 ? wide_bias_ : nullptr;
        to.stride = in_sums ? layout_.sum_columns * int64_t{sizeof(float)} : s_.c_stride * c_size_;
        std::byte* const c = in_sums ? reinterpret_cast<std::byte*>(sums_at(columns))
                                     : c_ + rows.begin * to.stride + columns.begin * c_size_;
        const int64_t tiles = (rows.count + kTileRows - 1) / kTileRows;
        for (int64_t i = 0; i < rows.count; i += kTileRows) {
            prefetch.next(i / kTileRows, tiles);
            to.c = c + i * to.stride;
            const int64_t count = smaller(kTileRows, rows.count - i);
            kTiles[count - 1][vectors - 1](left_of(rows.begin + i, i, terms.begin), packed_b_,
                                           words, single, to);
        }
    }

    void narrow(const Range& rows, const Range& columns) {
        for (int64_t row = 0; row < rows.count; ++row) {
            const float* const from = sums_at(columns) + row * layout_.sum_columns;
            std::byte* const to = c_ + ((rows.begin + row) * s_.c_stride + columns.begin) * 2;
            for (int64_t i = 0; i < columns.count; i += kLanes) {
                store_floats<DType::bf16>(to + i * 2, first_lanes(columns.count - i),
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
    return layout_of(shape).bytes;
}

void panel_product(const MatmulShape& shape, const void* a, const void* b, void* c,
                   const void* bias, std::byte* memory) {
    Product(shape, a, b, c, bias, memory).run();
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
