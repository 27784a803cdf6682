// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention against the same in double.
#include "src/model/blocks/latent_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "src/model/blocks/decoder_layer.hpp"
#include "tests/model/fp64_latent_attention.hpp"
#include "tests/model/sublayer_run.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing::sublayers {
namespace {

struct LatentAttention64 {
    using Options = LatentAttentionOptions;
    const LatentAttentionOptions& o;
    const Tensors& w;
    fp64::LatentAttention of = made(o, w);
    Rows heads = {};

    static fp64::LatentAttention made(const Options& o, const Tensors& w) {
        const fp64::LatentSizes sizes{.heads = static_cast<size_t>(o.heads),
                                      .q_rank = static_cast<size_t>(o.q_rank),
                                      .kv_rank = static_cast<size_t>(o.kv_rank),
                                      .key_size = static_cast<size_t>(o.key_size),
                                      .rope_size = static_cast<size_t>(o.rope_size),
                                      .value_size = static_cast<size_t>(o.value_size)};
        const double size = static_cast<double>(sizes.head_size());
        return {sizes,
                {.sequences = kSequences,
                 .length = kLength,
                 .heads = sizes.heads,
                 .kv_heads = sizes.heads,
                 .size = sizes.head_size(),
                 .scale = o.scale > 0 ? static_cast<double>(o.scale) : 1 / std::sqrt(size),
                 .softcap = 0},
                fp64::plain_rotary(kTheta, sizes.rope_size),
                kEpsilon,
                {.down = o.down.name,
                 .q_norm = o.q_norm.name,
                 .q_up = o.q_up.name,
                 .kv_norm = o.kv_norm.name,
                 .kv_up = o.kv_up.name},
                w};
    }
    Rows forward(const Rows& in) {
        heads = of.forward(in);
        return linear64(o.proj, false, heads, w);
    }
    Rows gradient(const Rows& dy, GradientSink& sink) {
        return of.gradient(linear64_gradient(o.proj, false, dy, heads, w, sink), sink);
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
