// SPDX-License-Identifier: Apache-2.0
// Attention through cuBLASLt: scores of a block of queries at a time, softmax in place.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/attention_checks.hpp"
#include "kernels/check.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/attention_cudnn.hpp"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kCount = 8;  // scores per thread and access
constexpr int kKept = 4;   // of these per thread in registers: rows of up to 4096
constexpr int kMostThreads = 128;

/// What both softmax kernels need to know. A block works on a query of a pair.
struct Softmax {
    AttentionShape shape;
    const int32_t* first_visible;  ///< (N), or null: 0 for all
    QueryBlock queries;
    int64_t first_pair;
    int64_t turn;  ///< which of the query heads that read a pair's keys
    std::byte* scratch;
    int64_t pair_bytes, gradients_at, score_stride;
    /// A score is factor * (q k), or factor * tanh(inner * q k) if it is capped.
    float factor, inner;

    [[nodiscard]] __device__ int64_t pair() const { return first_pair + blockIdx.y; }
    [[nodiscard]] __device__ int64_t head() const {
        return pair() % shape.kv_heads * (shape.heads / shape.kv_heads) + turn;
    }
    [[nodiscard]] __device__ int64_t token() const {
        return pair() / shape.kv_heads * shape.seq_length + queries.begin + blockIdx.x;
    }
    [[nodiscard]] __device__ int64_t keys() const {
        return queries.begin + queries.rows - queries.first_key;
    }
    /// Columns [hidden(), visible()) are the keys that the query sees.
    [[nodiscard]] __device__ int64_t visible() const {
        return queries.begin + blockIdx.x + 1 - queries.first_key;
    }
    [[nodiscard]] __device__ int64_t hidden() const {
        const int64_t by_window = shape.window > 0 ? visible() - shape.window : 0;
        if (first_visible == nullptr) return by_window;
        const int64_t by_document = first_visible[token()] - queries.first_key;
        return by_document > by_window ? by_document : by_window;
    }
    [[nodiscard]] __device__ float* scores() const {
        return reinterpret_cast<float*>(scratch + blockIdx.y * pair_bytes) +
               blockIdx.x * score_stride;
    }
    [[nodiscard]] __device__ float* gradients() const {
        return reinterpret_cast<float*>(scratch + blockIdx.y * pair_bytes + gradients_at) +
               blockIdx.x * score_stride;
    }
    /// A score from q k, but for the factor.
    [[nodiscard]] __device__ float capped(float product) const {
        return shape.softcap > 0 ? tanhf(inner * product) : product;
    }
    /// d score / d (q k), from capped(q k).
    [[nodiscard]] __device__ float slope(float capped) const {
        return shape.softcap > 0 ? shape.scale * (1.0F - capped * capped) : shape.scale;
    }
};

/// Scores, but for the factor, of the columns from `col`; minus infinity for keys that the query
/// does not see.
__device__ __forceinline__ Vector<kCount> visible_scores(const Softmax& a, const float* row,
                                                         int64_t col, int64_t hidden,
                                                         int64_t visible) {
    Vector<kCount> scores;
    scores.load(row + col);
    for (int i = 0; i < kCount; ++i) {
        const bool seen = col + i >= hidden && col + i < visible;
        scores[i] = seen ? a.capped(scores[i]) : -INFINITY;
    }
    return scores;
}

/// scores -> p in place, in the run's type, zero for invisible keys; and log_sum_exp. Where p is
/// narrower it lies in the first half of its row: a tile of scores is read by all threads before
/// the tile of p, which overlaps it and earlier ones only, is written.
template <typename T, bool kKeeps>
__global__ void __launch_bounds__(kMostThreads)
    softmax_kernel(Softmax a, float* log_sum_exp, int64_t log_sum_exp_stride) {
    const float* scores = a.scores();
    T* p = reinterpret_cast<T*>(a.scores());
    const int64_t hidden = a.hidden(), visible = a.visible();
    const int64_t keys = a.keys();
    const int64_t step = int64_t{blockDim.x} * kCount;
    const int64_t first = int64_t{threadIdx.x} * kCount;

    Vector<kCount> kept[kKeeps ? kKept : 1];
    float largest[1] = {-INFINITY};
    const auto take_largest = [&](const Vector<kCount>& values) {
        for (int i = 0; i < kCount; ++i) largest[0] = fmaxf(largest[0], values[i]);
    };
    if constexpr (kKeeps) {
        for (int slot = 0; slot < kKept; ++slot) {
            const int64_t col = first + slot * step;
            if (col < visible)
                take_largest(kept[slot] = visible_scores(a, scores, col, hidden, visible));
        }
    } else {
        for (int64_t col = first; col < visible; col += step) {
            take_largest(visible_scores(a, scores, col, hidden, visible));
        }
    }
    block_reduce<Maximum>(largest);

    float sum[1] = {0.0F};
    const auto exponentials = [&](Vector<kCount>& values) {
        for (int i = 0; i < kCount; ++i) values[i] = expf(a.factor * (values[i] - largest[0]));
    };
    const auto add_exponentials = [&](Vector<kCount>& values) {
        exponentials(values);
        for (int i = 0; i < kCount; ++i) sum[0] += values[i];
    };
    if constexpr (kKeeps) {
        for (int slot = 0; slot < kKept; ++slot) {
            if (first + slot * step < visible) add_exponentials(kept[slot]);
        }
    } else {
        for (int64_t col = first; col < visible; col += step) {
            auto values = visible_scores(a, scores, col, hidden, visible);
            add_exponentials(values);
        }
    }
    block_reduce<Sum>(sum);

    const float inverse_sum = 1.0F / sum[0];
    const auto write = [&](int64_t col, Vector<kCount>& values) {
        for (int i = 0; i < kCount; ++i) {
            values[i] = col + i < visible ? values[i] * inverse_sum : 0.0F;
        }
        values.store(p + col);
    };
    if constexpr (kKeeps) {
        for (int slot = 0; slot < kKept; ++slot) {
            const int64_t col = first + slot * step;
            if (col < keys) write(col, kept[slot]);
        }
    } else {
        for (int64_t base = 0; base < keys; base += step) {
            const int64_t col = base + first;
            Vector<kCount> values = {};
            if (col < visible) {
                values = visible_scores(a, scores, col, hidden, visible);
                exponentials(values);
            }
            __syncthreads();
            if (col < keys) write(col, values);
        }
    }
    if (threadIdx.x == 0) {
        log_sum_exp[a.token() * log_sum_exp_stride + a.head()] =
            a.factor * largest[0] + logf(sum[0]);
    }
}

template <typename T>
struct GradientArguments {
    const T* dout;
    const T* out;
    const float* log_sum_exp;
    int64_t dout_stride, out_stride, log_sum_exp_stride;
};

/// scores -> p and dp -> ds, both in place as above: ds_j = p_j (dp_j - delta) slope_j with
/// delta = dout out = sum_j p_j dp_j.
template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    softmax_gradient_kernel(Softmax a, GradientArguments<T> g) {
    const int64_t token = a.token(), head = a.head();
    const T* dout = g.dout + token * g.dout_stride + head * a.shape.head_size;
    const T* out = g.out + token * g.out_stride + head * a.shape.head_size;
    float delta[1] = {0.0F};
    for (int64_t i = threadIdx.x; i < a.shape.head_size; i += blockDim.x) {
        delta[0] += to_float(dout[i]) * to_float(out[i]);
    }
    block_reduce<Sum>(delta);
    const float log_sum_exp = g.log_sum_exp[token * g.log_sum_exp_stride + head];

    const float* scores = a.scores();
    const float* gradients = a.gradients();
    T* p = reinterpret_cast<T*>(a.scores());
    T* ds = reinterpret_cast<T*>(a.gradients());
    const int64_t hidden = a.hidden(), visible = a.visible();
    const int64_t keys = a.keys();
    const int64_t step = int64_t{blockDim.x} * kCount;
    for (int64_t base = 0; base < keys; base += step) {
        const int64_t col = base + int64_t{threadIdx.x} * kCount;
        Vector<kCount> probability = {}, gradient = {};
        if (col < visible) {
            probability.load(scores + col);
            gradient.load(gradients + col);
            for (int i = 0; i < kCount; ++i) {
                const bool seen = col + i >= hidden && col + i < visible;
                const float score = a.capped(probability[i]);
                probability[i] = seen ? expf(a.factor * score - log_sum_exp) : 0.0F;
                gradient[i] =
                    seen ? probability[i] * (gradient[i] - delta[0]) * a.slope(score) : 0.0F;
            }
        }
        __syncthreads();
        if (col < keys) {
            probability.store(p + col);
            gradient.store(ds + col);
        }
    }
}

/// The sums of dk and dv of a chunk's pairs, which end each pair's scratch, = 0.
__global__ void __launch_bounds__(256)
    clear_sums_kernel(std::byte* scratch, int64_t pair_bytes, int64_t sums_at) {
    auto* sums = reinterpret_cast<float4*>(scratch + blockIdx.y * pair_bytes + sums_at);
    const int64_t threads = int64_t{gridDim.x} * blockDim.x;
    const int64_t count = (pair_bytes - sums_at) / static_cast<int64_t>(sizeof(float4));
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
        sums[i] = {};
    }
}

/// The fp32 sums of dk and dv of a chunk's pairs -> their columns of dqkv, `dk` and `dv`.
template <typename T>
__global__ void __launch_bounds__(256)
    store_sums_kernel(AttentionShape shape, int64_t first_pair, const std::byte* scratch,
                      int64_t pair_bytes, int64_t dk_at, int64_t dv_at, T* dk, T* dv,
                      int64_t stride) {
    const int64_t pair = first_pair + blockIdx.y;
    const std::byte* mine = scratch + blockIdx.y * pair_bytes;
    const auto* dk_sum = reinterpret_cast<const float*>(mine + dk_at);
    const auto* dv_sum = reinterpret_cast<const float*>(mine + dv_at);
    const int64_t d = shape.head_size;
    const int64_t first =
        pair / shape.kv_heads * shape.seq_length * stride + pair % shape.kv_heads * d;
    const int64_t threads = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < shape.seq_length * d;
         i += threads) {
        const int64_t at = first + i / d * stride + i % d;
        dk[at] = from_float<T>(dk_sum[i]);
        dv[at] = from_float<T>(dv_sum[i]);
    }
}

/// One call of forward or backward: walks over chunks of groups, their blocks of queries, the turns
/// of the query heads that read one key head, and the groups' products.
class Attention {
public:
    Attention(Context& ctx, AttentionShape shape, std::span<const int32_t> first_visible,
              DType type, std::span<std::byte> workspace)
        : ctx_(ctx),
          shape_(with_scale(shape)),
          first_visible_(first_visible),
          plan_(shape),
          type_(type),
          scratch_(workspace.data()),
          chunk_groups_(plan_.groups_in(static_cast<int64_t>(workspace.size()))) {}

    void forward(ConstTensor qkv, Tensor out, Tensor log_sum_exp) {
        for_chunks([&] {
            for (int64_t begin = 0; begin < shape_.seq_length; begin += plan_.query_rows) {
                const QueryBlock queries = plan_.block(begin);
                for (turn_ = 0; turn_ < turns(); ++turn_) {
                    for_groups([&](Group group) { score(qkv, group, queries); });
                    softmax(queries, log_sum_exp);
                    for_groups([&](Group group) {
                        multiply(ctx_, {.a = probabilities(group, queries, 0),
                                        .b = keys_of(qkv, group, queries, 2),
                                        .c = queries_of(out, group, queries),
                                        .batch = group.heads,
                                        .a_step = step(type_),
                                        .b_step = shape_.head_size,
                                        .c_step = query_step()});
                    });
                }
            }
        });
    }

    void backward(ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor log_sum_exp,
                  Tensor dqkv) {
        const int64_t last = plan_.last_block();
        for_chunks([&] {
            // The last block covers all keys, so that it can start the sums, unless there is a
            // window.
            if (plan_.skips_keys()) clear_sums();
            for (int64_t begin = last; begin >= 0; begin -= plan_.query_rows) {
                const QueryBlock queries = plan_.block(begin);
                for (turn_ = 0; turn_ < turns(); ++turn_) {
                    const bool accumulate = plan_.skips_keys() || begin != last || turn_ > 0;
                    for_groups([&](Group group) {
                        score(qkv, group, queries);
                        score_gradient(dout, qkv, group, queries);
                    });
                    softmax_gradient(queries, dout, out, log_sum_exp);
                    for_groups([&](Group group) {
                        gradient_products(dout, qkv, group, queries, accumulate, dqkv);
                    });
                }
            }
            store_sums(dqkv);
        });
    }

private:
    /// Consecutive heads of keys and values of one sequence.
    struct Group {
        int64_t sequence, head, heads;
        int64_t slot;  ///< of its first pair in the scratch
    };

    [[nodiscard]] static AttentionShape with_scale(AttentionShape shape) {
        if (shape.scale == 0) shape.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_size));
        return shape;
    }
    /// Query heads that read one head of keys.
    [[nodiscard]] int64_t turns() const { return shape_.heads / shape_.kv_heads; }

    template <typename Body>
    void for_chunks(Body&& body) {
        for (first_group_ = 0; first_group_ < plan_.groups; first_group_ += chunk_groups_) {
            first_pair_ = group(first_group_).slot;
            const Group last = group(std::min(first_group_ + chunk_groups_, plan_.groups) - 1);
            pairs_ = last.slot + last.heads - first_pair_;
            body();
        }
    }
    /// Group number `index`; its slot counts from the first pair of all.
    [[nodiscard]] Group group(int64_t index) const {
        const int64_t per_sequence = plan_.groups / shape_.sequences;
        const int64_t sequence = index / per_sequence;
        const int64_t head = index % per_sequence * plan_.group_heads;
        return {sequence, head, std::min(plan_.group_heads, shape_.kv_heads - head),
                sequence * shape_.kv_heads + head};
    }
    template <typename Body>
    void for_groups(Body&& body) {
        const int64_t end = std::min(first_group_ + chunk_groups_, plan_.groups);
        for (int64_t index = first_group_; index < end; ++index) {
            Group one = group(index);
            one.slot -= first_pair_;
            body(one);
        }
    }

    /// Elements from one pair's scratch to the next one's.
    [[nodiscard]] int64_t step(DType type) const { return plan_.pair_bytes / size_of(type); }
    [[nodiscard]] std::byte* scratch_of(Group group, int64_t at) const {
        return scratch_ + group.slot * plan_.pair_bytes + at;
    }
    /// Elements from the query head of one pair whose turn it is to that of the next pair.
    [[nodiscard]] int64_t query_step() const { return turns() * shape_.head_size; }
    /// Rows of the query head of the group's first pair: of out, dout, or the q of qkv and dqkv.
    template <typename View>
    [[nodiscard]] View queries_of(View tensor, Group group, QueryBlock queries) const {
        return tensor.row_range(group.sequence * shape_.seq_length + queries.begin, queries.rows)
            .column_range((group.head * turns() + turn_) * shape_.head_size, shape_.head_size);
    }
    /// The keys (part 1) or values (part 2) that a block of queries sees.
    [[nodiscard]] ConstTensor keys_of(ConstTensor qkv, Group group, QueryBlock queries,
                                      int64_t part) const {
        return qkv.row_range(group.sequence * shape_.seq_length + queries.first_key, queries.keys())
            .column_range(shape_.query_columns() + (part - 1) * shape_.kv_columns() +
                              group.head * shape_.head_size,
                          shape_.head_size);
    }
    [[nodiscard]] Tensor scores(Group group, QueryBlock queries, int64_t at) const {
        return {scratch_of(group, at), queries.rows, queries.keys(), plan_.score_stride,
                DType::fp32};
    }
    /// p (at 0) or ds, where the scores and their gradients were.
    [[nodiscard]] ConstTensor probabilities(Group group, QueryBlock queries, int64_t at) const {
        const int64_t stride = plan_.score_stride * size_of(DType::fp32) / size_of(type_);
        return {scratch_of(group, at), queries.rows, queries.keys(), stride, type_};
    }
    [[nodiscard]] Tensor sum(Group group, QueryBlock queries, int64_t at) const {
        const Tensor whole(scratch_of(group, at), shape_.seq_length, shape_.head_size, DType::fp32);
        return whole.row_range(queries.first_key, queries.keys());
    }

    /// a b^T of the group's heads -> fp32 matrices in the scratch; a's are those of queries.
    void to_scratch(ConstTensor a, ConstTensor b, Tensor c, Group group) {
        multiply(ctx_, {.a = a,
                        .b = b,
                        .transpose_b = true,
                        .c = c,
                        .batch = group.heads,
                        .a_step = query_step(),
                        .b_step = shape_.head_size,
                        .c_step = step(DType::fp32)});
    }
    void score(ConstTensor qkv, Group group, QueryBlock queries) {
        to_scratch(queries_of(qkv, group, queries), keys_of(qkv, group, queries, 1),
                   scores(group, queries, 0), group);
    }
    void score_gradient(ConstTensor dout, ConstTensor qkv, Group group, QueryBlock queries) {
        to_scratch(queries_of(dout, group, queries), keys_of(qkv, group, queries, 2),
                   scores(group, queries, plan_.gradients_at), group);
    }
    /// total [+]= weights^T rows, rows being those of queries
    void add_to_sum(ConstTensor weights, ConstTensor rows, Tensor total, Group group,
                    bool accumulate) {
        multiply(ctx_, {.a = weights,
                        .transpose_a = true,
                        .b = rows,
                        .c = total,
                        .addend = accumulate ? ConstTensor(total) : ConstTensor{},
                        .batch = group.heads,
                        .a_step = step(type_),
                        .b_step = query_step(),
                        .c_step = step(DType::fp32)});
    }
    void gradient_products(ConstTensor dout, ConstTensor qkv, Group group, QueryBlock queries,
                           bool accumulate, Tensor dqkv) {
        add_to_sum(probabilities(group, queries, 0), queries_of(dout, group, queries),
                   sum(group, queries, plan_.dv_at), group, accumulate);
        const ConstTensor ds = probabilities(group, queries, plan_.gradients_at);
        add_to_sum(ds, queries_of(qkv, group, queries), sum(group, queries, plan_.dk_at), group,
                   accumulate);
        multiply(ctx_, {.a = ds,
                        .b = keys_of(qkv, group, queries, 1),
                        .c = queries_of(dqkv, group, queries),
                        .batch = group.heads,
                        .a_step = step(type_),
                        .b_step = shape_.head_size,
                        .c_step = query_step()});
    }

    [[nodiscard]] Softmax arguments(QueryBlock queries) const {
        return {.shape = shape_,
                .first_visible = first_visible_.empty() ? nullptr : first_visible_.data(),
                .queries = queries,
                .first_pair = first_pair_,
                .turn = turn_,
                .scratch = scratch_,
                .pair_bytes = plan_.pair_bytes,
                .gradients_at = plan_.gradients_at,
                .score_stride = plan_.score_stride,
                .factor = shape_.softcap > 0 ? shape_.softcap : shape_.scale,
                .inner = shape_.softcap > 0 ? shape_.scale / shape_.softcap : 0.0F};
    }
    [[nodiscard]] dim3 grid(QueryBlock queries) const {
        return dim3(static_cast<unsigned>(queries.rows), static_cast<unsigned>(pairs_));
    }
    /// Whole warps that take a row in `passes` vectors per thread, as far as they can.
    [[nodiscard]] static unsigned threads_for(int64_t keys, int64_t passes) {
        const int64_t per_warp = int64_t{kWarpThreads} * kCount * passes;
        return static_cast<unsigned>(
            std::min<int64_t>((keys + per_warp - 1) / per_warp * kWarpThreads, kMostThreads));
    }

    void softmax(QueryBlock queries, Tensor log_sum_exp) {
        const unsigned threads = threads_for(queries.keys(), kKept / 2);
        const bool keeps = queries.keys() <= int64_t{threads} * kCount * kKept;
        with_element_type(type_, [&]<typename T>() {
            launch(ctx_, keeps ? softmax_kernel<T, true> : softmax_kernel<T, false>, grid(queries),
                   dim3(threads), arguments(queries), log_sum_exp.as<float>(), log_sum_exp.stride);
        });
    }
    void softmax_gradient(QueryBlock queries, ConstTensor dout, ConstTensor out,
                          ConstTensor log_sum_exp) {
        with_element_type(type_, [&]<typename T>() {
            const GradientArguments<T> gradient{.dout = dout.as<T>(),
                                                .out = out.as<T>(),
                                                .log_sum_exp = log_sum_exp.as<float>(),
                                                .dout_stride = dout.stride,
                                                .out_stride = out.stride,
                                                .log_sum_exp_stride = log_sum_exp.stride};
            launch(ctx_, softmax_gradient_kernel<T>, grid(queries),
                   dim3(threads_for(queries.keys(), 1)), arguments(queries), gradient);
        });
    }
    void clear_sums() {
        const unsigned blocks = blocks_for(plan_.pair_bytes - plan_.dk_at, int64_t{256} * 8 * 16);
        launch(ctx_, clear_sums_kernel, dim3(blocks, static_cast<unsigned>(pairs_)), dim3(256),
               scratch_, plan_.pair_bytes, plan_.dk_at);
    }
    void store_sums(Tensor dqkv) {
        const unsigned blocks = blocks_for(shape_.seq_length * shape_.head_size, int64_t{256} * 8);
        const int64_t keys = shape_.kv_columns();
        const Tensor dk = dqkv.column_range(shape_.query_columns(), keys);
        const Tensor dv = dqkv.column_range(shape_.query_columns() + keys, keys);
        with_element_type(type_, [&]<typename T>() {
            launch(ctx_, store_sums_kernel<T>, dim3(blocks, static_cast<unsigned>(pairs_)),
                   dim3(256), shape_, first_pair_, scratch_, plan_.pair_bytes, plan_.dk_at,
                   plan_.dv_at, dk.as<T>(), dv.as<T>(), dqkv.stride);
        });
    }

    Context& ctx_;
    AttentionShape shape_;
    std::span<const int32_t> first_visible_;
    AttentionPlan plan_;
    DType type_;
    std::byte* scratch_;
    int64_t chunk_groups_;
    // The chunk of now, and the turn.
    int64_t first_group_ = 0, first_pair_ = 0, pairs_ = 0, turn_ = 0;
};

void require_arguments(ConstTensor qkv, AttentionShape shape,
                       std::span<const int32_t> first_visible, ConstTensor out,
                       ConstTensor log_sum_exp, std::span<std::byte> workspace) {
    require_attention(qkv, shape, first_visible, out, log_sum_exp);
    require(static_cast<int64_t>(workspace.size()) >= AttentionPlan(shape).group_bytes(),
            "workspace of attention_workspace_bytes()");
}

}  // namespace

int64_t attention_workspace_bytes(AttentionShape shape, DType type, int) {
    return std::max(AttentionPlan(shape).workspace_bytes(),
                    cudnn_attention_workspace_bytes(shape, type));
}

void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
                              std::span<const int32_t> first_visible, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte> workspace) {
    require_arguments(qkv, shape, first_visible, out, log_sum_exp, workspace);
    if (out.size() == 0) return;
    if (first_visible.empty() &&
        try_cudnn_attention_forward(ctx, qkv, shape, out, log_sum_exp, workspace)) {
        return;
    }
    Attention(ctx, shape, first_visible, qkv.dtype, workspace).forward(qkv, out, log_sum_exp);
}

void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                               ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dqkv,
                               std::span<std::byte> workspace) {
    require_arguments(qkv, shape, first_visible, out, log_sum_exp, workspace);
    require_attention_gradients(dout, qkv, out, dqkv);
    if (out.size() == 0) return;
    if (first_visible.empty() &&
        try_cudnn_attention_backward(ctx, dout, qkv, out, log_sum_exp, shape, dqkv, workspace)) {
        return;
    }
    Attention(ctx, shape, first_visible, qkv.dtype, workspace)
        .backward(dout, qkv, out, log_sum_exp, dqkv);
}

}  // namespace vocabpipe::kernels::cuda
