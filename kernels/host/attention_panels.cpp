// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 on every machine: nothing of the standard library may be instantiated here,
// because the linker might use that instance elsewhere, too.
#include "kernels/host/attention_panels.hpp"

#ifdef __AVX512BF16__

#include "kernels/host/attention_head.hpp"

namespace vocabpipe::kernels::host {

namespace {

template <DType type>
class Forward : Head<type> {
    using Base = Head<type>;
    using Base::at_, Base::head_, Base::sizes_, Base::begin_, Base::rows_, Base::first_key_;

public:
    Forward(const AttentionHead& head, const AttentionOutput& to, std::byte* memory)
        : Base(head, memory), to_(to) {}

    void run() {
        this->pack_rows(sizes_.keys, head_.k, at_.k_rows);
        this->pack_terms(sizes_.values, head_.v, head_.kv_stride, head_.length, at_.terms);
        for (int64_t begin = 0; begin < head_.queries; begin += kQueries) {
            this->set_block(begin);
            for (int64_t i = 0; i < kQueries; ++i) {
                at_.maximum[i] = kLowest;
                at_.total[i] = 0;
            }
            for (int64_t key = first_key_; key < this->end_key(); key += kKeys) {
                const int64_t count = smaller(kKeys, this->end_key() - key);
                score(key, count);
                for (int64_t v = 0; v < vectors_of(rows_); v += 2) softmax(v, count);
                this->add_to_queries(sizes_.values, key, count, at_.pairs,
                                     key == first_key_ ? nullptr : at_.kept);
            }
            store();
        }
    }

private:
    void score(int64_t key, int64_t count) {
        for (int64_t j = 0; j < count; j += kRowsOfTile) {
            const int64_t rows = smaller(kRowsOfTile, count - j);
            for (int64_t i = 0; key + count == this->end_key() && i < rows; ++i) {
                this->prefetch(sizes_.keys, head_.q, head_.q_stride, begin_ + kQueries + j + i,
                               head_.queries);
            }
            this->multiply_lanes(sizes_.keys, at_.k_rows, key + j, rows, at_.q,
                                 this->vectors_that_see(key + j, rows), at_.scores + j * kQueries);
        }
        const int64_t numbers = count * kQueries;
        if (head_.cap > 0) {
            const __m512 factor = _mm512_set1_ps(head_.scale / head_.cap);
            const __m512 cap = _mm512_set1_ps(head_.cap);
            for (int64_t i = 0; i < numbers; i += kLanes) {
                const __m512 x = _mm512_mul_ps(_mm512_load_ps(at_.scores + i), factor);
                _mm512_store_ps(at_.scores + i, _mm512_mul_ps(cap, tanh(x)));
            }
        }
        if (this->all_see(key, count)) return;
        const __m512 never = _mm512_set1_ps(-__builtin_inff());
        for (int64_t i = 0; i < numbers; i += kLanes) {
            const __mmask16 seen = this->who_see(key + i / kQueries, i % kQueries / kLanes);
            _mm512_store_ps(at_.scores + i,
                            _mm512_mask_mov_ps(never, seen, _mm512_load_ps(at_.scores + i)));
        }
    }

    /// For the queries of two vectors: turns scores of `count` keys into exp(score - maximum), with
    /// sums.
    void softmax(int64_t vector, int64_t count) {
        const int64_t column = vector * kLanes;
        const float* const scores = at_.scores + column;
        const __m512 scale = _mm512_set1_ps(head_.cap > 0 ? 1.0F : head_.scale);
        __m512 largest[2][2];  // even and odd keys: independent chains
        for (int v = 0; v < 2; ++v) {
            largest[v][0] = largest[v][1] = _mm512_load_ps(scores + v * kLanes);
        }
        for (int64_t j = 1; j < count; j += 2) {
            const float* const row = scores + j * kQueries;
            const float* const next = j + 1 < count ? row + kQueries : row;
            for (int v = 0; v < 2; ++v) {
                largest[v][0] = _mm512_max_ps(largest[v][0], _mm512_load_ps(row + v * kLanes));
                largest[v][1] = _mm512_max_ps(largest[v][1], _mm512_load_ps(next + v * kLanes));
            }
        }
        __m512 maximum[2], total[2];
        for (int v = 0; v < 2; ++v) {
            float* const of_queries = at_.maximum + column + v * kLanes;
            const __m512 before = _mm512_load_ps(of_queries);
            maximum[v] = _mm512_max_ps(
                before, _mm512_mul_ps(_mm512_max_ps(largest[v][0], largest[v][1]), scale));
            const __m512 kept = exp(_mm512_sub_ps(before, maximum[v]));
            total[v] = _mm512_mul_ps(_mm512_load_ps(at_.total + column + v * kLanes), kept);
            _mm512_store_ps(of_queries, maximum[v]);
            _mm512_store_ps(at_.kept + column + v * kLanes, kept);
        }
        const auto exponentials = [&](int64_t j, __m512(&to)[2]) {
            for (int v = 0; v < 2; ++v) {
                const __m512 s = _mm512_load_ps(scores + j * kQueries + v * kLanes);
                to[v] = exp(_mm512_fmsub_ps(s, scale, maximum[v]));
                total[v] = _mm512_add_ps(total[v], to[v]);
            }
        };
        __m512 p[2], next[2];
        if constexpr (type == DType::bf16) {
            for (int64_t j = 0; j < count; j += 2) {
                exponentials(j, p);
                if (j + 1 < count) {
                    exponentials(j + 1, next);
                } else {
                    next[0] = next[1] = _mm512_setzero_ps();
                }
                store_pairs(at_.pairs + j / 2 * kQueries + column, narrow(p[0], p[1]),
                            narrow(next[0], next[1]));
            }
        } else {
            for (int64_t j = 0; j < count; ++j) {
                exponentials(j, p);
                for (int v = 0; v < 2; ++v) {
                    _mm512_store_ps(at_.scores + j * kQueries + column + v * kLanes, p[v]);
                }
            }
        }
        for (int v = 0; v < 2; ++v) _mm512_store_ps(at_.total + column + v * kLanes, total[v]);
    }

    void store() const {
        for (int64_t i = 0; i < rows_; ++i) {
            const float total = at_.total[i];
            to_.log_sum_exp[(begin_ + i) * to_.log_sum_exp_stride] =
                at_.maximum[i] + __builtin_logf(total);
            const __m512 factor = _mm512_set1_ps(1.0F / total);
            std::byte* const out = this->row(to_.out, begin_ + i, to_.stride);
            const float* const sums = at_.sums + i * sizes_.values.columns;
            for_each_vector(head_.value_size, [&](int64_t j, __mmask16 mask) {
                store_floats<type>(out + j * Base::kSize, mask,
                                   _mm512_mul_ps(_mm512_load_ps(sums + j), factor));
            });
        }
    }

    const AttentionOutput& to_;
};

}  // namespace

void attention_panels_forward(const AttentionHead& head, const AttentionOutput& to,
                              std::byte* memory) {
    if (head.type == DType::bf16) {
        Forward<DType::bf16>(head, to, memory).run();
    } else {
        Forward<DType::fp32>(head, to, memory).run();
    }
}

}  // namespace vocabpipe::kernels::host

#elif !defined(__x86_64__)

namespace vocabpipe::kernels::host {

void attention_panels_forward(const AttentionHead& /*head*/, const AttentionOutput& /*to*/,
                              std::byte* /*memory*/) {}

}  // namespace vocabpipe::kernels::host

#endif
