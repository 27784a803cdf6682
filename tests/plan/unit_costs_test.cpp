// SPDX-License-Identifier: Apache-2.0
// What units of work cost on a device: one rate at a time, all others being too fast to see.
#include "src/plan/unit_costs.hpp"

#include "src/model/blocks/model_layers.hpp"
#include "src/plan/kernel_rates.hpp"
#include "src/plan/layer_products.hpp"
#include "tests/plan/plan_cases.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>

namespace vocabpipe::testing {
namespace {

/// h = 8 in two heads, f = 32; 48 tokens in 3 sequences.
PlanOptions on_device() {
    PlanOptions options;
    options.model = {.name = "narrow",
                     .config = {.num_layers = 2,
                                .hidden_size = 8,
                                .ffn_hidden_size = 32,
                                .num_attention_heads = 2,
                                .max_position_embeddings = 16,
                                .vocab_size = 100}};
    options.seq_length = 16;
    options.device = instant_device();
    return options;
}
Candidate of_candidate(int tensor = 1, Recompute recompute = Recompute::none) {
    return {.mesh = {.tensor = tensor}, .micro_batch_size = 3, .recompute = recompute};
}
constexpr double kTokens = 48;
/// The times of the first layer.
LayerTimes layer_costs(const PlanOptions& options, const Candidate& candidate) {
    return unit_costs(ModelOnDevice(options), candidate).layers.front();
}

TEST(UnitCosts, AttentionTakesItsFlopsAndBackwardTwoAndAHalfTimesAsMany) {
    PlanOptions options = on_device();
    options.device.attention_efficiency.value = 0.25;
    for (const int tensor : {1, 2}) {
        const LayerTimes costs = layer_costs(options, of_candidate(tensor));
        // Two products of 2 h FLOPs per token and token that it sees, 8 in the mean.
        const double forward = kTokens / tensor * 4 * 8 * 8 / 250;
        expect_near(costs.forward, forward);
        expect_near(costs.input_gradient, 2.5 * forward);
        expect_near(costs.backward, 2.5 * forward);
        expect_near(costs.weight_gradient, 0);
        EXPECT_EQ(costs.recompute, 0);
    }
}

TEST(UnitCosts, NormsResidualsAndActivationsMoveTheirBytes) {
    PlanOptions options = on_device();
    options.device.elementwise_efficiency.value = 0.5;
    // Two norms of 2 h, two additions of 3 h, an activation of 2 f; backward 3 h, 3 h and 3 f.
    const double forward = kTokens * (2 * 2 * 8 + 2 * 3 * 8 + 2 * 32) * 2 / 2;
    const double backward = kTokens * (2 * 3 * 8 + 2 * 3 * 8 + 3 * 32) * 2 / 2;
    const double again = kTokens * (2 * 2 * 8 + 2 * 32) * 2 / 2;
    const LayerTimes plain = layer_costs(options, of_candidate());
    expect_near(plain.forward, forward);
    expect_near(plain.input_gradient, backward);
    expect_near(plain.backward, backward);
    expect_near(plain.weight_gradient, 0);
    EXPECT_EQ(plain.recompute, 0);
    expect_near(layer_costs(options, of_candidate(1, Recompute::selective)).recompute, again);
    expect_near(layer_costs(options, of_candidate(1, Recompute::full)).recompute, forward);
    // Tensor ranks have rows of their own.
    const LayerTimes half = layer_costs(options, of_candidate(2, Recompute::selective));
    expect_near(half.recompute, again / 2);
    expect_near(half.forward, forward / 2);
    expect_near(half.input_gradient, backward / 2);
    // But all rows of norms and residuals without sequence parallelism.
    options.trainer.sequence_parallel = false;
    const double norms = kTokens * 2 * 2 * 8 * 2 / 2, additions = kTokens * 2 * 3 * 8 * 2 / 2;
    const LayerTimes whole = layer_costs(options, of_candidate(2, Recompute::selective));
    expect_near(whole.forward, (forward + norms + additions) / 2);
    expect_near(whole.recompute, (again + norms) / 2);
}

TEST(UnitCosts, KernelsOf2023ReadAndWriteMoreThanFusedOnes) {
    PlanOptions options = on_device();
    options.device.elementwise_efficiency.value = 0.5;
    options.trainer.kernels = KernelYear::y2023;
    const KernelRates& rates = kernel_rates(KernelYear::y2023);
    const double residual = 2 * 2 * 8 + 2 * 3 * 8, columns = 2 * 32;
    expect_near(layer_costs(options, of_candidate()).forward,
                kTokens * (rates.residual_moves * residual + rates.activation_moves * columns));
}

TEST(UnitCosts, KernelsOf2022KeepScoresInMemory) {
    PlanOptions options = on_device();
    options.trainer.kernels = KernelYear::y2022;
    options.device.dense_efficiency.value = 0.25;
    const double products = layer_costs(options, of_candidate()).forward;
    // Two products of all 16 keys of every token, not of the 8 that it sees in the mean.
    const double squares = kTokens * 4 * 16 * 8 / 250;
    const double linear = kTokens * 2 * (4 * 8 * 8 + 2 * 8 * 32) / 250;
    // The mean of causal keys is 8.5, where twice the mean is 17.
    EXPECT_NEAR(products, linear + squares, 0.07 * squares);
    options.device.elementwise_efficiency.value = 0.5;  // 2 bytes per ns
    const double moved = kTokens * (2 * 2 * 8 + 2 * 3 * 8 + 2 * 32);
    const double scores = kTokens * 2 * 16 / 2;
    const KernelRates& rates = kernel_rates(KernelYear::y2022);
    const LayerTimes costs = layer_costs(options, of_candidate(1, Recompute::selective));
    EXPECT_NEAR(costs.forward - products, moved + scores * rates.score_bytes_forward, 1e-6);
    // Selective recomputation makes the heads again.
    EXPECT_NEAR(costs.recompute, products - linear + scores * rates.score_bytes_forward, 1e-6);
}

TEST(UnitCosts, ALayerTakesNoLessThanItsLaunches) {
    PlanOptions options = on_device();
    options.device.layer_launch_us.value = 8;
    const LayerTimes costs = layer_costs(options, of_candidate(1, Recompute::full));
    EXPECT_EQ(costs.forward, 8000);
    EXPECT_EQ(costs.recompute, 8000);
    EXPECT_EQ(costs.backward, 12000);
    EXPECT_EQ(costs.input_gradient + costs.weight_gradient, 12000);
}

// q, k and v, the output, and both products of the MLP.
TEST(UnitCosts, ProductsTakeTheirTermsAndTheStartOfTheirTilesAndAFixedTime) {
    PlanOptions options = on_device();
    options.device.dense_efficiency.value = 0.5;
    options.device.product_startup_terms.value = 10;
    options.device.product_overhead_us.value = 2;
    const double n = kTokens, h = 8, f = 32;
    const auto product = [](double rows, double columns, double terms) {
        return 2 * rows * columns * (terms + 10) / 500 + 2000;
    };
    const double forward =
        product(n, 3 * h, h) + product(n, h, h) + product(n, f, h) + product(n, h, f);
    const double input =
        product(n, h, 3 * h) + product(n, h, h) + product(n, h, f) + product(n, f, h);
    const double weight =
        product(3 * h, h, n) + product(h, h, n) + product(f, h, n) + product(h, f, n);
    const LayerTimes costs = layer_costs(options, of_candidate());
    expect_near(costs.forward, forward);
    expect_near(costs.input_gradient, input);
    expect_near(costs.weight_gradient, weight);
    expect_near(costs.backward, input + weight);
}

TEST(UnitCosts, TheOutputLayerHasThreeProducts) {
    PlanOptions options = on_device();
    options.device.dense_efficiency.value = 0.5;
    options.device.product_startup_terms.value = 10;
    options.device.product_overhead_us.value = 2;
    for (const int tensor : {1, 2}) {  // which share rows of the vocabulary, not tokens
        const UnitCosts costs = unit_costs(ModelOnDevice(options), of_candidate(tensor));
        for (const double rows : {0.0, 70.0}) {
            expect_near(costs.logits.of(rows), 2 * kTokens * rows * (8 + 10) / 500 + 2000);
            expect_near(costs.output_weight_gradient.of(rows),
                        2 * 8 * rows * (kTokens + 10) / 500 + 2000);
            // Its terms are the rows.
            expect_near(costs.output_gradient.of(rows), 2 * kTokens * 8 * (rows + 10) / 500 + 2000);
        }
    }
}

TEST(UnitCosts, TheVocabularyLayersMoveTheirBytes) {
    PlanOptions options = on_device();
    options.device.elementwise_efficiency.value = 0.5;  // 2 bytes per ns
    options.device.softmax_bytes_per_logit.value = 10;
    options.device.whole_softmax_bytes_per_logit.value = 6;
    options.device.vocabulary_pass_overhead_us.value = 3;
    options.device.overlap_efficiency.value = 0.8;
    for (const int tensor : {1, 2}) {
        const UnitCosts costs = unit_costs(ModelOnDevice(options), of_candidate(tensor));
        expect_near(costs.softmax_per_row, kTokens * 10 / 2);
        expect_near(costs.whole_softmax_per_row, kTokens * 6 / 2);
        // Rows are read and written, in bf16.
        expect_near(costs.embedding, 2 * kTokens * 8 * 2 / 2);
        // dy is read in bf16; gradients are read and written in fp32.
        expect_near(costs.embedding_gradient, kTokens * 8 * (2 + 4 + 4) / 2);
        expect_near(costs.per_parameter_byte, 1.0 / 2);
        expect_near(costs.vocabulary_pass, 3000);
        expect_near(costs.overlapped, 1.25);
    }
}

TEST(UnitCosts, AStepReadsAndWritesGradientMasterMomentsAndWeight) {
    EXPECT_EQ(kUpdateTraffic, 4 + 2 * 4 + 4 * 4 + 2);
    EXPECT_EQ(kNormTraffic, 4);
}

/// A link of this many bytes per ns, and products that take no time.
LayerProducts over_link(const PlanOptions& options, const Mesh& mesh, double imbalance = 1,
                        int expert_tensor = 1) {
    const ModelConfig& config = options.model.config;
    return layer_products(
        ModelLayers(config)[0].block.work(options.seq_length).products,
        DeviceRates(options.device, options.trainer), mesh, 48,
        expert_load(config.moe, {.mesh = mesh, .expert_tensor = expert_tensor}, imbalance));
}

// Each member gets the half that it has not.
TEST(LayerProducts, TensorRanksExchangeWhatIsCut) {
    PlanOptions options = on_device();
    options.device.link_gb_per_s.value = 1e-3;
    options.device.link_latency_us.value = 7;
    options.trainer.kernels = KernelYear::y2022;
    const double exchange = 48 * 8 * 2 / 2 * 1e3 + 7000;
    // Columns gather x of h, rows add up y of h: two of each, and as many gradients.
    const LayerProducts layer = over_link(options, {.tensor = 2});
    expect_near(layer.forward, 4 * exchange);
    expect_near(layer.input_gradient, 4 * exchange);
    expect_near(layer.weight_gradient, 0);
    expect_near(layer.backward, 4 * exchange);
    EXPECT_EQ(layer.recompute, 0);
}

TEST(LayerProducts, NewKernelsHideMostOfWhatTensorRanksExchange) {
    PlanOptions options = on_device();
    options.device.link_gb_per_s.value = 1e-3;
    options.trainer.kernels = KernelYear::y2022;
    const double all = over_link(options, {.tensor = 2}).forward;
    options.trainer.kernels = KernelYear::y2025;
    const double exposed = 1 - kernel_rates(KernelYear::y2025).tensor_overlap;
    EXPECT_LT(exposed, 0.5);
    expect_near(over_link(options, {.tensor = 2}).forward, exposed * all);
    options.trainer.blocking_exchanges = true;
    expect_near(over_link(options, {.tensor = 2}).forward, all);
    options.trainer.blocking_exchanges = false;
    options.trainer.kernels = KernelYear::y2023;
    expect_near(over_link(options, {.tensor = 2}).forward,
                all / kernel_rates(KernelYear::y2023).tensor_exchange);
}

TEST(LayerProducts, OperandsOf8BitsMultiplyFaster) {
    PlanOptions options = on_device();
    options.device.dense_efficiency.value = 1e-3;
    const double of_16_bits = over_link(options, {}).forward;
    options.device.fp8_speedup.value = 1.6;
    expect_near(over_link(options, {}).forward, of_16_bits);
    options.trainer.fp8 = true;
    expect_near(over_link(options, {}).forward, of_16_bits / 1.6);
}

TEST(LayerProducts, TensorRanksHaveAPartOfTheProducts) {
    PlanOptions options = on_device();
    options.device.dense_efficiency.value = 1e-3;  // a FLOP per ns
    const LayerProducts alone = over_link(options, {});
    const LayerProducts half = over_link(options, {.tensor = 2});
    const double flops = 2.0 * 48 * (4 * 8 * 8 + 2 * 8 * 32);
    expect_near(alone.forward, flops);
    expect_near(half.forward, flops / 2);
    expect_near(half.input_gradient, flops / 2);
    expect_near(half.weight_gradient, flops / 2);
    expect_near(half.backward, flops);
}

/// Four experts of 16 columns, of which a token has k.
PlanOptions with_experts(int64_t k) {
    PlanOptions options = on_device();
    options.model.config.moe = {.experts = 4, .top_k = k, .ffn_hidden_size = 16};
    return options;
}

TEST(LayerProducts, ExpertRanksExchangeACopyPerRankThatATokenGoesTo) {
    for (const int64_t k : {1, 2}) {
        PlanOptions options = with_experts(k);
        options.device.link_gb_per_s.value = 1e-3;
        options.device.link_latency_us.value = 7;
        // The second of two experts, of four, is on the other rank in 2 of 3 cases, and so 5 of 6
        // copies are not the second at one rank: 2 (1 - 2/4 x 1/3) / 2.
        const double copies = k == 1 ? 1 : 5.0 / 6;
        const double exchange = 48 * static_cast<double>(k) * 8 * 2 * copies / 2 * 1e3 + 7000;
        const LayerProducts layer = over_link(options, {.data = 2, .expert = 2});
        const double rounding = 5e-2 * exchange;  // whole bytes per row
        EXPECT_NEAR(layer.recompute, exchange, 1e-6 * exchange);
        EXPECT_NEAR(layer.forward, 2 * exchange, 2 * rounding);
        EXPECT_NEAR(layer.input_gradient, 2 * exchange, 2 * rounding);
        expect_near(layer.weight_gradient, 0);
        // The rank that gets half more has as much more to receive.
        const double more = over_link(options, {.data = 2, .expert = 2}, 1.5).recompute - 7000;
        EXPECT_NEAR(more, 1.5 * (exchange - 7000), 1e-6 * exchange);
    }
}

TEST(LayerProducts, OfExpertsTheRowsOfAllThatAreHereAreMultiplied) {
    PlanOptions options = with_experts(2);
    options.device.dense_efficiency.value = 1e-3;
    options.device.product_startup_terms.value = 3;
    options.device.product_overhead_us.value = 0.1;
    // Attention and the router over all tokens; then two matrices of each of four experts.
    const double n = 48, h = 8, f = 16, rows = 2 * n;
    const auto product = [](double m, double columns, double terms) {
        return 2 * m * columns * (terms + 3) + 100;
    };
    const double forward = product(n, 3 * h, h) + product(n, h, h) + product(n, 4, h) +
                           4 * (product(rows / 4, 2 * f, h) + product(rows / 4, h, f));
    const double input = product(n, h, 3 * h) + product(n, h, h) + product(n, h, 4) +
                         4 * (product(rows / 4, h, 2 * f) + product(rows / 4, f, h));
    const double weight = product(3 * h, h, n) + product(h, h, n) + product(4, h, n) +
                          4 * (product(h, 2 * f, rows / 4) + product(f, h, rows / 4));
    const LayerProducts layer = over_link(options, {});
    expect_near(layer.forward, forward);
    expect_near(layer.input_gradient, input);
    expect_near(layer.weight_gradient, weight);
    expect_near(layer.backward, input + weight);
    EXPECT_EQ(layer.recompute, 0);
}

TEST(LayerProducts, TensorRanksRouteAndSendToExpertsTheirOwnTokens) {
    PlanOptions options = with_experts(2);
    options.device.dense_efficiency.value = 1e-3;
    const LayerProducts alone = over_link(options, {}), half = over_link(options, {.tensor = 2});
    expect_near(half.forward, alone.forward / 2);
    expect_near(half.input_gradient, alone.input_gradient / 2);
    expect_near(half.weight_gradient, alone.weight_gradient / 2);
}

TEST(LayerProducts, ExpertRanksStartTheProductsOfTheirExpertsAlone) {
    PlanOptions options = with_experts(2);
    options.device.dense_efficiency.value = 1e-3;
    const Mesh mesh{.data = 2, .expert = 2};
    const LayerProducts none = over_link(options, mesh);
    options.device.product_overhead_us.value = 0.1;
    const LayerProducts started = over_link(options, mesh);
    // Two of attention and the router; two matrices of two experts.
    EXPECT_NEAR(started.forward - none.forward, 100 * (3 + 2 * 2), 2);
}

// Rows travel before the first product and after the second one; gradients the other way round.
TEST(LayerProducts, ExpertsHideTheirExchangesAsOverlapSays) {
    PlanOptions options = with_experts(1);
    options.device.dense_efficiency.value = 1e-3;
    options.device.attention_efficiency.value = 1e20;
    options.device.link_gb_per_s.value = 1.0 / 50;
    const Mesh mesh{.data = 2, .expert = 2};
    const auto hidden = [](OverlapOp op, double flops) {
        return static_cast<double>(
            choose_pieces({.op = op, .rows = 48, .members = 2, .compute_ns = std::llround(flops)},
                          {.bytes_per_ns = 1.0 / 50}, {.row_bytes = 8 * 2}, std::array{1, 2, 4, 8})
                .times.overlapped_ns);
    };
    const double up = 2.0 * 48 * 8 * 32, down = 2.0 * 48 * 8 * 16;
    const double rest = 2.0 * 48 * (4 * 8 * 8 + 8 * 4);  // attention and router
    const LayerProducts layer = over_link(options, mesh);
    using enum OverlapOp;
    expect_near(layer.forward, rest + hidden(dispatch_gemm, up) + hidden(gemm_combine, down));
    expect_near(layer.input_gradient,
                rest + hidden(gemm_combine, up) + hidden(dispatch_gemm, down));
    EXPECT_NE(hidden(dispatch_gemm, up) + hidden(gemm_combine, down),
              hidden(gemm_combine, up) + hidden(dispatch_gemm, down));
    // One after the other: half of the rows come from the other rank.
    options.trainer.blocking_exchanges = true;
    const double exchange = 48.0 / 2 * 8 * 2 * 50;
    const LayerProducts blocking = over_link(options, mesh);
    expect_near(blocking.forward, rest + up + down + 2 * exchange);
    expect_near(blocking.input_gradient, rest + up + down + 2 * exchange);
    EXPECT_GT(blocking.forward, layer.forward);
}

TEST(UnitCosts, ExpertsOfSomeLayersExchangeInThese) {
    PlanOptions options = with_experts(1);
    options.device.link_gb_per_s.value = 1e-3;
    const Mesh mesh{.data = 2, .expert = 2};
    const double all = over_link(options, mesh).recompute;
    EXPECT_GT(all, 0);
    options.model.config.moe.sparse = {false, true};
    Candidate candidate = of_candidate(1, Recompute::selective);
    candidate.mesh = mesh;
    const auto recompute = [&](size_t layer) {
        return unit_costs(ModelOnDevice(options), candidate).layers[layer].recompute;
    };
    expect_near(recompute(0), 0);
    expect_near(recompute(1), all);
    // On nodes of one GPU each they do so through the network.
    options.device.network_gb_per_s.value = 1e-2;
    options.device.gpus_per_node.value = 1;
    expect_near(recompute(1), all / 10);
}

TEST(LayerProducts, MemoryOfRowsIsForAQuarterMoreThanEvenWhereThereCanBeMore) {
    Candidate two{.mesh = {.data = 2, .expert = 2}};
    EXPECT_EQ(expert_load(with_experts(2).model.config.moe, two, 1).row_bound, 1.25);
    EXPECT_EQ(expert_load(with_experts(4).model.config.moe, two, 1).row_bound, 1)
        << "every token goes to all experts";
    EXPECT_EQ(expert_load(with_experts(3).model.config.moe, two, 9).row_bound, 1.25);
    EXPECT_EQ(expert_load(with_experts(3).model.config.moe, two, 9).rows, 2 * 2 / 3.0);
    two.expert_tensor = 2;
    EXPECT_EQ(expert_load(with_experts(2).model.config.moe, two, 9).row_bound, 1);
    EXPECT_EQ(expert_load(with_experts(2).model.config.moe, two, 9).rows, 1)
        << "a single group has all rows";
}

// As many FLOPs as whole experts, and twice the rows of h: each token goes to both ranks of an
// expert, once for both of its experts of a group.
TEST(LayerProducts, RanksThatShareAnExpertGetAllItsRowsAndMultiplyAPartOfItsColumns) {
    PlanOptions options = with_experts(2);
    options.device.dense_efficiency.value = 1e-3;
    const LayerProducts whole = over_link(options, {.data = 4});
    for (const int parts : {2, 4}) {
        SCOPED_TRACE(parts);
        const LayerProducts cut = over_link(options, {.data = 4, .expert = 4}, 1, parts);
        EXPECT_NEAR(cut.forward, whole.forward, 2);
        EXPECT_NEAR(cut.input_gradient, whole.input_gradient, 2);
        EXPECT_NEAR(cut.weight_gradient, whole.weight_gradient, 2);
    }
    options.device.dense_efficiency.value = 1e20;
    options.device.link_gb_per_s.value = 1e-3;
    options.device.link_latency_us.value = 7;
    const auto exchange = [&](double copies) { return 48 * copies * 8 * 2 * 3 / 4 * 1e3 + 7000; };
    const auto of = [&](int parts) {
        return over_link(options, {.data = 4, .expert = 4}, 1, parts).recompute;
    };
    expect_near(of(1), exchange(2));                  // two experts of four ranks
    expect_near(of(2), exchange(2 * (2 - 1 / 3.0)));  // two groups: one of both in 1 of 3 cases
    expect_near(of(4), exchange(4));                  // all ranks
}

TEST(UnitCosts, RowsOfSharedExpertsAreCopiedForEachOfTheirRanks) {
    PlanOptions options = with_experts(2);
    options.device.elementwise_efficiency.value = 1;
    Candidate candidate = of_candidate(1, Recompute::none);
    candidate.mesh = {.data = 2};
    const double whole = unit_costs(ModelOnDevice(options), candidate).layers[0].forward;
    candidate.mesh.expert = candidate.expert_tensor = 2;
    const double cut = unit_costs(ModelOnDevice(options), candidate).layers[0].forward;
    const double activation_moves = kernel_rates(options.trainer.kernels).activation_moves;
    const auto tokens = static_cast<double>(candidate.micro_batch_size * options.seq_length);
    // 3 h of each of two rows once more, in bf16, at 4 bytes per ns; an exchange takes 1 ns or
    // more.
    EXPECT_NEAR(cut - whole, tokens * 2 * 3 * 8 * activation_moves * 2 / 4, 2);
}

// What goes beyond the memory for 1.25 times the mean is computed in a second round, for which I
// makes half of the forward again.
TEST(LayerProducts, RowsBeyondTheMemoryAreComputedAgain) {
    PlanOptions options = with_experts(2);
    options.device.dense_efficiency.value = 1e-3;
    const Mesh mesh{.data = 2, .expert = 2};
    const LayerProducts even = over_link(options, mesh), more = over_link(options, mesh, 1.5);
    const double experts = 2.0 * 96 * 3 * 8 * 16;  // FLOPs of a forward of all rows
    EXPECT_NEAR(more.forward - even.forward, 0.5 * experts, 10);
    EXPECT_NEAR(more.input_gradient - even.input_gradient, 0.5 * experts + 1.5 * experts / 2, 10);
    EXPECT_NEAR(more.weight_gradient - even.weight_gradient, 0.5 * experts, 10);
}

}  // namespace
}  // namespace vocabpipe::testing
