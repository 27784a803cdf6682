// SPDX-License-Identifier: Apache-2.0
// A layer of 64 experts at the sizes of training, forward and backward: 16384 rows that fall to
// them unevenly, none to one of them. Each operator is compared, in sampled rows, with fp64 on the
// host of what the operators before it have stored.
//
// Bounds (error_factors.hpp), eps = 2^-24: a product errs by sqrt(K) eps |a| |b| in fp32, and is
// rounded once where it is bf16; activations err by 16 eps of their factors, and are rounded once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/error_factors.hpp"
#include "tests/kernels/cuda/large_matrix.hpp"
#include "vocabpipe/tile_map.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct MixtureShape {
    int64_t tokens, experts, top_k, hidden, ffn;
    int64_t sampled_rows;     ///< besides each expert's first and last
    int64_t sampled_outputs;  ///< rows of an expert's weight gradient
};

constexpr MixtureShape kSmallMixture{40, 8, 2, 32, 24, 16, 4};
constexpr MixtureShape kRealMixture =
    kOnStandIn ? kSmallMixture : MixtureShape{2048, 64, 8, 2048, 1024, 256, 4};
constexpr int32_t kEmptyExpert = 5;

/// k different experts of every token: the first ones more often than the last, one never.
std::vector<int32_t> uneven_choice(const MixtureShape& of) {
    std::vector<int32_t> choice;
    uint64_t place = 0;
    for (int64_t n = 0; n < of.tokens; ++n) {
        const size_t first = choice.size();
        while (choice.size() < first + static_cast<size_t>(of.top_k)) {
            const double even = (random_value(9, place++) + 1) / 2;
            const auto expert =
                static_cast<int32_t>(even * std::sqrt(even) * static_cast<double>(of.experts));
            const auto begin = choice.begin() + static_cast<std::ptrdiff_t>(first);
            if (expert != kEmptyExpert && std::find(begin, choice.end(), expert) == choice.end()) {
                choice.push_back(expert);
            }
        }
    }
    return choice;
}

struct MixtureProblem {
    explicit MixtureProblem(const MixtureShape& of)
        : shape(of),
          rows(of.tokens * of.top_k),
          x(LargeMatrix::random(of.tokens, of.hidden, DType::bf16, 1, -1, 1)),
          dout(LargeMatrix::random(of.tokens, of.hidden, DType::bf16, 2, -1, 1)),
          w_up(weights(of.experts * 2 * of.ffn, of.hidden, 3)),
          w_down(weights(of.experts * of.hidden, of.ffn, 4)),
          token_weights(LargeMatrix::random(of.tokens, of.top_k, DType::fp32, 5, 0, 0.5F)),
          choice(uneven_choice(of)) {
        // Slots in the order of their experts, then of their tokens.
        std::vector<std::vector<int32_t>> slots(static_cast<size_t>(of.experts));
        for (size_t slot = 0; slot < choice.size(); ++slot) {
            slots[static_cast<size_t>(choice[slot])].push_back(static_cast<int32_t>(slot));
        }
        row_of_slot.resize(choice.size());
        for (const std::vector<int32_t>& of_expert : slots) {
            const int64_t begin = std::ssize(slot_of_row);
            for (const int32_t slot : of_expert) {
                row_of_slot[static_cast<size_t>(slot)] = static_cast<int32_t>(slot_of_row.size());
                slot_of_row.push_back(slot);
            }
            ranges.push_back({begin, std::ssize(slot_of_row)});
        }
    }
    /// Products of numbers of size 1 have it, too.
    static LargeMatrix weights(int64_t rows, int64_t cols, uint64_t seed) {
        const float range = 2 / std::sqrt(static_cast<float>(cols));
        return LargeMatrix::random(rows, cols, DType::bf16, seed, -range, range);
    }
    [[nodiscard]] std::string name(const std::string& output) const {
        return output + " of " + std::to_string(shape.experts) + " experts, " +
               std::to_string(rows) + " rows, h = " + std::to_string(shape.hidden) +
               ", ffn = " + std::to_string(shape.ffn) + ", bf16";
    }
    [[nodiscard]] int64_t expert_of(int64_t row) const {
        return choice[static_cast<size_t>(slot_of_row[static_cast<size_t>(row)])];
    }
    [[nodiscard]] int64_t token_of(int64_t row) const {
        return slot_of_row[static_cast<size_t>(row)] / shape.top_k;
    }
    /// The weight of the slot of a row.
    [[nodiscard]] double weight(int64_t row) const {
        return token_weights.get(token_of(row),
                                 slot_of_row[static_cast<size_t>(row)] % shape.top_k);
    }

    MixtureShape shape;
    int64_t rows;
    LargeMatrix x, dout, w_up, w_down, token_weights;
    std::vector<int32_t> choice, row_of_slot, slot_of_row;
    std::vector<RowRange> ranges;
};

/// In rows of experts, but for `out` and `dx`.
struct MixtureOutputs {
    LargeMatrix rows, up, act, down, out;
    LargeMatrix ddown, dact, dup, drows, dx;
    LargeMatrix dw_up, dw_down;
};

MixtureOutputs run_mixture(const MixtureProblem& p) {
    const MixtureShape& s = p.shape;
    Device device;
    Context& ctx = device.context();
    const LargeOnDevice x(device, p.x), dout(device, p.dout), w_up(device, p.w_up);
    const LargeOnDevice w_down(device, p.w_down), weights(device, p.token_weights);
    const DeviceArray<int32_t> choice(device, p.choice);
    const std::vector<int32_t> none(p.choice.size(), -7);
    const DeviceArray<int32_t> row_of_slot(device, none), slot_of_row(device, none);
    const DeviceArray<int32_t> row_begin(
        device, std::vector<int32_t>(static_cast<size_t>(s.experts) + 1, -7));
    const auto rows_of = [&](int64_t count, int64_t cols, DType type = DType::bf16) {
        return LargeOnDevice(device, count, cols, type);
    };
    const auto rows = rows_of(p.rows, s.hidden), up = rows_of(p.rows, 2 * s.ffn);
    const auto act = rows_of(p.rows, s.ffn), down = rows_of(p.rows, s.hidden);
    const auto out = rows_of(s.tokens, s.hidden), ddown = rows_of(p.rows, s.hidden);
    const auto dact = rows_of(p.rows, s.ffn), dup = rows_of(p.rows, 2 * s.ffn);
    const auto drows = rows_of(p.rows, s.hidden), dx = rows_of(s.tokens, s.hidden);
    const auto dw_up = rows_of(s.experts * 2 * s.ffn, s.hidden, DType::fp32);
    const auto dw_down = rows_of(s.experts * s.hidden, s.ffn, DType::fp32);

    cuda::sort_by_expert(ctx, choice, row_begin, row_of_slot, slot_of_row);
    EXPECT_EQ(row_of_slot.download(), p.row_of_slot) << p.name("sort_by_expert");
    EXPECT_EQ(slot_of_row.download(), p.slot_of_row) << p.name("sort_by_expert");
    cuda::gather_rows(ctx, x, slot_of_row, s.top_k, {}, rows);
    cuda::grouped_linear_forward(ctx, rows, w_up, p.ranges, 0, up);
    cuda::gated_forward(ctx, Activation::silu, up, act);
    cuda::grouped_linear_forward(ctx, act, w_down, p.ranges, 0, down);
    cuda::combine_rows(ctx, down, row_of_slot, s.top_k, weights, {}, out);

    cuda::gather_rows(ctx, dout, slot_of_row, s.top_k, weights, ddown);
    cuda::grouped_linear_backward_weight(ctx, ddown, act, p.ranges, dw_down, false);
    cuda::grouped_linear_backward_input(ctx, ddown, w_down, p.ranges, dact);
    cuda::gated_backward(ctx, Activation::silu, dact, up, dup);
    cuda::grouped_linear_backward_weight(ctx, dup, rows, p.ranges, dw_up, false);
    cuda::grouped_linear_backward_input(ctx, dup, w_up, p.ranges, drows);
    cuda::combine_rows(ctx, drows, row_of_slot, s.top_k, {}, {}, dx);
    return {rows.download(),  up.download(),    act.download(),   down.download(),
            out.download(),   ddown.download(), dact.download(),  dup.download(),
            drows.download(), dx.download(),    dw_up.download(), dw_down.download()};
}

double dot_of(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

double rounded_once_bound(double value, double error) {
    return kEps16 * 1.01 * (std::abs(value) + error) + error + 1e-9;
}

/// check(index, errors) for every index, by all threads; one failure.
void for_each_sample(const std::string& name, const std::vector<int64_t>& samples,
                     const std::function<void(int64_t, ErrorFactors&)>& check) {
    ErrorFactors errors(name);
#pragma omp parallel num_threads(host_threads())
    {
        ErrorFactors here("");
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < std::ssize(samples); ++i) {
            check(samples[static_cast<size_t>(i)], here);
        }
#pragma omp critical(mixture_errors)
        errors.add(here);
    }
    errors.expect_within_bounds();
}

/// y = a w_e^T, w (E cols of y, cols of a).
void expect_product(const MixtureProblem& p, const char* name, const std::vector<int64_t>& samples,
                    const LargeMatrix& a, const LargeMatrix& w, const LargeMatrix& y) {
    for_each_sample(p.name(name), samples, [&](int64_t row, ErrorFactors& errors) {
        const std::vector<double> left = a.row(row);
        const double length = std::sqrt(dot_of(left, left));
        std::vector<double> right(left.size());
        for (int64_t col = 0; col < y.cols(); ++col) {
            w.read(p.expert_of(row) * y.cols() + col, 0, right);
            const double exact = dot_of(left, right);
            const double error = dot_error(a.cols()) * length * std::sqrt(dot_of(right, right));
            errors.add(row, col, y.get(row, col), exact, rounded_once_bound(exact, error));
        }
    });
}

/// da = dy w_e, w (E cols of dy, cols of da).
void expect_input_product(const MixtureProblem& p, const char* name,
                          const std::vector<int64_t>& samples, const LargeMatrix& dy,
                          const LargeMatrix& w, const LargeMatrix& da) {
    for_each_sample(p.name(name), samples, [&](int64_t row, ErrorFactors& errors) {
        const std::vector<double> left = dy.row(row);
        const double length = std::sqrt(dot_of(left, left));
        const auto width = static_cast<size_t>(da.cols());
        std::vector<double> right(width), sums(width), squares(width);
        for (int64_t k = 0; k < dy.cols(); ++k) {
            w.read(p.expert_of(row) * dy.cols() + k, 0, right);
            const double factor = left[static_cast<size_t>(k)];
#pragma omp simd
            for (size_t i = 0; i < width; ++i) {
                sums[i] += factor * right[i];
                squares[i] += right[i] * right[i];
            }
        }
        for (size_t i = 0; i < width; ++i) {
            const double error = dot_error(dy.cols()) * length * std::sqrt(squares[i]);
            const auto col = static_cast<int64_t>(i);
            errors.add(row, col, da.get(row, col), sums[i], rounded_once_bound(sums[i], error));
        }
    });
}

/// dw_e = dy_e^T a_e in some rows of every expert; 0 where it has no rows.
void expect_weight_gradient(const MixtureProblem& p, const char* name, const LargeMatrix& dy,
                            const LargeMatrix& a, const LargeMatrix& dw) {
    EXPECT_EQ(dw.count_not_finite(), 0) << p.name(name);
    std::vector<int64_t> samples;
    for (int64_t e = 0; e < p.shape.experts; ++e) {
        for (const int64_t out :
             sample_of_each_part(dy.cols(), p.shape.sampled_outputs, static_cast<uint64_t>(e))) {
            samples.push_back(e * dy.cols() + out);
        }
    }
    for_each_sample(p.name(name), samples, [&](int64_t row, ErrorFactors& errors) {
        const RowRange range = p.ranges[static_cast<size_t>(row / dy.cols())];
        const auto width = static_cast<size_t>(a.cols());
        std::vector<double> right(width), sums(width), squares(width);
        double length = 0;
        for (int64_t r = range.first; r < range.end; ++r) {
            const double factor = dy.get(r, row % dy.cols());
            length += factor * factor;
            a.read(r, 0, right);
#pragma omp simd
            for (size_t i = 0; i < width; ++i) {
                sums[i] += factor * right[i];
                squares[i] += right[i] * right[i];
            }
        }
        for (size_t i = 0; i < width; ++i) {
            const auto col = static_cast<int64_t>(i);
            errors.add(row, col, dw.get(row, col), sums[i],
                       dot_error(range.end - range.first) * std::sqrt(length * squares[i]));
        }
    });
}

void expect_activations(const MixtureProblem& p, const std::vector<int64_t>& samples,
                        const MixtureOutputs& o) {
    const int64_t ffn = p.shape.ffn;
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    for_each_sample(p.name("gated_forward"), samples, [&](int64_t row, ErrorFactors& errors) {
        for (int64_t i = 0; i < ffn; ++i) {
            const double gate = o.up.get(row, i), up = o.up.get(row, ffn + i);
            const double exact = gate * sigmoid(gate) * up;
            errors.add(row, i, o.act.get(row, i), exact,
                       rounded_once_bound(exact, 16 * kEps32 * std::abs(exact)));
        }
    });
    for_each_sample(p.name("gated_backward"), samples, [&](int64_t row, ErrorFactors& errors) {
        for (int64_t i = 0; i < ffn; ++i) {
            const double gate = o.up.get(row, i), up = o.up.get(row, ffn + i);
            const double dy = o.dact.get(row, i), share = sigmoid(gate);
            const double dgate = dy * up * share * (1 + gate * (1 - share));
            const double dup = dy * gate * share;
            errors.add(
                row, i, o.dup.get(row, i), dgate,
                rounded_once_bound(dgate, 16 * kEps32 * std::abs(dy * up) * (1 + std::abs(gate))));
            errors.add(row, ffn + i, o.dup.get(row, ffn + i), dup,
                       rounded_once_bound(dup, 16 * kEps32 * std::abs(dup)));
        }
    });
}

/// Every row: rows are copies, gradients are scaled.
void expect_gathered(const MixtureProblem& p, const MixtureOutputs& o) {
    std::vector<int64_t> all;
    for (int64_t row = 0; row < p.rows; ++row) all.push_back(row);
    for_each_sample(p.name("gather_rows"), all, [&](int64_t row, ErrorFactors& errors) {
        for (int64_t i = 0; i < p.shape.hidden; ++i) {
            errors.add(row, i, o.rows.get(row, i), p.x.get(p.token_of(row), i), 0);
        }
    });
    for_each_sample(p.name("gather_rows with weights"), all, [&](int64_t row, ErrorFactors& e) {
        for (int64_t i = 0; i < p.shape.hidden; ++i) {
            const double exact = p.weight(row) * p.dout.get(p.token_of(row), i);
            e.add(row, i, o.ddown.get(row, i), exact,
                  rounded_once_bound(exact, kEps32 * std::abs(exact)));
        }
    });
}

/// Every token.
void expect_combined(const MixtureProblem& p, const char* name, const LargeMatrix& rows,
                     bool weighted, const LargeMatrix& y) {
    std::vector<int64_t> all;
    for (int64_t n = 0; n < p.shape.tokens; ++n) all.push_back(n);
    for_each_sample(p.name(name), all, [&](int64_t n, ErrorFactors& errors) {
        for (int64_t i = 0; i < p.shape.hidden; ++i) {
            double sum = 0, size = 0;
            for (int64_t j = 0; j < p.shape.top_k; ++j) {
                const int64_t row = p.row_of_slot[static_cast<size_t>(n * p.shape.top_k + j)];
                const double term = (weighted ? p.weight(row) : 1) * rows.get(row, i);
                sum += term;
                size += std::abs(term);
            }
            errors.add(
                n, i, y.get(n, i), sum,
                rounded_once_bound(sum, static_cast<double>(p.shape.top_k + 2) * kEps32 * size));
        }
    });
}

void expect_mixture(const MixtureProblem& p, const MixtureOutputs& o) {
    const std::pair<const char*, const LargeMatrix*> written[] = {
        {"rows", &o.rows},   {"gate and up", &o.up}, {"activations", &o.act}, {"down", &o.down},
        {"out", &o.out},     {"ddown", &o.ddown},    {"dact", &o.dact},       {"dup", &o.dup},
        {"drows", &o.drows}, {"dx", &o.dx}};
    for (const auto& [name, output] : written) {
        EXPECT_EQ(output->count_not_finite(), 0) << p.name(name);
    }
    std::vector<int64_t> samples = sample_of_each_part(p.rows, p.shape.sampled_rows, 8);
    for (const RowRange& range : p.ranges) {
        if (range.end > range.first) samples.insert(samples.end(), {range.first, range.end - 1});
    }
    std::sort(samples.begin(), samples.end());
    samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
    expect_gathered(p, o);
    expect_product(p, "gate and up", samples, o.rows, p.w_up, o.up);
    expect_activations(p, samples, o);
    expect_product(p, "down", samples, o.act, p.w_down, o.down);
    expect_combined(p, "combine_rows with weights", o.down, true, o.out);
    expect_weight_gradient(p, "dW of down", o.ddown, o.act, o.dw_down);
    expect_input_product(p, "dX of down", samples, o.ddown, p.w_down, o.dact);
    expect_weight_gradient(p, "dW of gate and up", o.dup, o.rows, o.dw_up);
    expect_input_product(p, "dX of gate and up", samples, o.dup, p.w_up, o.drows);
    expect_combined(p, "combine_rows", o.drows, false, o.dx);
}

class RealShapesExperts : public OnDevice {};

TEST_F(RealShapesExperts, EveryOperatorOfTheLayerAgreesWithSampledRowsInFp64) {
    const MixtureProblem problem(kRealMixture);
    const RowRange empty = problem.ranges[static_cast<size_t>(kEmptyExpert)];
    ASSERT_EQ(empty.first, empty.end);
    expect_mixture(problem, run_mixture(problem));
}

TEST_F(RealShapesExperts, AWrongElementOfAnyProductIsFound) {
    const MixtureProblem problem(kSmallMixture);
    MixtureOutputs outputs = run_mixture(problem);
    EXPECT_EQ(failures_of([&] { expect_mixture(problem, outputs); }), "");
    const int64_t last = problem.rows - 1;  // always among the samples
    const auto expect_found = [&](LargeMatrix& output, int64_t row, double by, const char* name) {
        const double right = output.get(row, 2);
        output.set(row, 2, right + by);
        EXPECT_THAT(failures_of([&] { expect_mixture(problem, outputs); }),
                    testing::AllOf(testing::HasSubstr(name),
                                   testing::HasSubstr("row " + std::to_string(row) + ", column 2"),
                                   testing::HasSubstr("missed its bound")));
        output.set(row, 2, right);
    };
    expect_found(outputs.up, last, 0.05, "gate and up of 8 experts");
    expect_found(outputs.down, last, 0.05, "down of 8 experts");
    expect_found(outputs.dact, last, 0.05, "dX of down");
    expect_found(outputs.drows, last, 0.05, "dX of gate and up");
    expect_found(outputs.dw_up, 0, 1e-3, "dW of gate and up");
    expect_found(outputs.dw_down, kEmptyExpert * problem.shape.hidden, 1e-6, "dW of down");
}

}  // namespace
}  // namespace vocabpipe::kernels::test
