// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention against the same in double.
#include "src/model/blocks/latent_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "src/model/blocks/decoder_layer.hpp"
#include "tests/model/sublayer_run.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing::sublayers {
namespace {

/// By the definition: every token's latents, then the heads of q, k and v, one after the other.
struct LatentAttention64 {
    using Options = LatentAttentionOptions;
    const LatentAttentionOptions& o;
    const Tensors& w;
    Rows x = {}, down = {}, q_latent = {}, kv_latent = {}, qkv = {}, heads = {};

    [[nodiscard]] size_t size() const { return static_cast<size_t>(o.rope_size + o.key_size); }
    [[nodiscard]] size_t heads_size() const { return static_cast<size_t>(o.heads) * size(); }
    [[nodiscard]] size_t q_columns() const {
        return o.q_rank > 0 ? static_cast<size_t>(o.q_rank) : heads_size();
    }
    [[nodiscard]] fp64::Attention of() const {
        return {.sequences = kSequences,
                .length = kLength,
                .heads = static_cast<size_t>(o.heads),
                .kv_heads = static_cast<size_t>(o.heads),
                .size = size(),
                .scale = o.scale > 0 ? static_cast<double>(o.scale)
                                     : 1 / std::sqrt(static_cast<double>(size())),
                .softcap = 0,
                .rotated = static_cast<size_t>(o.rope_size),
                .value_size = static_cast<size_t>(o.value_size)};
    }
    static Rows columns(const Rows& rows, size_t first, int64_t count) {
        Rows some;
        for (const Vector& row : rows) {
            const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
            some.emplace_back(begin, begin + count);
        }
        return some;
    }
    static void add_columns(Rows& rows, size_t first, const Rows& some) {
        for (size_t n = 0; n < rows.size(); ++n) {
            for (size_t i = 0; i < some[n].size(); ++i) rows[n][first + i] += some[n][i];
        }
    }
    /// Calls body(column of qkv, column of the rotary key, or of the product up to k and v).
    template <typename Rotary, typename Up>
    void each_of_keys_and_values(Rotary&& rotary, Up&& up) const {
        const auto rope = static_cast<size_t>(o.rope_size), key = static_cast<size_t>(o.key_size);
        const auto a = static_cast<size_t>(o.heads);
        for (size_t head = 0; head < a; ++head) {
            const size_t of_key = heads_size() + head * size();
            for (size_t i = 0; i < rope; ++i) rotary(of_key + i, i);
            for (size_t i = 0; i < key; ++i) up(of_key + rope + i, head * key + i);
        }
        for (size_t i = 0; i < a * static_cast<size_t>(o.value_size); ++i) {
            up(2 * heads_size() + i, a * key + i);
        }
    }
    Rows forward(const Rows& in) {
        x = in;
        down = linear64(o.down, false, x, w);
        q_latent = columns(down, 0, static_cast<int64_t>(q_columns()));
        if (o.q_rank > 0) q_latent = norm64(o.q_norm, q_latent, w);
        kv_latent = norm64(o.kv_norm, columns(down, q_columns(), o.kv_rank), w);
        const size_t rotary_key = q_columns() + static_cast<size_t>(o.kv_rank);
        const Rows q = o.q_rank > 0 ? linear64(o.q_up, false, q_latent, w) : q_latent;
        const Rows kv = linear64(o.kv_up, false, kv_latent, w);
        qkv =
            Rows(x.size(), Vector(2 * heads_size() + static_cast<size_t>(o.heads * o.value_size)));
        for (size_t n = 0; n < x.size(); ++n) {
            std::ranges::copy(q[n], qkv[n].begin());
            each_of_keys_and_values(
                [&](size_t to, size_t from) { qkv[n][to] = down[n][rotary_key + from]; },
                [&](size_t to, size_t from) { qkv[n][to] = kv[n][from]; });
        }
        of().rotate(qkv, kTheta, 1);
        heads = of().forward(qkv);
        return linear64(o.proj, false, heads, w);
    }
    Rows gradient(const Rows& dy, GradientSink& sink) {
        Rows d = of().gradient(linear64_gradient(o.proj, false, dy, heads, w, sink), qkv);
        of().rotate(d, kTheta, -1);
        Rows dkv(x.size(), Vector(static_cast<size_t>(o.heads * (o.key_size + o.value_size))));
        Rows ddown(x.size(), Vector(down[0].size()));
        const size_t rotary_key = q_columns() + static_cast<size_t>(o.kv_rank);
        for (size_t n = 0; n < x.size(); ++n) {
            each_of_keys_and_values(
                [&](size_t from, size_t to) { ddown[n][rotary_key + to] += d[n][from]; },
                [&](size_t from, size_t to) { dkv[n][to] = d[n][from]; });
        }
        const Rows dkv_latent = linear64_gradient(o.kv_up, false, dkv, kv_latent, w, sink);
        add_columns(
            ddown, q_columns(),
            norm64_gradient(o.kv_norm, dkv_latent, columns(down, q_columns(), o.kv_rank), w, sink));
        Rows dq = columns(d, 0, static_cast<int64_t>(heads_size()));
        if (o.q_rank > 0) {
            dq = norm64_gradient(o.q_norm, linear64_gradient(o.q_up, false, dq, q_latent, w, sink),
                                 columns(down, 0, o.q_rank), w, sink);
        }
        add_columns(ddown, 0, dq);
        return linear64_gradient(o.down, false, ddown, x, w, sink);
    }
};

LatentAttentionOptions latent_attention() {
    return {.down = {.name = "down"},
            .q_up = {.name = "q_up"},
            .kv_up = {.name = "kv_up"},
            .proj = {.name = "proj"},
            .q_norm = {.name = "q_norm", .epsilon = kEpsilon},
            .kv_norm = {.name = "kv_norm", .epsilon = kEpsilon},
            .hidden_size = kHidden,
            .heads = 3,
            .q_rank = 7,
            .kv_rank = 5,
            .key_size = 4,
            .rope_size = kHeadSize,  // the columns of the test's table
            .value_size = 3,
            .rope = {.theta = kTheta}};
}

TEST(SublayerOfLatentAttention, MatchesFp64) {
    expect_with_all_norms<AnyAttention, LatentAttention64>(latent_attention());
}

TEST(SublayerOfLatentAttention, MatchesFp64WithoutALatentOfQAndWithValuesWiderThanKeys) {
    LatentAttentionOptions options = latent_attention();
    options.q_rank = 0;
    options.value_size = 14;
    options.scale = 0.2F;
    expect_with_all_norms<AnyAttention, LatentAttention64>(options);
}

TEST(LatentAttention, LeavesAndComputesWhatItsPassesSay) {
    const LatentAttentionOptions options = latent_attention();
    HeldParameters none;
    const LatentAttention block(options, none);
    constexpr int64_t kMany = int64_t{1} << 16;
    Views costly, cheap, gradients;
    SavedViews saved{.costly = {costly, kMany, DType::bf16}, .cheap = {cheap, kMany, DType::bf16}};
    TokenViews for_weight(gradients, kMany, DType::bf16);
    (void)block.saved_views(saved);
    (void)block.gradient_views(for_weight);
    const int64_t down = 7 + 5 + 6, qkv = 3 * (10 + 10 + 3), up = 3 * (4 + 3);
    // The product down and the heads' result; log_sum_exp of a head.
    EXPECT_EQ(costly.used() / kMany, 2 * (down + 3 * 3) + 4 * 3);
    // Both latents after their norms, and what the heads read; a statistic of each norm.
    EXPECT_EQ(cheap.used() / kMany, 2 * (7 + 5 + qkv) + 4 * 2);
    EXPECT_EQ(gradients.used() / kMany, 2 * (qkv + up + 5 + 7 + down));
    const BlockWork work = block.work(64);
    // Products down, up to q, up to k and v, and back; scores and sums over half of the keys.
    const int64_t ups = 7 * 3 * 10 + 5 * up;
    EXPECT_EQ(work.flops(), 2.0 * static_cast<double>(kHidden * down + ups + 9 * kHidden) +
                                2.0 * (3 * 10 + 3 * 3) * 64 / 2);
    EXPECT_EQ(work.recompute_flops, 2.0 * static_cast<double>(ups));
}

TEST(LatentAttention, IsTheAttentionOfALayerWhoseOptionsSaySo) {
    const MlpOptions mlp{.fc = {.name = "fc"},
                         .fc_proj = {.name = "fc_proj"},
                         .hidden_size = kHidden,
                         .ffn_hidden_size = kFfn};
    DecoderLayerOptions options;
    options.attention.block = latent_attention();
    options.mlp.block = {.hidden_size = kHidden, .mlp = mlp};
    ParameterList list;
    const DecoderLayer layer(options, list);
    std::vector<std::string> names;
    for (const LogicalParameter& parameter : list.take()) names.push_back(parameter.name);
    EXPECT_EQ(names, (std::vector<std::string>{"down.weight", "q_norm.weight", "q_up.weight",
                                               "kv_norm.weight", "kv_up.weight", "proj.weight",
                                               "fc.weight", "fc_proj.weight"}));
    HeldParameters none;
    EXPECT_EQ(layer.work(64).flops(), LatentAttention(latent_attention(), none).work(64).flops() +
                                          Mlp(mlp, none).work(64).flops());
}

TEST(LatentAttention, KeepsNoKeysAndValues) {
    HeldParameters none;
    const LatentAttention block(latent_attention(), none);
    const std::unique_ptr<Device> device = make_host_device();
    Context ctx({.threads = 1, .poll = {}, .operators = &device->operators()});
    const Microbatch microbatch;
    float kept = 0;
    const StagePass pass{.ctx = ctx,
                         .microbatch = microbatch,
                         .cached = {.keys_values = Tensor(&kept, 1, 1, DType::fp32)}};
    EXPECT_THROW(block.forward(pass, {}, {}, {}, {}), UsageError);
}

TEST(LatentAttention, HasAllItsSizes) {
    for (int64_t LatentAttentionOptions::*const size :
         {&LatentAttentionOptions::heads, &LatentAttentionOptions::kv_rank,
          &LatentAttentionOptions::key_size, &LatentAttentionOptions::rope_size,
          &LatentAttentionOptions::value_size}) {
        LatentAttentionOptions options = latent_attention();
        options.*size = 0;
        HeldParameters none;
        EXPECT_THROW(LatentAttention(options, none), UsageError);
    }
}

TEST(LatentAttention, IsNotSharedByRanks) {
    for (int LatentAttentionOptions::*const ranks :
         {&LatentAttentionOptions::tensor, &LatentAttentionOptions::context}) {
        LatentAttentionOptions options = latent_attention();
        options.*ranks = 2;
        HeldParameters none;
        EXPECT_THROW(LatentAttention(options, none), UsageError);
    }
}

}  // namespace
}  // namespace vocabpipe::testing::sublayers
