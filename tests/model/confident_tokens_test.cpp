// SPDX-License-Identifier: Apache-2.0
// Gradients of tokens that the model is sure of keep their digits in bf16, whatever the sharding.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>

#include "kernels/bf16.hpp"
#include "kernels/host/operators.hpp"
#include "src/model/output_layer.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe::testing {
namespace {

using kernels::Bf16;

struct Bf16Matrix {
    Bf16Matrix(int64_t rows_, int64_t cols_, const std::vector<double>& values)
        : rows(rows_), cols(cols_) {
        for (const double v : values) data.push_back(kernels::to_bf16(static_cast<float>(v)));
    }
    [[nodiscard]] double at(int64_t row, int64_t col) const {
        return kernels::to_float(data[static_cast<size_t>(row * cols + col)]);
    }
    [[nodiscard]] Tensor view() { return {data.data(), rows, cols, DType::bf16}; }
    int64_t rows, cols;
    std::vector<Bf16> data;
};

constexpr int64_t kConfidentTokens = 48;
constexpr int64_t kConfidentHidden = 96;
constexpr int64_t kConfidentVocab = 600;

/// X, W and labels of which every label's logit leads the next one by lead(n).
struct Problem {
    Bf16Matrix x, w;
    std::vector<int32_t> labels;
    std::vector<float> g;
};

template <typename Lead>
Problem leading(Lead&& lead) {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    std::vector<double> x(kConfidentTokens * kConfidentHidden);
    std::vector<double> w(kConfidentVocab * kConfidentHidden);
    for (double& v : x) v = normal(random);
    for (double& v : w) v = normal(random) / std::sqrt(static_cast<double>(kConfidentHidden));
    std::vector<int32_t> labels(kConfidentTokens);
    for (size_t n = 0; n < labels.size(); ++n) labels[n] = static_cast<int32_t>(n * 12 + 5);
    // Each label's row moves along its token; tokens are nearly orthogonal, so a few rounds settle.
    const auto logit = [&](int64_t n, int64_t j) {
        double z = 0;
        for (int64_t i = 0; i < kConfidentHidden; ++i)
            z += x[n * kConfidentHidden + i] * w[j * kConfidentHidden + i];
        return z;
    };
    for (int round = 0; round < 20; ++round) {
        for (int64_t n = 0; n < kConfidentTokens; ++n) {
            const int64_t y = labels[static_cast<size_t>(n)];
            double others = -INFINITY;
            double square = 0;
            for (int64_t j = 0; j < kConfidentVocab; ++j) {
                if (j != y) others = std::max(others, logit(n, j));
            }
            for (int64_t i = 0; i < kConfidentHidden; ++i)
                square += x[n * kConfidentHidden + i] * x[n * kConfidentHidden + i];
            const double step = (others + lead(n) - logit(n, y)) / square;
            for (int64_t i = 0; i < kConfidentHidden; ++i)
                w[y * kConfidentHidden + i] += step * x[n * kConfidentHidden + i];
        }
    }
    return {Bf16Matrix(kConfidentTokens, kConfidentHidden, x),
            Bf16Matrix(kConfidentVocab, kConfidentHidden, w), labels,
            std::vector<float>(kConfidentTokens, 1.0F / kConfidentTokens)};
}

struct OutputGradients {
    std::vector<double> dx, dw;
};

/// The gradients of the same bf16 numbers, in double, as one piece.
OutputGradients exact_gradients(const Problem& p, bool round_softmax = false) {
    OutputGradients out{std::vector<double>(kConfidentTokens * kConfidentHidden),
                        std::vector<double>(kConfidentVocab * kConfidentHidden)};
    for (int64_t n = 0; n < kConfidentTokens; ++n) {
        std::vector<double> z(kConfidentVocab);
        double max = -INFINITY;
        for (int64_t j = 0; j < kConfidentVocab; ++j) {
            for (int64_t i = 0; i < kConfidentHidden; ++i) z[j] += p.x.at(n, i) * p.w.at(j, i);
            max = std::max(max, z[j]);
        }
        double sum = 0;
        for (const double v : z) sum += std::exp(v - max);
        const auto label = p.labels[static_cast<size_t>(n)];
        double others = 0;
        for (int64_t j = 0; j < kConfidentVocab; ++j) {
            if (j != label) others += std::exp(z[j] - max) / sum;
        }
        for (int64_t j = 0; j < kConfidentVocab; ++j) {
            double dz = j == label ? -others : std::exp(z[j] - max) / sum;
            if (round_softmax) {  // what Algorithm 2 does without keeping the label apart
                const double softmax = std::exp(z[j] - max) / sum;
                dz = kernels::to_float(kernels::to_bf16(static_cast<float>(softmax)));
                if (j == label) dz -= 1;
            }
            dz *= p.g[static_cast<size_t>(n)];
            for (int64_t i = 0; i < kConfidentHidden; ++i) {
                out.dx[n * kConfidentHidden + i] += dz * p.w.at(j, i);
                out.dw[j * kConfidentHidden + i] += dz * p.x.at(n, i);
            }
        }
    }
    return out;
}

/// Through ShardedOutputLayer, one per shard, and the ordered sum of the reduction.
OutputGradients sharded_gradients(Problem& p, const ShardMap& map) {
    Context ctx({.threads = 1, .poll = {}});
    const Microbatch microbatch{.index = 0,
                                .sequences = 1,
                                .seq_length = kConfidentTokens,
                                .tokens = p.labels,
                                .labels = p.labels,
                                .loss_gradient = p.g};
    std::vector<float> dw(kConfidentVocab * kConfidentHidden);
    std::vector<Parameter> parameters;
    for (const int rank : map.owners()) {
        Parameter part;
        part.first_row = map.begin(rank);
        part.logical_rows = kConfidentVocab;
        part.weight = p.w.view().row_range(part.first_row, map.rows(rank));
        part.gradient = Tensor(dw.data(), kConfidentVocab, kConfidentHidden, DType::fp32)
                            .row_range(part.first_row, map.rows(rank));
        parameters.push_back(part);
    }
    const size_t shards = parameters.size();
    const std::unique_ptr<Device> device = make_host_device();
    std::vector<ShardedOutputLayer> layers;
    for (Parameter& part : parameters) {
        layers.emplace_back(*device, std::span(&part, 1), kConfidentTokens, kernels::LossOptions{});
        layers.back().begin_step(1);
    }
    std::vector<float> statistics(shards * kConfidentTokens * StepSizes::kStatistics);
    const Tensor all(statistics.data(), static_cast<int64_t>(shards) * kConfidentTokens,
                     StepSizes::kStatistics, DType::fp32);
    std::vector<std::vector<Bf16>> all_exp_logits;
    for (size_t k = 0; k < shards; ++k) {
        const int64_t rows = parameters[k].weight.rows;
        all_exp_logits.emplace_back(kConfidentTokens * rows);
        std::vector<std::byte> workspace(
            static_cast<size_t>(output_shard_bytes(device->operators(), kConfidentTokens,
                                                   kConfidentHidden, rows, DType::bf16)
                                    .score_workspace));
        layers[k].score(ctx, microbatch, p.x.view(),
                        Tensor(all_exp_logits[k].data(), kConfidentTokens, rows, DType::bf16),
                        all.row_range(static_cast<int64_t>(k) * kConfidentTokens, kConfidentTokens),
                        workspace);
    }
    std::vector<float> u(shards * kConfidentTokens * kConfidentHidden);
    for (size_t k = 0; k < shards; ++k) {
        const int64_t rows = parameters[k].weight.rows;
        const Tensor exp_logits(all_exp_logits[k].data(), kConfidentTokens, rows, DType::bf16);
        std::vector<float> factor(kConfidentTokens * StepSizes::kFactors);
        const Tensor factors(factor.data(), kConfidentTokens, StepSizes::kFactors, DType::fp32);
        const Tensor mine(&u[k * kConfidentTokens * kConfidentHidden], kConfidentTokens,
                          kConfidentHidden, DType::fp32);
        layers[k].combine_softmax(ctx, microbatch, all, static_cast<int>(k), factors);
        layers[k].input_product(ctx, exp_logits, mine);
        layers[k].finish_input_gradient(ctx, microbatch, factors, mine);
        std::vector<std::byte> workspace(
            static_cast<size_t>(output_shard_bytes(device->operators(), kConfidentTokens,
                                                   kConfidentHidden, rows, DType::bf16)
                                    .weight_gradient_workspace));
        layers[k].weight_gradient(ctx, microbatch, p.x.view(), exp_logits, factors, workspace,
                                  false);
    }
    std::vector<float> dx(kConfidentTokens * kConfidentHidden);
    kernels::host::ordered_sum(ctx,
                               Tensor(u.data(), static_cast<int64_t>(shards) * kConfidentTokens,
                                      kConfidentHidden, DType::fp32),
                               static_cast<int64_t>(shards), -1,
                               Tensor(dx.data(), kConfidentTokens, kConfidentHidden, DType::fp32));
    return {{dx.begin(), dx.end()}, {dw.begin(), dw.end()}};
}

/// The largest relative error of a row, of the rows that are not 0.
double worst_row_error(const std::vector<double>& actual, const std::vector<double>& expected,
                       const std::vector<int64_t>& rows) {
    double worst = 0;
    for (const int64_t row : rows) {
        double error = 0;
        double norm = 0;
        for (int64_t i = row * kConfidentHidden; i < (row + 1) * kConfidentHidden; ++i) {
            error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
            norm += expected[i] * expected[i];
        }
        const double relative = std::sqrt(error / norm);
        if (!(relative <= worst)) worst = relative;
    }
    return worst;
}

std::vector<int64_t> first_rows(int64_t count) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < count; ++row) rows.push_back(row);
    return rows;
}
std::vector<int64_t> label_rows(const Problem& p, int64_t tokens) {
    return {p.labels.begin(), p.labels.begin() + tokens};
}

// Errors of a token's dX = sum over j of p_j W_j, j not the label, + d W_y: each e_j is rounded to
// bf16 once, at most 2^-9 = 2e-3 of it, independently. Few rows of W carry a confident token's sum,
// so that little averages out: 2^-9 is the bound for every single token, whatever the lead.
// The label's row of dW is d X_n above all, and d is never rounded to bf16.
constexpr double kRowBound = 0x1p-9;
// Any other row of dW is a sum over tokens of e_nj (c X_n), both rounded to bf16, with signs that
// make the sum smaller than its largest terms, but not by a factor 2: 2 * 2^-9 * 2.
constexpr double kWeightRowBound = 0x1p-7;

const std::vector<ShardMap>& shard_maps() {
    static const std::vector<ShardMap> maps{
        ShardMap::whole(kConfidentVocab, 4, 3), ShardMap::even(kConfidentVocab, 4),
        ShardMap{{0, 1, 1, 590, 600}}, ShardMap::even(kConfidentVocab, 7)};
    return maps;
}

class Lead : public ::testing::TestWithParam<int> {};

TEST_P(Lead, EveryTokensInputGradientIsAsExactAsBf16ExpLogits) {
    const int lead = GetParam();
    Problem p = leading([&](int64_t) { return lead; });
    const OutputGradients exact = exact_gradients(p);
    for (const ShardMap& map : shard_maps()) {
        const OutputGradients actual = sharded_gradients(p, map);
        const double dx = worst_row_error(actual.dx, exact.dx, first_rows(kConfidentTokens));
        const double dw = worst_row_error(actual.dw, exact.dw, label_rows(p, kConfidentTokens));
        const double all_dw = worst_row_error(actual.dw, exact.dw, first_rows(kConfidentVocab));
        std::cout << "lead " << lead << ": dX " << dx << ", dW of labels " << dw << ", of all rows "
                  << all_dw << "\n";
        EXPECT_LT(dx, kRowBound);
        EXPECT_LT(dw, kRowBound);
        EXPECT_LT(all_dw, kWeightRowBound);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, Lead, ::testing::Values(0, 3, 6, 9, 12, 16));

TEST(ConfidentTokens, OnesAmongUncertainOnesAreAsExact) {
    // Odd tokens lead by 12: their share of dW's label rows is small, but those rows are theirs.
    Problem p = leading([](int64_t n) { return n % 2 == 1 ? 12.0 : 0.0; });
    const OutputGradients exact = exact_gradients(p);
    const OutputGradients actual = sharded_gradients(p, ShardMap::even(kConfidentVocab, 4));
    EXPECT_LT(worst_row_error(actual.dx, exact.dx, first_rows(kConfidentTokens)), kRowBound);
    EXPECT_LT(worst_row_error(actual.dw, exact.dw, first_rows(kConfidentVocab)), kWeightRowBound);
}

TEST(ConfidentTokens, ThisProblemIsOneThatRoundingTheSoftmaxFails) {
    const auto error = [](double lead) {
        const Problem p = leading([&](int64_t) { return lead; });
        return worst_row_error(exact_gradients(p, true).dx, exact_gradients(p).dx,
                               first_rows(kConfidentTokens));
    };
    EXPECT_LT(error(0), 0.02);
    EXPECT_GT(error(12), 0.9);
}

// Through the whole pipeline: with ln_f.weight = 0, X is ln_f.bias exactly, so that the rounding of
// the layers below does not blur the output layer's. All labels are the same row then.
TEST(ConfidentTokens, WholePipelineGradientsAreAsExactAtLead12AsAtLead0) {
    ModelCase c{.name = "", .config = small_model(4, 6, 64, false), .microbatches = 3, .ranks = 4};
    c.config.dtype = DType::bf16;
    Batch batch = c.batch();
    for (auto& labels : batch.labels) std::fill(labels.begin(), labels.end(), 17);
    const auto h = static_cast<size_t>(c.config.hidden_size);
    for (const double lead : {0.0, 6.0, 12.0}) {
        Tensors weights = random_weights(c.config, 3);
        std::vector<double>& gamma = weights.at("transformer.ln_f.weight");
        std::fill(gamma.begin(), gamma.end(), 0.0);
        const std::vector<double>& x = weights.at("transformer.ln_f.bias");
        std::vector<double>& w = weights.at("lm_head.weight");
        std::vector<double> z(64);
        double square = 0;
        for (size_t i = 0; i < h; ++i) square += x[i] * x[i];
        double others = -INFINITY;
        for (size_t j = 0; j < z.size(); ++j) {
            for (size_t i = 0; i < h; ++i) z[j] += x[i] * w[j * h + i];
            if (j != 17) others = std::max(others, z[j]);
        }
        for (size_t i = 0; i < h; ++i) {
            const double moved = w[17 * h + i] + (others + lead - z[17]) * x[i] / square;
            w[17 * h + i] = kernels::to_float(kernels::to_bf16(static_cast<float>(moved)));
        }
        const Fp64Step expected = fp64_step(c.config, batch, weights);
        for (const VocabMode mode : {VocabMode::interlaced, VocabMode::one_barrier,
                                     VocabMode::two_barriers, VocabMode::none}) {
            const Schedule schedule = make_schedule("1f1b", {.ranks = 4,
                                                             .microbatches = 3,
                                                             .vocab_mode = mode,
                                                             .vocab_size = c.config.vocab_size});
            const Gradients actual = run_with_weights(c.config, schedule, batch, weights);
            const auto error = [&](const char* name) {
                return relative_error(actual.by_name.at(name), expected.gradients.at(name));
            };
            std::cout << "lead " << lead << " " << to_string(mode) << ": ln_f.bias "
                      << error("transformer.ln_f.bias") << ", lm_head " << error("lm_head.weight")
                      << "\n";
            // All tokens are alike and so are their roundings: that of the exp_logits and, of dX
            // and of c X, that of the result: 2^-9 each.
            EXPECT_LT(error("transformer.ln_f.bias"), 2 * kRowBound) << lead;
            EXPECT_LT(error("lm_head.weight"), 2 * kRowBound) << lead;
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
