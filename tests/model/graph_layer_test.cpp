// SPDX-License-Identifier: Apache-2.0
// Layers that are written as their forward, against the library's own: bits of all passes, memory
// and costs. And odd graphs against finite differences.
#include "src/model/blocks/graph/graph_layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/written_layers.hpp"
#include "src/model/adapters.hpp"
#include "src/model/blocks/model_layers.hpp"
#include "src/model/key_value_cache.hpp"
#include "src/model/parameters.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/whole_model_stage.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/layer_graph.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe::testing {
namespace {

/// Memory of a pass, full of NaN.
class PassMemory {
public:
    explicit PassMemory(int64_t count) : count_(static_cast<size_t>(count)) {
        std::memset(memory_.get(), 0xff, count_);
    }
    [[nodiscard]] Bytes bytes() const { return {memory_.get(), count_}; }

private:
    struct Free {
        void operator()(std::byte* memory) const {
            ::operator delete (memory, std::align_val_t{64});
        }
    };
    size_t count_;
    std::unique_ptr<std::byte[], Free> memory_{
        static_cast<std::byte*>(::operator new (count_ + 64, std::align_val_t{64}))};
};

std::string bits(ConstTensor tensor) {
    std::string all;
    const auto row_bytes = static_cast<size_t>(tensor.cols * size_of(tensor.dtype));
    for (int64_t row = 0; row < tensor.rows; ++row) {
        all.append(static_cast<const char*>(tensor.row_range(row, 1).data), row_bytes);
    }
    return all;
}

/// What the passes of a whole model's stage make.
struct StageRun {
    std::vector<std::pair<std::string, std::string>> tensors;  ///< name, bits
    StageBytes bytes;
};

StageRun run_stage(const ModelConfig& config, Recompute recompute, bool split) {
    WholeModelStage model(config, recompute);
    StageModule& stage = model.stage();
    Context& ctx = model.context();

    StageRun run{.tensors = {}, .bytes = stage.bytes()};
    const auto add = [&](const std::string& name, ConstTensor tensor) {
        run.tensors.emplace_back(name, bits(tensor));
    };
    for (const Parameter& parameter : stage.parameters()) {
        add("initial " + parameter.name, parameter.weight);
    }
    const int64_t rows = 2 * config.seq_length;
    const std::vector<int32_t> tokens(static_cast<size_t>(rows), 1);
    const Microbatch microbatch{.sequences = 2, .seq_length = config.seq_length, .tokens = tokens};
    const int64_t row_bytes = config.hidden_size * size_of(config.dtype);
    const PassMemory x_memory(rows * row_bytes), y_memory(rows * row_bytes);
    const PassMemory dy_memory(rows * row_bytes), dx_memory(rows * row_bytes);
    const auto view = [&](const PassMemory& memory) {
        return Tensor(memory.bytes().data(), rows, config.hidden_size, config.dtype);
    };
    const Tensor x = view(x_memory), y = view(y_memory), dy = view(dy_memory), dx = view(dx_memory);
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const Tensor& filled : {x, dy}) {
        std::vector<float> values(static_cast<size_t>(filled.size()));
        for (float& value : values) value = normal(random);
        ctx.operators().convert(
            ctx, ConstTensor(values.data(), rows, config.hidden_size, DType::fp32), filled);
    }

    const StageBytes& bytes = run.bytes;
    const PassMemory saved(bytes.saved), of_forward(bytes.recomputed), made_again(bytes.recomputed);
    const PassMemory for_weight(bytes.for_weight);
    stage.forward(ctx, microbatch, x, y, {.saved = saved.bytes(), .recomputed = of_forward.bytes()},
                  PassMemory(bytes.forward_workspace).bytes());
    add("y", y);
    const Activations left{.saved = saved.bytes(), .recomputed = made_again.bytes()};
    stage.recompute(ctx, microbatch, x, left, PassMemory(bytes.forward_workspace).bytes());
    for (const bool accumulate : {false, true}) {
        if (split) {
            stage.backward_input(ctx, microbatch, dy, x, left, dx, for_weight.bytes(),
                                 PassMemory(bytes.input_gradient_workspace).bytes());
            stage.backward_weight(ctx, microbatch, x, left, for_weight.bytes(),
                                  PassMemory(bytes.weight_gradient_workspace).bytes(), accumulate);
        } else {
            stage.backward(ctx, microbatch, dy, x, left, dx,
                           PassMemory(bytes.backward_workspace).bytes(), accumulate);
        }
    }
    add("dx", dx);
    for (const Parameter& parameter : stage.parameters()) {
        add("gradient of " + parameter.name, parameter.gradient);
    }
    return run;
}

class WrittenFamilies : public ::testing::TestWithParam<std::string> {};

/// Bits of all passes and bytes of memory are those of the library's layers.
void expect_equal_stages(const ModelConfig& config) {
    const ModelConfig written = with_written_layers(config);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const bool split : {false, true}) {
            SCOPED_TRACE(std::string(to_string(recompute)) + (split ? " I W" : " B"));
            const StageRun theirs = run_stage(config, recompute, split);
            const StageRun ours = run_stage(written, recompute, split);
            ASSERT_EQ(ours.tensors.size(), theirs.tensors.size());
            for (size_t i = 0; i < theirs.tensors.size(); ++i) {
                EXPECT_EQ(ours.tensors[i].first, theirs.tensors[i].first);
                EXPECT_TRUE(ours.tensors[i].second == theirs.tensors[i].second)
                    << theirs.tensors[i].first;
            }
            EXPECT_EQ(ours.bytes.saved, theirs.bytes.saved);
            EXPECT_EQ(ours.bytes.recomputed, theirs.bytes.recomputed);
            EXPECT_EQ(ours.bytes.for_weight, theirs.bytes.for_weight);
            EXPECT_EQ(ours.bytes.forward_workspace, theirs.bytes.forward_workspace);
            EXPECT_EQ(ours.bytes.backward_workspace, theirs.bytes.backward_workspace);
            EXPECT_EQ(ours.bytes.input_gradient_workspace, theirs.bytes.input_gradient_workspace);
            EXPECT_EQ(ours.bytes.weight_gradient_workspace, theirs.bytes.weight_gradient_workspace);
        }
    }
}

void expect_equal_costs(const ModelConfig& config) {
    const ModelLayers theirs(config), ours(with_written_layers(config));
    for (int layer = 0; layer < config.num_layers; ++layer) {
        const BlockWork a = ours[layer].block.work(64), b = theirs[layer].block.work(64);
        EXPECT_EQ(a.flops(), b.flops());
        EXPECT_EQ(a.heads_flops, b.heads_flops);
        EXPECT_EQ(a.kv_columns, b.kv_columns);
        const auto expect_equal = [](const MovedElements& one, const MovedElements& other) {
            EXPECT_EQ(one.forward, other.forward);
            EXPECT_EQ(one.backward, other.backward);
            EXPECT_EQ(one.recompute, other.recompute);
            EXPECT_EQ(one.recompute_heads, other.recompute_heads);
        };
        expect_equal(a.moved, b.moved);
        expect_equal(a.moved_of_residual, b.moved_of_residual);
    }
}

TEST_P(WrittenFamilies, HaveTheBitsMemoryAndCostsOfTheLibrarysLayers) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        ModelConfig config = small_family(GetParam(), 2, 5, 19, false);
        config.dtype = dtype;
        expect_equal_stages(config);
        expect_equal_costs(config);
    }
}

TEST_P(WrittenFamilies, HaveTheAdaptersOfTheLibrarysLayers) {
    ModelConfig config = small_family(GetParam(), 2, 5, 19, false);
    config.lora = {.rank = 2};
    expect_equal_stages(config);
}

/// The layers of a family, within a budget from their first value on.
ModelConfig within_budget(const ModelConfig& config, double share) {
    ModelConfig written = with_written_layers(config);
    written.layer_forward = [share, whole = written.layer_forward](LayerGraph& g, LayerValue x) {
        g.activation_memory_budget(share);
        return whole(g, std::move(x));
    };
    return written;
}

TEST_P(WrittenFamilies, HaveTheSameBitsWithinAnyMemoryBudget) {
    ModelConfig config = small_family(GetParam(), 2, 5, 19, false);
    config.dtype = DType::bf16;
    const auto flops_of_r = [&](double share) {
        return ModelLayers(within_budget(config, share))[1].block.work(5).recompute_flops;
    };
    EXPECT_EQ(flops_of_r(1), 0);
    for (const bool split : {false, true}) {
        const StageRun plain = run_stage(with_written_layers(config), Recompute::selective, split);
        const StageRun none = run_stage(with_written_layers(config), Recompute::none, split);
        int64_t before = plain.bytes.saved;
        double flops = 0;
        for (const double share : {1.0, 0.5, 0.25, 0.1, 0.0}) {
            SCOPED_TRACE(share);
            const StageRun within =
                run_stage(within_budget(config, share), Recompute::selective, split);
            EXPECT_TRUE(within.tensors == none.tensors);
            EXPECT_LE(within.bytes.saved, before);
            EXPECT_EQ(within.bytes.saved + within.bytes.recomputed,
                      plain.bytes.saved + plain.bytes.recomputed);
            EXPECT_GE(flops_of_r(share), flops);
            before = within.bytes.saved;
            flops = flops_of_r(share);
        }
        EXPECT_LT(before, plain.bytes.saved * 2 / 3);
        EXPECT_GT(flops, 0);
        // Without selective recomputation nothing changes.
        EXPECT_EQ(run_stage(within_budget(config, 0), Recompute::none, split).bytes.saved,
                  none.bytes.saved);
    }
}

std::vector<std::string> families_that_are_written() {
    std::vector<std::string> names = model_families();
    std::erase_if(names, [](const std::string& name) {
        const ModelConfig config = small_family(name, 2, 5, 19, false);
        return config.moe.experts > 0 || (config.qk_norm && !config.qk_norm_by_head);
    });
    return names;
}

INSTANTIATE_TEST_SUITE_P(Families, WrittenFamilies,
                         ::testing::ValuesIn(families_that_are_written()),
                         [](const auto& tested) { return tested.param; });

// --- graphs unlike any family's

/// y = x * weight, element by element (N, columns).
LayerOperator scale_columns(int64_t columns) {
    return {.name = "scale_columns",
            .columns = columns,
            .weights = {{.name = "scale", .cols = columns, .init_std = 0.5F}},
            .forward =
                [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    const auto* const x = in.x[0].as<float>();
                    const auto* const w = in.weights[0].as<float>();
                    for (int64_t i = 0; i < y.size(); ++i) y.as<float>()[i] = x[i] * w[i % y.cols];
                },
            .backward_input =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dx) {
                    const auto* const w = in.weights[0].as<float>();
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        dx[0].as<float>()[i] = dy.as<float>()[i] * w[i % dy.cols];
                    }
                },
            .backward_weight =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dweights, bool accumulate) {
                    auto* const dw = dweights[0].as<float>();
                    if (!accumulate) std::fill_n(dw, dy.cols, 0.0F);
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        dw[i % dy.cols] += dy.as<float>()[i] * in.x[0].as<float>()[i];
                    }
                }};
}

/// y = a * b; the backward reads both.
LayerOperator multiply(int64_t columns) {
    return {.name = "multiply",
            .columns = columns,
            .forward =
                [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    for (int64_t i = 0; i < y.size(); ++i) {
                        y.as<float>()[i] = in.x[0].as<float>()[i] * in.x[1].as<float>()[i];
                    }
                },
            .backward_input =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dx) {
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        dx[0].as<float>()[i] = dy.as<float>()[i] * in.x[1].as<float>()[i];
                        dx[1].as<float>()[i] = dy.as<float>()[i] * in.x[0].as<float>()[i];
                    }
                },
            .recompute = true};
}

/// y = tanh(x); the backward reads y alone.
LayerOperator tanh_of(int64_t columns) {
    return {.name = "tanh",
            .columns = columns,
            .forward =
                [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    for (int64_t i = 0; i < y.size(); ++i) {
                        y.as<float>()[i] = std::tanh(in.x[0].as<float>()[i]);
                    }
                },
            .backward_input =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dx) {
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        const float y = in.y.as<float>()[i];
                        dx[0].as<float>()[i] = dy.as<float>()[i] * (1 - y * y);
                    }
                },
            .backward_reads_inputs = false,
            .backward_reads_output = true};
}

/// The stage of a model with two such layers agrees with finite differences, R makes the bits of F,
/// B those of I and W, whatever is kept.
void expect_gradients(const LayerForward& forward) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        SCOPED_TRACE(to_string(recompute));
        ModelConfig config = small_family("llama", 2, 5, 19, false);
        config.layer_forward = forward;
        WholeModelStage model(config, recompute);
        GradientCheck worst;
        ASSERT_NO_THROW(worst = model.check(4e-3));  // norms of norms bend more than a model
        EXPECT_LT(worst.error, 2e-3) << worst.name;
    }
}

TEST(OddGraphs, AValueMayBeReadOften) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const LayerValue a = g.linear("a", x, {.out = {16}});
        const LayerValue b = g.linear("b", a + x, {.out = {16}, .bias = false});
        return g.linear("c", a + b, {.out = {16}}) + g.scale(a, -0.5F) + b + x + x;
    });
}

TEST(OddGraphs, ASumOfAValueWithItselfIsTwice) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const LayerValue a = g.rms_norm("n", x);
        return g.linear("a", a + a, {.out = {16}}) + (x + x);
    });
}

TEST(OddGraphs, NormsInChainsAndBeforeNothing) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const LayerValue n = g.layer_norm("n", g.scale(x, 2));
        return g.rms_norm("last", g.layer_norm("m", n + g.linear("a", n, {.out = {16}})));
    });
}

TEST(OddGraphs, ALayerMayEndInAttention) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const kernels::AttentionShape shape{.heads = 2, .head_size = 8, .kv_heads = 1};
        const LayerValue qkv = g.rotary(g.linear("qkv", x, {.out = {16, 8, 8}}), shape);
        return g.attention(qkv, shape);
    });
}

TEST(OddGraphs, RotaryPositionsOfAValueThatOthersReadLeaveItAsItIs) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const kernels::AttentionShape shape{.heads = 1, .head_size = 8, .kv_heads = 1};
        const LayerValue qkv = g.linear("qkv", x, {.out = {8, 8, 8}});
        const LayerValue turned = g.rotary(qkv, shape);
        return x + g.linear("o", g.attention(turned, shape), {.out = {16}}) +
               g.linear("p", qkv, {.out = {16}}) +
               g.linear("q", g.rotary(turned, shape), {.out = {16}});
    });
}

TEST(OddGraphs, GeluOfTheInputAndOfAProductThatOthersRead) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const auto gelu = kernels::Activation::gelu_tanh;
        const LayerValue a = g.linear("a", g.activation(gelu, x), {.out = {24}});
        const LayerValue b = g.linear("b", g.activation(gelu, a), {.out = {16}});
        const LayerValue c = g.linear("c", a, {.out = {16}});
        return g.activation(gelu, b + c) + g.activation(gelu, g.linear("d", x, {.out = {16}}));
    });
}

TEST(OddGraphs, TheOutputMayBeGeluOfAProduct) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        return g.activation(kernels::Activation::gelu_tanh, g.linear("a", x, {.out = {16}}));
    });
}

// docs/extending.md

/// y = x^2, in fp32 on hosts.
void square(Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
    const float* x = in.x[0].as<float>();
    for (int64_t i = 0; i < y.size(); ++i) y.as<float>()[i] = x[i] * x[i];
}
void square_gradient(Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                     std::span<const Tensor> dx) {
    const float* x = in.x[0].as<float>();
    for (int64_t i = 0; i < dy.size(); ++i) dx[0].as<float>()[i] = 2 * x[i] * dy.as<float>()[i];
}
LayerOperator squared(int64_t columns) {
    return {.name = "squared",
            .columns = columns,
            .forward = square,
            .backward_input = square_gradient};
}

TEST(OddGraphs, OneOperatorOfTheUser) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        return x + g.linear("down", g.apply(squared(24), {g.linear("up", x, {.out = {24}})}),
                            {.out = {16}});
    });
}

TEST(OddGraphs, OperatorsOfTheUser) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const LayerValue a = g.apply(scale_columns(16), {x});
        const LayerValue b = g.apply(tanh_of(16), {a});
        const LayerValue c = g.apply(multiply(16), {b, g.linear("c", x, {.out = {16}})});
        return x + g.apply(multiply(16), {c, c}) + g.apply(tanh_of(16), {b});
    });
}

TEST(OddGraphs, GatesAndHeadNorms) {
    expect_gradients([](LayerGraph& g, LayerValue x) {
        const kernels::AttentionShape shape{.heads = 2, .head_size = 6, .kv_heads = 2};
        const LayerValue qkv = g.linear("qkv", x, {.out = {12, 12, 12}});
        const LayerValue heads = g.attention(g.head_norm("q", "k", qkv, shape), shape);
        return x + g.linear(
                       "o",
                       g.gated(kernels::Activation::silu, g.linear("fc", heads, {.out = {20, 20}})),
                       {.out = {16}});
    });
}

TEST(OddGraphs, WhatIsToldToBeKeptOrMadeAgainIs) {
    const auto layer = [](bool keep, bool again) {
        return [=](LayerGraph& g, LayerValue x) {
            LayerValue n = g.rms_norm("n", x);
            if (keep) n = g.keep(n);
            LayerValue sum = g.linear("a", n, {.out = {16}}) + g.scale(n, 3);
            if (again) sum = g.recompute(sum);
            return x + g.linear("b", g.apply(tanh_of(16), {sum}), {.out = {16}}) +
                   g.linear("c", sum, {.out = {16}});
        };
    };
    const auto kept = [&](bool keep, bool again, Recompute recompute) {
        ModelConfig config = small_family("llama", 2, 5, 19, false);
        config.layer_forward = layer(keep, again);
        return run_stage(config, recompute, false).bytes;
    };
    for (const bool keep : {false, true}) {
        for (const bool again : {false, true}) expect_gradients(layer(keep, again));
    }
    const int64_t tensor = (10 * 16 * 4 + 63) / 64 * 64;  // (N, h)
    const StageBytes plain = kept(false, false, Recompute::selective);
    const StageBytes with_norm = kept(true, false, Recompute::selective);
    // A norm's output and its numbers per row, in both layers.
    EXPECT_EQ(with_norm.saved - plain.saved, 2 * (tensor + 64));
    EXPECT_EQ(plain.recomputed - with_norm.recomputed, 2 * (tensor + 64));
    EXPECT_EQ(kept(true, false, Recompute::none).saved, kept(false, false, Recompute::none).saved);
    // The sum would need the product again, which is kept for no other reason: it stays.
    EXPECT_EQ(kept(false, true, Recompute::selective).saved, plain.saved);
}

// The first of two equally large values to go is the one that takes fewer FLOPs, including those of
// what it is made from and nobody keeps.
TEST(OddGraphs, AMemoryBudgetMakesAgainWhatCostsLeastPerByte) {
    const auto within = [](double share, bool keep) {
        ModelConfig config = small_family("llama", 1, 5, 19, false);
        config.layer_forward = [=](LayerGraph& g, LayerValue x) {
            const LayerValue few = g.scale(g.linear("few", x, {.out = {4}}), 2);
            g.activation_memory_budget(share);
            const LayerValue costly = g.apply(tanh_of(32), {g.linear("costly", x, {.out = {32}})});
            LayerValue cheap = g.apply(tanh_of(32), {g.linear("cheap", few, {.out = {32}})});
            if (keep) cheap = g.keep(cheap);
            return x + g.linear("a", cheap, {.out = {16}}) + g.linear("b", costly, {.out = {16}});
        };
        return config;
    };
    const auto saved = [&](double share, bool keep = false) {
        return run_stage(within(share, keep), Recompute::selective, false).bytes.saved;
    };
    const auto flops = [&](double share, bool keep = false) {
        return ModelLayers(within(share, keep))[0].block.work(5).recompute_flops;
    };
    constexpr int64_t kValue = 10 * 32 * 4;
    constexpr double kCheap = 2 * 4 * 32, kCostly = 2 * 16 * 32;
    EXPECT_EQ(flops(1), 0);
    EXPECT_EQ(saved(1) - saved(0.9), kValue);
    EXPECT_EQ(flops(0.9), kCheap);
    EXPECT_EQ(saved(1) - saved(0.1), 2 * kValue);
    EXPECT_EQ(flops(0.1), kCheap + kCostly);
    EXPECT_EQ(saved(1) - saved(0.1, true), kValue);
    EXPECT_EQ(flops(0.1, true), kCostly);
}

// A cheap operation whose input nobody keeps is kept by default, and made again with its input
// within a budget.
TEST(OddGraphs, AMemoryBudgetMakesAgainWhatIsCheapToMakeOfWhatIsNot) {
    const auto within = [](double share) {
        ModelConfig config = small_family("llama", 1, 5, 19, false);
        config.layer_forward = [=](LayerGraph& g, LayerValue x) {
            g.activation_memory_budget(share);
            return x + g.linear("b", g.scale(g.linear("a", x, {.out = {32}}), 2), {.out = {16}});
        };
        return config;
    };
    const auto saved = [&](double share) {
        return run_stage(within(share), Recompute::selective, false).bytes.saved;
    };
    EXPECT_EQ(saved(1) - saved(0), 10 * 32 * 4);
    EXPECT_EQ(ModelLayers(within(0))[0].block.work(5).recompute_flops, 2 * 16 * 32);
}

TEST(OddGraphs, TheIdentityIsALayer) {
    ModelConfig config = small_family("llama", 2, 5, 19, false);
    config.layer_forward = [](LayerGraph&, LayerValue x) { return x; };
    EXPECT_NO_THROW(run_stage(config, Recompute::none, false));
    EXPECT_NO_THROW(run_stage(config, Recompute::full, true));
}

// --- what is no layer

void expect_refusal(const LayerForward& forward, const std::string& message) {
    ModelConfig config = small_family("llama", 2, 5, 19, false);
    config.layer_forward = forward;
    try {
        static_cast<void>(ModelLayers(config));
        FAIL() << "no refusal: " << message;
    } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()), "ModelConfig::layer_forward: layer 0: " + message);
    }
}

TEST(NoLayer, IsRefused) {
    expect_refusal([](LayerGraph& g, LayerValue x) { return g.linear("a", x, {.out = {8}}); },
                   "its output has 8 columns where 16 are needed");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            static_cast<void>(g.linear("a", x, {.out = {8}}));
            return x;
        },
        "nothing reads the result of a, which has no gradient then; remove it");
    expect_refusal([](LayerGraph& g, LayerValue x) { return x + g.linear("a", x, {.out = {8}}); },
                   "the second term of a sum has 8 columns where 16 are needed");
    expect_refusal([](LayerGraph& g, LayerValue x) { return g.linear("a", x, {.out = {}}); },
                   "linear a: LinearValue::out is empty");
    expect_refusal([](LayerGraph& g, LayerValue x) { return g.attention(x, {.heads = 3}); },
                   "attention: 3 heads of 0 columns with 3 heads of keys and values; the latter "
                   "must divide the former");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            return g.attention(x, {.heads = 2, .head_size = 8, .kv_heads = 2});
        },
        "the input of attention has 16 columns where 48 are needed");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            g.activation_memory_budget(1.5);
            return x;
        },
        "activation_memory_budget: 1.500000 is not a share from 0 to 1");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) { return g.recompute(g.linear("a", x, {.out = {16}})); },
        "recompute: a costs as much as in the forward; full recomputation makes it again");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            return g.apply({.name = "mine", .columns = 16, .forward = {}, .backward_input = {}},
                           {x});
        },
        "mine: LayerOperator::forward and backward_input must both be set");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            return g.linear("a", g.linear("a", x, {.out = {16}}), {.out = {16}});
        },
        "two parameters have the name model.layers.0.a.weight");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            LayerOperator scaled = scale_columns(16);
            scaled.weights.front().name = "a.weight";
            return g.linear("a", g.apply(scaled, {x}), {.out = {16}});
        },
        "two parameters have the name model.layers.0.a.weight");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            return g.linear("a", x, {.out = {20, -4}});
        },
        "linear a: LinearValue::out has -4; every result needs at least 1 column");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            const kernels::AttentionShape shape{
                .heads = 2, .head_size = 8, .kv_heads = 2, .queries = 1};
            return g.attention(g.linear("a", x, {.out = {48}}), shape);
        },
        "attention: AttentionShape::window is 0 and queries is 1; a window is at least 0, and all "
        "tokens are queries (0)");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            const kernels::AttentionShape shape{
                .heads = 2, .head_size = 8, .kv_heads = 2, .causal = false};
            return g.attention(g.linear("a", x, {.out = {48}}), shape);
        },
        "attention: AttentionShape::causal is false; layers of these models are causal");
    expect_refusal(
        [](LayerGraph& g, LayerValue x) {
            LayerOperator scaled = scale_columns(16);
            scaled.weights.front().cols = 0;
            return g.apply(scaled, {x});
        },
        "scale_columns: a weight needs a name, rows and cols; \"scale\" has 1 rows and 0 columns");
    LayerOperator without = scale_columns(16);
    without.backward_weight = {};
    expect_refusal([=](LayerGraph& g, LayerValue x) { return g.apply(without, {x}); },
                   "scale_columns: LayerOperator::backward_weight must be set for an operator with "
                   "weights");
}

TEST(NoLayer, HasValuesOfAnotherLayer) {
    const auto message =
        [](const std::function<LayerValue(LayerGraph&, LayerValue, LayerValue)>& use) {
            std::optional<LayerValue> kept;
            ModelConfig config = small_family("llama", 2, 5, 19, false);
            config.layer_forward = [&](LayerGraph& g, LayerValue x) {
                if (!kept) kept = x;
                return g.layer() == 0 ? g.scale(x, 2) : use(g, x, *kept);
            };
            try {
                static_cast<void>(ModelLayers(config));
            } catch (const UsageError& error) {
                return std::string(error.what());
            }
            return std::string();
        };
    const std::string expected = "ModelConfig::layer_forward: layer 1: a value of another layer";
    EXPECT_EQ(message([](LayerGraph& g, LayerValue, LayerValue kept) { return g.scale(kept, 2); }),
              expected);
    EXPECT_EQ(message([](LayerGraph&, LayerValue x, LayerValue kept) { return x + kept; }),
              expected);
    EXPECT_EQ(message([](LayerGraph&, LayerValue x, LayerValue kept) { return kept + x; }),
              "a sum of values: one is of a layer or a model that is complete; use values of one");
}

TEST(NoLayer, OfADepthOfMultiTokenPredictionIsBuilt) {
    ModelConfig config = small_family("llama", 2, 5, 19, false);
    config.mtp_num_layers = 1;
    config.layer_forward = [](LayerGraph& g, LayerValue x) {
        EXPECT_LT(g.layer(), 2);
        return g.scale(x, 2);
    };
    EXPECT_THROW(static_cast<void>(logical_parameters(config)), UsageError);
}

TEST(NoLayer, OfTheUsersGenerates) {
    ModelConfig config = small_family("llama", 2, 5, 19, false);
    EXPECT_GT(KeyValueCache::bytes(config, 2, 1), 0);
    config.layer_forward = [](LayerGraph&, LayerValue x) { return x; };
    EXPECT_THROW(static_cast<void>(KeyValueCache::bytes(config, 2, 1)), UsageError);
}

// --- adapters

TEST(OwnLayers, HaveAdaptersWhereNamed) {
    ModelConfig config = small_family("llama", 2, 5, 19, false);
    config.layer_forward = [](LayerGraph& g, LayerValue x) {
        return x + g.linear("down", g.linear("up", x, {.out = {24}}), {.out = {16}});
    };
    config.lora = {.rank = 2, .target_modules = {"up"}};
    EXPECT_NO_THROW(check_adapters(config));
    EXPECT_EQ(adapted_modules(config),
              (std::vector<std::string>{"model.layers.0.up", "model.layers.1.up"}));
    config.lora.target_modules = {};
    EXPECT_EQ(adapted_modules(config).size(), 4);
    config.lora.target_modules = {"q_proj"};
    EXPECT_THROW(check_adapters(config), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
