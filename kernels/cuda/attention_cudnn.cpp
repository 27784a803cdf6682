// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_cudnn.hpp"

#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/attention_statistics.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

namespace graph = cudnn_frontend::graph;

/// cuDNN's deterministic backward pass keeps the gradients of all scores in bf16, in tiles of 64
/// queries and 128 keys. As many heads run at a time as stay below this.
constexpr int64_t kCudnnScoreBytes = int64_t{256} << 20;
/// For further memory of cuDNN's engines; not documented.
constexpr int64_t kEngineBytes = int64_t{1} << 20;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

int64_t score_bytes_per_pair(AttentionShape shape) {
    return round_up(shape.seq_length, 64) * round_up(shape.seq_length, 128) * size_of(DType::bf16);
}

/// Bytes of (sequence, head, token) fp32, rounded up so that the next array is aligned.
int64_t statistics_bytes(AttentionShape shape) {
    return round_up(shape.tokens() * shape.heads * size_of(DType::fp32), 256);
}

/// Query heads that read one head of keys.
int64_t sharers(AttentionShape shape) {
    return shape.heads / shape.kv_heads;
}

bool may_apply(AttentionShape shape, DType type) {
    return type == DType::bf16 && shape.causal && shape.seq_length > 1 &&
           shape.first_query() == 0 && shape.value_size() == shape.head_size &&
           shape.head_size % 8 == 0 && shape.head_size > 0 && shape.head_size <= 256 &&
           score_bytes_per_pair(shape) * sharers(shape) <= kCudnnScoreBytes;
}

/// The part whose backward pass runs at a time: some of the sequences, or some of one sequence's
/// heads; all query heads that read one head of keys stay together.
AttentionShape backward_part(AttentionShape shape) {
    const int64_t pairs = kCudnnScoreBytes / score_bytes_per_pair(shape);
    AttentionShape part = shape;
    part.sequences = std::clamp<int64_t>(pairs / shape.heads, 1, shape.sequences);
    part.kv_heads = std::min(shape.kv_heads, pairs / sharers(shape));
    part.heads = part.kv_heads * sharers(shape);
    return part;
}

/// Bytes of statistics, row sums of score gradients, and fp32 dq, and where heads of keys are
/// shared dk and dv of every query head: all that an algorithm without score gradients in memory
/// needs.
int64_t bytes_beside_scores(AttentionShape part) {
    const int64_t sums = sharers(part) > 1 ? 3 : 1;
    return 2 * statistics_bytes(part) +
           sums * part.tokens() * part.query_columns() * size_of(DType::fp32) + kEngineBytes;
}

/// Enough for each of cuDNN's algorithms.
int64_t backward_bytes(AttentionShape shape) {
    const AttentionShape part = backward_part(shape);
    return bytes_beside_scores(part) + part.sequences * part.heads * score_bytes_per_pair(shape);
}

bool aligned(ConstTensor t) {
    return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride % 8 == 0;
}

enum Id : int64_t { kQ = 1, kK, kV, kOut, kStatistics, kDOut, kDQ, kDK, kDV };

struct PlanKey {
    bool backward;
    bool may_vary;  ///< for gradients only
    int64_t sequences, seq_length, heads, kv_heads, head_size;
    float scale, softcap;
    int64_t window;  ///< 0: none
    int64_t q_stride, kv_stride, out_stride, dout_stride, dq_stride, dkv_stride;

    auto operator<=>(const PlanKey&) const = default;
};

/// A graph that cuDNN has planned; null where it does not support the graph.
using Plan = std::unique_ptr<graph::Graph>;

[[noreturn]] void fail(const std::string& call, const std::string& message) {
    throw DeviceError("attention with cuDNN: " + call + ": " + message +
                      "; to build without cuDNN, set -DVOCABPIPE_ENABLE_CUDNN=OFF");
}

using Attributes = std::shared_ptr<graph::Tensor_attributes>;

/// Describes (sequences, heads, tokens, head_size): a head's columns in rows `stride` elements
/// apart.
template <typename Node>
Node& place(Node& tensor, const PlanKey& key, Id id, int64_t stride) {
    const bool of_keys = id == kK || id == kV || id == kDK || id == kDV;
    return tensor.set_uid(id)
        .set_dim({key.sequences, of_keys ? key.kv_heads : key.heads, key.seq_length, key.head_size})
        .set_stride({key.seq_length * stride, key.head_size, stride, 1})
        .set_data_type(cudnn_frontend::DataType_t::BFLOAT16);
}
template <typename Node>
Node& place_statistics(Node& tensor, const PlanKey& key) {
    return tensor.set_uid(kStatistics)
        .set_dim({key.sequences, key.heads, key.seq_length, 1})
        .set_stride({key.heads * key.seq_length, key.seq_length, 1, 1})
        .set_data_type(cudnn_frontend::DataType_t::FLOAT);
}

Attributes input(graph::Graph& g, const PlanKey& key, Id id, int64_t stride) {
    graph::Tensor_attributes tensor;
    return g.tensor(place(tensor, key, id, stride));
}
void output(const Attributes& tensor, const PlanKey& key, Id id, int64_t stride) {
    place(*tensor, key, id, stride).set_output(true);
}

/// Scores of a soft-capped model, cap tanh(score / cap), masked, and their gradients. A graph with
/// modified scores takes no other mask, so the modifier masks as well.
class SoftCap {
public:
    SoftCap(graph::Graph& g, const PlanKey& key)
        : key_(key),
          inverse_(g.tensor(1.0F / key.softcap)),
          cap_(g.tensor(key.softcap)),
          one_(g.tensor(1.0F)) {}

    Attributes scores(const std::shared_ptr<graph::Graph>& g, const Attributes& products) {
        tanh_ =
            g->pointwise(binary(*g, "over_cap", Mode::MUL, products, inverse_),
                         graph::Pointwise_attributes().set_name("tanh").set_mode(Mode::TANH_FWD));
        const auto capped = binary(*g, "capped", Mode::MUL, tanh_, cap_);
        std::optional<int64_t> left;
        if (key_.window > 0) left = key_.window;
        return graph::attn::score_modifiers::sliding_window_mask(
            g, capped, cudnn_frontend::DiagonalAlignment_t::TOP_LEFT, left, 0, key_.seq_length,
            key_.seq_length, nullptr, nullptr);
    }
    /// Call it after scores() of the same graph.
    [[nodiscard]] Attributes gradients(const std::shared_ptr<graph::Graph>& g,
                                       const Attributes& of_scores) const {
        const auto square = binary(*g, "tanh_squared", Mode::MUL, tanh_, tanh_);
        const auto slope = binary(*g, "slope", Mode::SUB, one_, square);
        return binary(*g, "through_cap", Mode::MUL, of_scores, slope);
    }

private:
    using Mode = cudnn_frontend::PointwiseMode_t;
    static Attributes binary(graph::Graph& g, const char* name, Mode mode, const Attributes& a,
                             const Attributes& b) {
        return g.pointwise(a, b, graph::Pointwise_attributes().set_name(name).set_mode(mode));
    }

    PlanKey key_;
    Attributes inverse_, cap_, one_, tanh_;
};

/// `cap`: for a soft-capped model, or null.
template <typename Options>
Options causal(const char* name, const PlanKey& key, const std::shared_ptr<SoftCap>& cap) {
    Options options;
    options.set_name(name).set_attn_scale(key.scale);
    if (cap) {
        options.set_score_mod([cap](auto g, auto products) { return cap->scores(g, products); });
        return options;
    }
    options.set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    // Query i then sees keys j with j + bound > i.
    if (key.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(key.window));
    return options;
}

Plan plan(cudnnHandle_t handle, const PlanKey& key) {
    auto g = std::make_unique<graph::Graph>();
    g->set_io_data_type(cudnn_frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
        .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT);
    const auto q = input(*g, key, kQ, key.q_stride);
    const auto k = input(*g, key, kK, key.kv_stride);
    const auto v = input(*g, key, kV, key.kv_stride);
    const auto cap = key.softcap > 0 ? std::make_shared<SoftCap>(*g, key) : nullptr;
    if (key.backward) {
        const auto out = input(*g, key, kOut, key.out_stride);
        const auto dout = input(*g, key, kDOut, key.dout_stride);
        graph::Tensor_attributes statistics;
        const auto stats = g->tensor(place_statistics(statistics, key));
        auto options = causal<graph::SDPA_backward_attributes>("attention_backward", key, cap);
        if (cap) {
            options.set_score_mod_bprop(
                [cap](auto graph, auto of_scores) { return cap->gradients(graph, of_scores); });
        }
        options.set_deterministic_algorithm(!key.may_vary);
        const auto [dq, dk, dv] = g->sdpa_backward(q, k, v, out, dout, stats, options);
        output(dq, key, kDQ, key.dq_stride);
        output(dk, key, kDK, key.dkv_stride);
        output(dv, key, kDV, key.dkv_stride);
    } else {
        auto options = causal<graph::SDPA_attributes>("attention", key, cap);
        options.set_generate_stats(true);
        const auto [out, stats] = g->sdpa(q, k, v, options);
        output(out, key, kOut, key.out_stride);
        place_statistics(*stats, key).set_output(true);
    }
    auto status = g->build(handle, {cudnn_frontend::HeurMode_t::A});
    if (status.is_good()) return g;
    using Code = cudnn_frontend::error_code_t;
    // Codes for a GPU, version or shape for which cuDNN has no plan; the last two also occur where
    // plans were promised and then refused.
    if (status.get_code() == Code::GRAPH_NOT_SUPPORTED ||
        status.get_code() == Code::HEURISTIC_QUERY_FAILED ||
        status.get_code() == Code::GRAPH_EXECUTION_PLAN_CREATION_FAILED ||
        status.get_code() == Code::CUDNN_BACKEND_API_FAILED) {
        return nullptr;
    }
    fail("building the graph", status.get_message());
}

}  // namespace

class CudnnAttention {
public:
    CudnnAttention() {
        cudnnHandle_t handle = nullptr;
        const cudnnStatus_t status = cudnnCreate(&handle);
        if (status != CUDNN_STATUS_SUCCESS) fail("cudnnCreate", cudnnGetErrorString(status));
        handle_.reset(handle);
    }

    /// Runs the plan of `key`; returns false if cuDNN has none, or the workspace is too small for
    /// it.
    bool run(const PlanKey& key, cudaStream_t stream, std::unordered_map<int64_t, void*> pointers,
             std::span<std::byte> workspace) {
        auto found = plans_.find(key);
        if (found == plans_.end()) found = plans_.emplace(key, plan(handle_.get(), key)).first;
        graph::Graph* g = found->second.get();
        if (g == nullptr) return false;
        // A plan's need is not documented; the size from before the run is an estimate.
        if (g->get_workspace_size() > static_cast<int64_t>(workspace.size())) return false;
        const cudnnStatus_t set = cudnnSetStream(handle_.get(), stream);
        if (set != CUDNN_STATUS_SUCCESS) fail("cudnnSetStream", cudnnGetErrorString(set));
        auto status = g->execute(handle_.get(), pointers, workspace.data());
        if (!status.is_good()) fail("running the graph", status.get_message());
        return true;
    }

private:
    struct Destroy {
        void operator()(cudnnHandle_t handle) const { (void)cudnnDestroy(handle); }
    };
    std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, Destroy> handle_;
    std::map<PlanKey, Plan> plans_;
};

namespace {

CudnnAttention& plans_of(Engine& engine) {
    auto& plans = engine.state().cudnn;
    if (!plans) plans = std::make_shared<CudnnAttention>();
    return *plans;
}

/// The key without strides.
PlanKey plan_key(bool backward, AttentionShape shape) {
    return {.backward = backward,
            .may_vary = false,
            .sequences = shape.sequences,
            .seq_length = shape.seq_length,
            .heads = shape.heads,
            .kv_heads = shape.kv_heads,
            .head_size = shape.head_size,
            .scale = shape.scale != 0 ? shape.scale
                                      : 1.0F / std::sqrt(static_cast<float>(shape.head_size)),
            .softcap = shape.softcap,
            .window = shape.window < shape.seq_length ? shape.window : 0,
            .q_stride = 0,
            .kv_stride = 0,
            .out_stride = 0,
            .dout_stride = 0,
            .dq_stride = 0,
            .dkv_stride = 0};
}

void* pointer(ConstTensor t) {
    return const_cast<void*>(t.data);  // variant packs do not tell inputs from outputs
}

}  // namespace

int64_t cudnn_attention_workspace_bytes(AttentionShape shape, DType type) {
    if (shape.tokens() == 0 || shape.key_columns() == 0 || !may_apply(shape, type)) return 0;
    return std::max(statistics_bytes(shape) + kEngineBytes, backward_bytes(shape));
}

bool try_cudnn_attention_forward(CallSite ctx, ConstTensor q, ConstTensor kv, AttentionShape shape,
                                 Tensor out, Tensor log_sum_exp, std::span<std::byte> workspace) {
    const int64_t needed = cudnn_attention_workspace_bytes(shape, q.dtype);
    if (needed == 0 || static_cast<int64_t>(workspace.size()) < needed || !aligned(q) ||
        !aligned(kv) || !aligned(out)) {
        return false;
    }
    PlanKey key = plan_key(false, shape);
    key.q_stride = q.stride;
    key.kv_stride = kv.stride;
    key.out_stride = out.stride;
    auto* statistics = reinterpret_cast<float*>(workspace.data());
    Engine& engine = ctx.cuda();
    const int64_t keys = shape.key_columns();
    if (!plans_of(engine).run(key, engine.stream(),
                              {{kQ, pointer(q)},
                               {kK, pointer(kv)},
                               {kV, pointer(kv.column_range(keys, keys))},
                               {kOut, out.data},
                               {kStatistics, statistics}},
                              workspace.subspan(static_cast<size_t>(statistics_bytes(shape))))) {
        return false;
    }
    unpack_statistics(ctx, statistics, shape.seq_length, log_sum_exp);
    return true;
}

bool try_cudnn_attention_backward(CallSite ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                                  ConstTensor out, ConstTensor log_sum_exp, AttentionShape shape,
                                  Tensor dq, Tensor dkv, std::span<std::byte> workspace) {
    const int64_t needed = cudnn_attention_workspace_bytes(shape, q.dtype);
    if (needed == 0 || static_cast<int64_t>(workspace.size()) < needed || !aligned(q) ||
        !aligned(kv) || !aligned(out) || !aligned(dout) || !aligned(dq) || !aligned(dkv)) {
        return false;
    }
    auto* statistics = reinterpret_cast<float*>(workspace.data());
    Engine& engine = ctx.cuda();
    const bool may_vary = engine.attention_may_vary();
    const AttentionShape largest =
        may_vary && bytes_beside_scores(shape) <= static_cast<int64_t>(workspace.size())
            ? shape
            : backward_part(shape);
    for (int64_t sequence = 0; sequence < shape.sequences; sequence += largest.sequences) {
        for (int64_t first = 0; first < shape.kv_heads; first += largest.kv_heads) {
            AttentionShape part = largest;
            part.sequences = std::min(part.sequences, shape.sequences - sequence);
            part.kv_heads = std::min(part.kv_heads, shape.kv_heads - first);
            part.heads = part.kv_heads * sharers(shape);
            const int64_t first_query = first * sharers(shape);
            const auto cut = [&](auto tensor, int64_t column, int64_t columns) {
                return tensor.row_range(sequence * shape.seq_length, part.tokens())
                    .column_range(column, columns);
            };
            pack_statistics(ctx, cut(log_sum_exp, first_query, part.heads), shape.seq_length,
                            statistics);
            PlanKey key = plan_key(true, part);
            key.may_vary = may_vary;
            key.q_stride = q.stride;
            key.kv_stride = kv.stride;
            key.out_stride = out.stride;
            key.dout_stride = dout.stride;
            key.dq_stride = dq.stride;
            key.dkv_stride = dkv.stride;
            const auto of_queries = [&](ConstTensor tensor) {
                return pointer(cut(tensor, first_query * shape.head_size, part.query_columns()));
            };
            /// which 0: keys, 1: values
            const auto of_keys = [&](ConstTensor tensor, int64_t which) {
                return pointer(cut(tensor, which * shape.key_columns() + first * shape.head_size,
                                   part.key_columns()));
            };
            // The first part shows whether cuDNN has plans; the others are equal or smaller.
            if (!plans_of(engine).run(
                    key, engine.stream(),
                    {{kQ, of_queries(q)},
                     {kK, of_keys(kv, 0)},
                     {kV, of_keys(kv, 1)},
                     {kOut, of_queries(out)},
                     {kDOut, of_queries(dout)},
                     {kStatistics, statistics},
                     {kDQ, of_queries(dq)},
                     {kDK, of_keys(dkv, 0)},
                     {kDV, of_keys(dkv, 1)}},
                    workspace.subspan(static_cast<size_t>(statistics_bytes(part))))) {
                return false;
            }
        }
    }
    return true;
}

}  // namespace vocabpipe::kernels::cuda
