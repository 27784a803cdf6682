// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 like attention_panels.cpp.
#include "kernels/host/attention_panels.hpp"

#ifdef __AVX512BF16__

#include "kernels/host/attention_head.hpp"

namespace vocabpipe::kernels::host {

namespace {

template <DType type>
class Backward : Head<type> {
    using Base = Head<type>;
    using Base::at_, Base::head_, Base::sizes_, Base::begin_, Base::rows_, Base::first_key_;

public:
    Backward(const AttentionHead& head, const AttentionGradients& gradients, std::byte* memory)
        : Base(head, memory), to_(gradients) {}

    void run() {
        if (to_.first) {
            this->pack_rows(sizes_.keys, head_.k, at_.k_rows);
            this->pack_rows(sizes_.values, head_.v, at_.v_rows);
            this->pack_terms(sizes_.keys, head_.k, head_.kv_stride, head_.length, at_.terms);
            set_zero(at_.dk, head_.length * sizes_.keys.columns);
            set_zero(at_.dv, head_.length * sizes_.values.columns);
        }
        for (int64_t i = 0; i < kQueries; ++i) at_.kept[i] = 1;
        for (int64_t begin = 0; begin < head_.queries; begin += kQueries) {
            this->set_block(begin);
            set_gradients();
            for (int64_t key = first_key_; key < this->end_key(); key += kKeys) {
                block(key, smaller(kKeys, this->end_key() - key));
            }
            store(sizes_.keys, at_.sums, rows_, head_.scale,
                  this->row(to_.dq, begin, to_.dq_stride), to_.dq_stride);
        }
        if (!to_.last) return;
        store(sizes_.keys, at_.dk, head_.length, head_.scale, static_cast<std::byte*>(to_.dk),
              to_.dkv_stride);
        store(sizes_.values, at_.dv, head_.length, 1, static_cast<std::byte*>(to_.dv),
              to_.dkv_stride);
    }

private:
    static void set_zero(float* sums, int64_t count) {
        for (int64_t i = 0; i < count; i += kLanes) _mm512_store_ps(sums + i, _mm512_setzero_ps());
    }

    void set_gradients() {
        const std::byte* const dout = this->row(to_.dout, begin_, to_.dout_stride);
        this->pack_lanes(sizes_.values, dout, to_.dout_stride, rows_, at_.dout);
        this->pack_terms(sizes_.values, dout, to_.dout_stride, rows_, at_.dout_terms);
        this->pack_terms(sizes_.keys, this->row(head_.q, begin_, head_.q_stride), head_.q_stride,
                         rows_, at_.q_terms);
        for (int64_t i = 0; i < kQueries; ++i) at_.maximum[i] = at_.total[i] = 0;
        for (int64_t i = 0; i < rows_; ++i) {
            const std::byte* const dout_row = dout + i * to_.dout_stride * Base::kSize;
            const std::byte* const out_row = this->row(to_.out, begin_ + i, to_.out_stride);
            __m512 delta = _mm512_setzero_ps();  // dout . out = sum_j p_j dp_j
            for_each_vector(head_.value_size, [&](int64_t j, __mmask16 mask) {
                delta = _mm512_fmadd_ps(load_floats<type>(dout_row + j * Base::kSize, mask),
                                        load_floats<type>(out_row + j * Base::kSize, mask), delta);
            });
            at_.total[i] = _mm512_reduce_add_ps(delta);
            at_.maximum[i] = to_.log_sum_exp[(begin_ + i) * to_.log_sum_exp_stride];
        }
    }

    void block(int64_t key, int64_t count) {
        const bool masked = !this->all_see(key, count);
        const auto gradients = head_.cap > 0 ? masked ? &Backward::gradients<true, true>
                                                      : &Backward::gradients<true, false>
                               : masked ? &Backward::gradients<false, true>
                                             : &Backward::gradients<false, false>;
        for (int64_t j = 0; j < count; j += kRowsOfTile) {
            const int64_t rows = smaller(kRowsOfTile, count - j);
            const auto range = this->vectors_that_see(key + j, rows);
            if (key + count == this->end_key()) prefetch_next(j, rows);
            this->multiply_lanes(sizes_.keys, at_.k_rows, key + j, rows, at_.q, range, at_.tile);
            this->multiply_lanes(sizes_.values, at_.v_rows, key + j, rows, at_.dout, range, at_.dp);
            (this->*gradients)(key, j, rows);
        }
        for (int64_t j = 0; j < count; j += kRowsOfTile) {
            const int64_t rows = smaller(kRowsOfTile, count - j);
            const auto range = this->vectors_that_see(key + j, rows);
            if (range.empty()) continue;
            add_to_keys(sizes_.values, j, rows, range, at_.p, at_.dout_terms,
                        at_.dv + (key + j) * sizes_.values.columns);
            add_to_keys(sizes_.keys, j, rows, range, at_.ds, at_.q_terms,
                        at_.dk + (key + j) * sizes_.keys.columns);
        }
        this->add_to_queries(sizes_.keys, key, count, at_.pairs,
                             key == first_key_ ? nullptr : at_.kept);
    }

    /// Prefetches `rows` rows of the next block of queries.
    void prefetch_next(int64_t row, int64_t rows) const {
        for (int64_t i = begin_ + kQueries + row; i < begin_ + kQueries + row + rows; ++i) {
            this->prefetch(sizes_.keys, head_.q, head_.q_stride, i, head_.queries);
            this->prefetch(sizes_.values, to_.dout, to_.dout_stride, i, head_.queries);
            this->prefetch(sizes_.values, to_.out, to_.out_stride, i, head_.queries);
        }
    }

    /// sums of `rows` keys from j on += (p or ds) (queries)
    void add_to_keys(const typename Base::Row& of, int64_t j, int64_t rows,
                     typename Base::Range range, const Word* p, const Word* queries,
                     float* to) const {
        constexpr int64_t kWordsOfVector = kLanes / kWordTerms<type>;
        const int64_t begin = range.begin * kWordsOfVector;
        const int64_t end = smaller(range.end * kWordsOfVector, words_of<type>(rows_));
        sum_rows<type>({p + j * sizes_.query_words + begin, sizes_.query_words, 1},
                       {queries + begin * of.columns, of.columns}, end - begin, rows,
                       of.columns / kLanes, {to, of.columns, at_.kept});
    }

    /// For `rows` keys from j on: p, and ds = p (dp - delta) d score / d (scale q k).
    template <bool kCapped, bool kMasked>
    void gradients(int64_t key, int64_t j, int64_t rows) {
        const __m512 exponent = _mm512_set1_ps(kCapped ? head_.cap : head_.scale);
        const __m512 inner = _mm512_set1_ps(kCapped ? head_.scale / head_.cap : 0);
        const auto one = [&](int64_t r, int64_t vector, __m512& p, __m512& ds) {
            const int64_t column = vector * kLanes;
            __m512 s = _mm512_load_ps(at_.tile + r * kQueries + column);
            const __m512 dp = _mm512_load_ps(at_.dp + r * kQueries + column);
            if constexpr (kCapped) s = tanh(_mm512_mul_ps(s, inner));
            p = exp(_mm512_fmsub_ps(s, exponent, _mm512_load_ps(at_.maximum + column)));
            ds = _mm512_mul_ps(p, _mm512_sub_ps(dp, _mm512_load_ps(at_.total + column)));
            if constexpr (kCapped) {
                ds = _mm512_mul_ps(ds, _mm512_fnmadd_ps(s, s, _mm512_set1_ps(1.0F)));
            }
            if constexpr (kMasked) {
                const __mmask16 seen = this->who_see(key + j + r, vector);
                p = _mm512_maskz_mov_ps(seen, p);
                ds = _mm512_maskz_mov_ps(seen, ds);
            }
        };
        for (int64_t vector = 0; vector < vectors_of(rows_); vector += 2) {
            const int64_t column = vector * kLanes;
            const int64_t word = column / kWordTerms<type>;
            for (int64_t r = 0; r < rows; r += 2) {
                __m512 p[2][2], ds[2][2];
                const int64_t pair = smaller(2, rows - r);
                for (int64_t i = 0; i < pair; ++i) {
                    for (int v = 0; v < 2; ++v) one(r + i, vector + v, p[i][v], ds[i][v]);
                }
                Word* const p_row = at_.p + (j + r) * sizes_.query_words + word;
                Word* const ds_row = at_.ds + (j + r) * sizes_.query_words + word;
                if constexpr (type == DType::bf16) {
                    __m512i narrow_ds[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
                    for (int64_t i = 0; i < pair; ++i) {
                        narrow_ds[i] = narrow(ds[i][0], ds[i][1]);
                        _mm512_store_si512(ds_row + i * sizes_.query_words, narrow_ds[i]);
                        _mm512_store_si512(p_row + i * sizes_.query_words,
                                           narrow(p[i][0], p[i][1]));
                    }
                    store_pairs(at_.pairs + (j + r) / 2 * kQueries + column, narrow_ds[0],
                                narrow_ds[1]);
                } else {
                    for (int64_t i = 0; i < pair; ++i) {
                        for (int v = 0; v < 2; ++v) {
                            const int64_t at = i * sizes_.query_words + v * kLanes;
                            _mm512_store_ps(p_row + at, p[i][v]);
                            _mm512_store_ps(ds_row + at, ds[i][v]);
                        }
                    }
                }
            }
        }
    }

    void store(const typename Base::Row& of, const float* sums, int64_t rows, float factor,
               std::byte* to, int64_t stride) const {
        const __m512 factors = _mm512_set1_ps(factor);
        for (int64_t i = 0; i < rows; ++i) {
            for_each_vector(of.size, [&](int64_t j, __mmask16 mask) {
                store_floats<type>(
                    to + (i * stride + j) * Base::kSize, mask,
                    _mm512_mul_ps(_mm512_load_ps(sums + i * of.columns + j), factors));
            });
        }
    }

    const AttentionGradients& to_;
};

}  // namespace

void attention_panels_backward(const AttentionHead& head, const AttentionGradients& gradients,
                               std::byte* memory) {
    if (head.type == DType::bf16) {
        Backward<DType::bf16>(head, gradients, memory).run();
    } else {
        Backward<DType::fp32>(head, gradients, memory).run();
    }
}

}  // namespace vocabpipe::kernels::host

#elif !defined(__x86_64__)

namespace vocabpipe::kernels::host {

void attention_panels_backward(const AttentionHead& /*head*/,
                               const AttentionGradients& /*gradients*/, std::byte* /*memory*/) {}

}  // namespace vocabpipe::kernels::host

#endif
