// SPDX-License-Identifier: Apache-2.0
// Sublayers with every combination of norms against the same in double: what no family of
// model_cases.hpp has. The fp64 model judges whole layers.
#include "tests/model/sublayer_run.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing::sublayers {
namespace {

struct Mlp64 {
    using Options = MlpOptions;
    const MlpOptions& o;
    const Tensors& w;
    Rows x = {}, fc = {}, act = {};

    [[nodiscard]] fp64::MlpActivation activation() const { return {o.activation, o.gated}; }
    Rows forward(const Rows& in) {
        x = in;
        fc = linear64(o.fc, o.bias, x, w);
        act = activation().forward(fc);
        return linear64(o.fc_proj, o.bias, act, w);
    }
    Rows gradient(const Rows& dy, GradientSink& sink) {
        const Rows dact = linear64_gradient(o.fc_proj, o.bias, dy, act, w, sink);
        return linear64_gradient(o.fc, o.bias, activation().gradient(dact, fc), x, w, sink);
    }
};

struct Attention64 {
    using Options = AttentionOptions;
    const AttentionOptions& o;
    const Tensors& w;
    Rows x = {}, before = {}, qkv = {}, heads = {};

    [[nodiscard]] fp64::Attention of() const {
        return {.sequences = kSequences,
                .length = kLength,
                .heads = static_cast<size_t>(o.shape.heads),
                .kv_heads = static_cast<size_t>(o.shape.kv_heads),
                .size = static_cast<size_t>(o.shape.head_size),
                .scale = o.shape.scale,
                .softcap = o.shape.softcap,
                .window = static_cast<size_t>(o.shape.window),
                .sinks = o.sinks.empty() ? std::span<const double>()
                                         : std::span<const double>(w.at(o.sinks))};
    }
    /// Where what a norm of q and k is over begins, and the name of the norm.
    template <typename Body>
    void each_normed(Body&& body) const {
        if (!o.qk_norm->by_head) {
            body(0, o.qk_norm->q_name + ".weight");
            body(static_cast<size_t>(o.shape.query_columns()), o.qk_norm->k_name + ".weight");
            return;
        }
        for (int64_t head = 0; head < o.shape.heads + o.shape.kv_heads; ++head) {
            body(static_cast<size_t>(head * o.shape.head_size),
                 (head < o.shape.heads ? o.qk_norm->q_name : o.qk_norm->k_name) + ".weight");
        }
    }
    [[nodiscard]] fp64::RmsNorm qk_norm(const std::string& name) const {
        return {w.at(name), o.qk_norm->rms_norm.weight_offset, o.qk_norm->rms_norm.epsilon};
    }
    Rows forward(const Rows& in) {
        x = in;
        before = qkv = linear64(o.qkv, o.qkv_bias, x, w);
        for (Vector& row : qkv) {
            if (!o.qk_norm) break;
            each_normed([&](size_t column, const std::string& name) {
                qk_norm(name).forward(&row[column]);
            });
        }
        if (o.rope) of().rotate(qkv, kTheta, 1);
        heads = of().forward(qkv);
        return linear64(o.proj, o.proj_bias, heads, w);
    }
    Rows gradient(const Rows& dy, GradientSink& sink) {
        Vector dsinks(of().sinks.size(), 0.0);
        Rows d =
            of().gradient(linear64_gradient(o.proj, o.proj_bias, dy, heads, w, sink), qkv, dsinks);
        if (!o.sinks.empty()) sink.add(o.sinks, dsinks);
        if (o.rope) of().rotate(d, kTheta, -1);
        for (size_t n = 0; o.qk_norm && n < d.size(); ++n) {
            each_normed([&](size_t column, const std::string& name) {
                Vector dgamma(w.at(name).size(), 0.0);
                qk_norm(name).gradient(&d[n][column], &before[n][column], dgamma);
                sink.add(name, dgamma);
            });
        }
        return linear64_gradient(o.qkv, o.qkv_bias, d, x, w, sink);
    }
};

TEST(SublayerOfMlp, MatchesFp64WithGelu) {
    expect_with_all_norms<Mlp, Mlp64>({.fc = {.name = "fc"},
                                       .fc_proj = {.name = "fc_proj"},
                                       .hidden_size = kHidden,
                                       .ffn_hidden_size = kFfn,
                                       .bias = true});
}

TEST(SublayerOfMlp, MatchesFp64WithExactGelu) {
    expect_with_all_norms<Mlp, Mlp64>({.fc = {.name = "fc"},
                                       .fc_proj = {.name = "fc_proj"},
                                       .hidden_size = kHidden,
                                       .ffn_hidden_size = kFfn,
                                       .activation = kernels::Activation::gelu});
}

TEST(SublayerOfMlp, MatchesFp64WithAGate) {
    expect_with_all_norms<Mlp, Mlp64>({.fc = {.name = "fc"},
                                       .fc_proj = {.name = "fc_proj"},
                                       .hidden_size = kHidden,
                                       .ffn_hidden_size = kFfn,
                                       .gated = true,
                                       .activation = kernels::Activation::silu});
}

AttentionOptions attention() {
    return {.qkv = {.name = "qkv"},
            .proj = {.name = "proj"},
            .hidden_size = kHidden,
            .shape = {.heads = 4, .head_size = kHeadSize, .kv_heads = 2, .scale = 0.3F}};
}

TEST(SublayerOfAttention, MatchesFp64WithoutPositions) {
    AttentionOptions options = attention();
    options.qkv_bias = options.proj_bias = true;
    options.shape.softcap = 2;
    expect_with_all_norms<AnyAttention, Attention64>(options, options.qk_norm.has_value());
}

TEST(SublayerOfAttention, MatchesFp64WithNormsOfHeadsAndRotaryPositions) {
    AttentionOptions options = attention();
    options.shape.window = 3;
    options.rope = Rope{.theta = kTheta};
    options.qk_norm = {.q_name = "q_norm",
                       .k_name = "k_norm",
                       .rms_norm = {.epsilon = kEpsilon, .weight_offset = 1}};
    expect_with_all_norms<AnyAttention, Attention64>(options, options.qk_norm.has_value());
}

TEST(SublayerOfAttention, MatchesFp64WithSinks) {
    AttentionOptions options = attention();
    options.shape.window = 3;
    options.rope = Rope{.theta = kTheta};
    options.sinks = "sinks";
    options.sinks_init_std = 2;
    expect_with_all_norms<AnyAttention, Attention64>(options, options.qk_norm.has_value());
}

/// Whose gammas have sizes of their own, whose q and k begin at columns of any remainder, and
/// which can be made again also where the sublayer has no norm.
TEST(SublayerOfAttention, MatchesFp64WithNormsOfAllHeadsTogether) {
    AttentionOptions options = attention();
    options.shape = {.heads = 3, .head_size = 2, .kv_heads = 1, .scale = 0.3F};
    options.qkv_bias = true;
    options.qk_norm = {.q_name = "q_norm",
                       .k_name = "k_norm",
                       .rms_norm = {.epsilon = kEpsilon},
                       .by_head = false};
    expect_with_all_norms<AnyAttention, Attention64>(options, options.qk_norm.has_value());
}

TEST(HeldParameters, ComeInTheOrderInWhichBlocksAskForThem) {
    std::vector<Parameter> held(2);
    held[0].name = "a.weight";
    held[1].name = "b.weight";
    HeldParameters parameters(held);
    EXPECT_EQ(parameters.next({.name = "a.weight"}), &held[0]);
    EXPECT_THROW(parameters.next({.name = "a.bias"}), Error);
    EXPECT_EQ(parameters.next({.name = "b.weight"}), &held[1]);
    EXPECT_THROW(parameters.next({.name = "c.weight"}), Error);
    EXPECT_EQ(HeldParameters().next({.name = "a.weight"}), nullptr);
}

}  // namespace
}  // namespace vocabpipe::testing::sublayers
