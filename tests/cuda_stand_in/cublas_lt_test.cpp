// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_stand_in/device_array.hpp"
#include "tests/support/cuda_stand_in/control.hpp"

namespace {

using stand_in_test::DeviceArray;
using stand_in_test::Stream;

template <typename T>
constexpr cudaDataType_t type_of = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

template <typename T>
std::vector<T> random_values(size_t count, unsigned int seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<T> values(count);
    for (T& value : values) {
        value = uniform(random);
    }
    return values;
}

double gelu(double x) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_derivative(double x) {
    const double h = 1e-5;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

struct Layout {
    cublasLtMatrixLayout_t handle = nullptr;
    Layout(cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t leading) {
        EXPECT_EQ(cublasLtMatrixLayoutCreate(&handle, type, rows, columns, leading),
                  CUBLAS_STATUS_SUCCESS);
    }
    ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
    Layout(const Layout&) = delete;
    Layout& operator=(const Layout&) = delete;
    template <typename T>
    void set(cublasLtMatrixLayoutAttribute_t attribute, T value) const {
        EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(handle, attribute, &value, sizeof value),
                  CUBLAS_STATUS_SUCCESS);
    }
    void batch(int32_t count, int64_t stride) const {
        set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
        set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
    }
};

/// One problem of m=5, n=7, k=9 with leading dimensions beyond the rows.
template <typename In, typename Out>
class Problem {
public:
    static constexpr int m = 5, n = 7, k = 9;

    Problem(cublasOperation_t ta, cublasOperation_t tb, cublasLtEpilogue_t epilogue)
        : ta_(ta), tb_(tb), epilogue_(epilogue) {
        EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
        set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{ta});
        set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{tb});
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue));
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(bias.get()));
        if ((epilogue & 128U) != 0) {
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(aux.get()));
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{8});
        }
    }
    ~Problem() {
        cublasLtMatmulPreferenceDestroy(preference);
        cublasLtMatmulDescDestroy(op);
        cublasLtDestroy(handle);
    }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;

    template <typename T>
    void set(cublasLtMatmulDescAttributes_t attribute, T value) {
        EXPECT_EQ(cublasLtMatmulDescSetAttribute(op, attribute, &value, sizeof value),
                  CUBLAS_STATUS_SUCCESS);
    }

    std::vector<cublasLtMatmulHeuristicResult_t> list(int most) {
        std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
        int found = 0;
        status =
            cublasLtMatmulAlgoGetHeuristic(handle, op, la.handle, lb.handle, ld.handle, ld.handle,
                                           preference, most, results.data(), &found);
        results.resize(static_cast<size_t>(found));
        return results;
    }
    /// Takes the second that it names: the call may refuse the first.
    cublasStatus_t heuristic() {
        for (const cublasLtMatmulHeuristicResult_t& one : list(2)) result = one;
        return status;
    }
    cublasStatus_t run(float alpha, float beta) {
        const cublasStatus_t status = heuristic();
        return status != CUBLAS_STATUS_SUCCESS
                   ? status
                   : cublasLtMatmul(handle, op, &alpha, a.get(), la.handle, b.get(), lb.handle,
                                    &beta, d.get(), ld.handle, d.get(), ld.handle, &result.algo,
                                    nullptr, 0, stream);
    }

    [[nodiscard]] double a_at(int i, int l) const {
        return static_cast<float>(a_values[ta_ == CUBLAS_OP_N ? i + 11 * l : l + 11 * i]);
    }
    [[nodiscard]] double b_at(int l, int j) const {
        return static_cast<float>(b_values[tb_ == CUBLAS_OP_N ? l + 10 * j : j + 10 * l]);
    }
    /// In fp64, column-major and packed: D, the bias and the aux after the call.
    void expect_result(float alpha, float beta) {
        stream.synchronize();
        const std::vector<Out> seen = d.values();
        const std::vector<Out> seen_aux = aux.values();
        const std::vector<Out> seen_bias = bias.values();
        const double tolerance = type_of<Out> == CUDA_R_32F ? 1e-5 : 2e-2;
        for (int i = 0; i < m; ++i) {
            double row_sum = 0.0;
            for (int j = 0; j < n; ++j) {
                double value = 0.0;
                for (int l = 0; l < k; ++l) {
                    value += a_at(i, l) * b_at(l, j);
                }
                value *= alpha;
                if (beta != 0) {
                    value += beta * static_cast<float>(d_values[i + 6 * j]);
                }
                if ((epilogue_ & CUBLASLT_EPILOGUE_BIAS) != 0) {
                    value += static_cast<float>(bias_values[i]);
                }
                const double kept = static_cast<float>(aux_values[i + 8 * j]);
                if ((epilogue_ & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU) {
                    value *= gelu_derivative(kept);
                } else if ((epilogue_ & 128U) != 0) {
                    EXPECT_NEAR(static_cast<float>(seen_aux[i + 8 * j]), value, tolerance);
                }
                if ((epilogue_ & CUBLASLT_EPILOGUE_GELU) != 0) {
                    value = gelu(value);
                }
                row_sum += value;
                EXPECT_NEAR(static_cast<float>(seen[i + 6 * j]), value, tolerance)
                    << "row " << i << ", column " << j << ", epilogue " << epilogue_;
            }
            if (epilogue_ == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
                EXPECT_NEAR(static_cast<float>(seen_bias[i]), row_sum, 2 * tolerance);
            }
            if (epilogue_ == CUBLASLT_EPILOGUE_BGRADA) {
                double sum = 0.0;
                for (int l = 0; l < k; ++l) {
                    sum += a_at(i, l);
                }
                EXPECT_NEAR(static_cast<float>(seen_bias[i]), sum, 2 * tolerance);
            }
        }
        for (int j = 0; j < n && epilogue_ == CUBLASLT_EPILOGUE_BGRADB; ++j) {
            double sum = 0.0;
            for (int l = 0; l < k; ++l) {
                sum += b_at(l, j);
            }
            EXPECT_NEAR(static_cast<float>(seen_bias[j]), sum, 2 * tolerance);
        }
        // Between the columns nothing is written.
        for (int j = 0; j + 1 < n; ++j) {
            EXPECT_EQ(static_cast<float>(seen[5 + 6 * j]), static_cast<float>(d_values[5 + 6 * j]));
        }
    }

    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t op = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t result{};
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  ///< of the last list
    const Stream stream;

private:
    cublasOperation_t ta_, tb_;
    cublasLtEpilogue_t epilogue_;

public:
    const Layout la{type_of<In>, ta_ == CUBLAS_OP_N ? 5U : 9U, ta_ == CUBLAS_OP_N ? 9U : 5U, 11};
    const Layout lb{type_of<In>, tb_ == CUBLAS_OP_N ? 9U : 7U, tb_ == CUBLAS_OP_N ? 7U : 9U, 10};
    const Layout ld{type_of<Out>, 5, 7, 6};
    const std::vector<In> a_values = random_values<In>(11 * 9, 1);
    const std::vector<In> b_values = random_values<In>(10 * 9, 2);
    const std::vector<Out> d_values = random_values<Out>(6 * 7, 3);
    const std::vector<Out> bias_values = random_values<Out>(7, 4);
    const std::vector<Out> aux_values = random_values<Out>(8 * 7, 5);
    const DeviceArray<In> a{a_values};
    const DeviceArray<In> b{b_values};
    const DeviceArray<Out> d{d_values};
    const DeviceArray<Out> bias{bias_values};
    const DeviceArray<Out> aux{aux_values};
};

template <typename In, typename Out>
void expect_agreement(cublasOperation_t ta, cublasOperation_t tb, cublasLtEpilogue_t epilogue,
                      float alpha, float beta) {
    Problem<In, Out> problem(ta, tb, epilogue);
    ASSERT_EQ(problem.run(alpha, beta), CUBLAS_STATUS_SUCCESS) << epilogue;
    problem.expect_result(alpha, beta);
}

TEST(StandInCublasLt, TransposesScalesAndTypesAgreeWithPlainLoops) {
    for (const auto ta : {CUBLAS_OP_N, CUBLAS_OP_T}) {
        for (const auto tb : {CUBLAS_OP_N, CUBLAS_OP_T}) {
            expect_agreement<float, float>(ta, tb, CUBLASLT_EPILOGUE_DEFAULT, 1.5F, 0.0F);
            expect_agreement<float, float>(ta, tb, CUBLASLT_EPILOGUE_DEFAULT, 1.0F, 1.0F);
            expect_agreement<__nv_bfloat16, float>(ta, tb, CUBLASLT_EPILOGUE_DEFAULT, 0.5F, 1.0F);
            expect_agreement<__nv_bfloat16, __nv_bfloat16>(ta, tb, CUBLASLT_EPILOGUE_DEFAULT, 1.0F,
                                                           0.0F);
        }
    }
}

TEST(StandInCublasLt, EpiloguesAgreeWithPlainLoops) {
    for (const auto epilogue :
         {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS,
          CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
          CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
        expect_agreement<float, float>(CUBLAS_OP_T, CUBLAS_OP_N, epilogue, 1.0F, 0.0F);
        expect_agreement<__nv_bfloat16, __nv_bfloat16>(CUBLAS_OP_N, CUBLAS_OP_T, epilogue, 1.0F,
                                                       0.0F);
    }
}

TEST(StandInCublasLt, WithBetaZeroTheOldResultIsNotRead) {
    Problem<float, float> problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    ASSERT_EQ(cudaMemset(problem.d.get(), 0xff, problem.d.bytes()), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
    ASSERT_EQ(problem.run(1.0F, 0.0F), CUBLAS_STATUS_SUCCESS);
    problem.stream.synchronize();
    EXPECT_TRUE(std::isfinite(problem.d.values()[0]));
}

TEST(StandInCublasLt, RowOrderIsTheTransposedMatrix) {
    Problem<float, float> problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    ASSERT_EQ(problem.run(1.0F, 0.0F), CUBLAS_STATUS_SUCCESS);
    problem.stream.synchronize();
    const std::vector<float> columns = problem.d.values();
    // The same A, read as row-major [9, 5] with op T.
    Problem<float, float> rows(CUBLAS_OP_T, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    rows.la.set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW});
    ASSERT_EQ(rows.run(1.0F, 0.0F), CUBLAS_STATUS_SUCCESS);
    rows.stream.synchronize();
    const std::vector<float> again = rows.d.values();
    for (size_t i = 0; i < columns.size(); ++i) {  // by another algorithm
        if (i % 6 != 5) {
            EXPECT_NEAR(again[i], columns[i], 1e-5);
        }
    }
}

TEST(StandInCublasLt, BatchesAdvanceByTheirStrides) {
    const Stream stream;
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t op = nullptr;
    ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    const DeviceArray<float> a(random_values<float>(3 * 4, 1));  // 3 matrices [2, 2]
    const DeviceArray<float> b(random_values<float>(4, 2));      // one for all
    const DeviceArray<float> d(3 * 6);
    const Layout la(CUDA_R_32F, 2, 2, 2);
    const Layout lb(CUDA_R_32F, 2, 2, 2);
    const Layout ld(CUDA_R_32F, 2, 2, 2);
    la.batch(3, 4);
    lb.batch(3, 0);
    ld.batch(3, 6);
    const float one = 1.0F;
    const float zero = 0.0F;
    ASSERT_EQ(cublasLtMatmul(handle, op, &one, a.get(), la.handle, b.get(), lb.handle, &zero,
                             d.get(), ld.handle, d.get(), ld.handle, nullptr, nullptr, 0, stream),
              CUBLAS_STATUS_SUCCESS);
    stream.synchronize();
    const std::vector<float> x = a.values();
    const std::vector<float> y = b.values();
    const std::vector<float> z = d.values();
    for (size_t i = 0; i < 3; ++i) {
        for (size_t r = 0; r < 2; ++r) {
            for (size_t c = 0; c < 2; ++c) {
                EXPECT_NEAR(z[6 * i + r + 2 * c],
                            x[4 * i + r] * y[2 * c] + x[4 * i + r + 2] * y[1 + 2 * c], 1e-6);
            }
        }
        EXPECT_TRUE(i == 2 || std::isnan(z[6 * i + 4]));
    }
    cublasLtMatmulDescDestroy(op);
    cublasLtDestroy(handle);
}

TEST(StandInCublasLt, AScaleInDeviceMemoryIsReadByTheStream) {
    Problem<float, float> problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    problem.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
    const DeviceArray<float> scales(std::vector<float>{2.0F, 0.5F});
    ASSERT_EQ(problem.heuristic(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmul(problem.handle, problem.op, scales.get(), problem.a.get(),
                             problem.la.handle, problem.b.get(), problem.lb.handle,
                             scales.get() + 1, problem.d.get(), problem.ld.handle, problem.d.get(),
                             problem.ld.handle, &problem.result.algo, nullptr, 0, problem.stream),
              CUBLAS_STATUS_SUCCESS);
    problem.expect_result(2.0F, 0.5F);
}

TEST(StandInCublasLt, WhatTheLibraryRefusesIsRefused) {
    using F = Problem<float, float>;
    {
        F problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_GELU_AUX);
        problem.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{12});
        EXPECT_EQ(problem.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
        problem.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{0});
        EXPECT_EQ(problem.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
    }
    {
        F problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_BIAS);
        problem.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{CUDA_R_16BF});
        EXPECT_EQ(problem.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
    }
    {
        F problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
        problem.lb.set(CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{8});
        EXPECT_EQ(problem.heuristic(), CUBLAS_STATUS_INVALID_VALUE);
        problem.lb.set(CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{9});
        problem.lb.set(CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_16BF});
        EXPECT_EQ(problem.heuristic(), CUBLAS_STATUS_NOT_SUPPORTED);
        problem.lb.set(CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_32F});
        problem.la.set(CUBLASLT_MATRIX_LAYOUT_LD, int64_t{4});
        EXPECT_EQ(problem.heuristic(), CUBLAS_STATUS_INVALID_VALUE);
    }
    {
        F problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
        const int32_t wrong_size = 0;
        EXPECT_EQ(cublasLtMatmulDescSetAttribute(problem.op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                 &wrong_size, sizeof wrong_size),
                  CUBLAS_STATUS_INVALID_VALUE);
    }
}

TEST(StandInCublasLt, AnAlgorithmHoldsForItsProblemAlignmentAndWorkspace) {
    Problem<float, float> problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    const uint64_t bytes = 1 << 20;
    ASSERT_EQ(
        cublasLtMatmulPreferenceSetAttribute(
            problem.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
        CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(problem.heuristic(), CUBLAS_STATUS_SUCCESS);
    ASSERT_GT(problem.result.workspaceSize, 0U);
    const DeviceArray<char> workspace(problem.result.workspaceSize);
    const float one = 1.0F;
    const float zero = 0.0F;
    const auto run = [&](const float* a, size_t workspace_bytes) {
        return cublasLtMatmul(problem.handle, problem.op, &one, a, problem.la.handle,
                              problem.b.get(), problem.lb.handle, &zero, problem.d.get(),
                              problem.ld.handle, problem.d.get(), problem.ld.handle,
                              &problem.result.algo, workspace.get(), workspace_bytes,
                              problem.stream);
    };
    EXPECT_EQ(run(problem.a.get(), problem.result.workspaceSize), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(run(problem.a.get(), 0), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(run(problem.a.get() + 1, problem.result.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
    problem.set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS));
    EXPECT_EQ(run(problem.a.get(), problem.result.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(StandInCublasLt, AnAlgorithmDoesForFewerColumnsAndNotForOtherSums) {
    Problem<float, float> problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    ASSERT_EQ(problem.heuristic(), CUBLAS_STATUS_SUCCESS);
    const auto resize = [](cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t side,
                           uint64_t size) {
        ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(layout, side, &size, sizeof size),
                  CUBLAS_STATUS_SUCCESS);
    };
    cublasLtMatmulHeuristicResult_t found{};
    const auto check = [&] {
        return cublasLtMatmulAlgoCheck(problem.handle, problem.op, problem.la.handle,
                                       problem.lb.handle, problem.ld.handle, problem.ld.handle,
                                       &problem.result.algo, &found);
    };
    EXPECT_EQ(check(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(found.workspaceSize, problem.result.workspaceSize);
    resize(problem.lb.handle, CUBLASLT_MATRIX_LAYOUT_COLS, problem.n - 2);
    resize(problem.ld.handle, CUBLASLT_MATRIX_LAYOUT_COLS, problem.n - 2);
    EXPECT_EQ(check(), CUBLAS_STATUS_SUCCESS);
    resize(problem.la.handle, CUBLASLT_MATRIX_LAYOUT_COLS, problem.k - 1);
    resize(problem.lb.handle, CUBLASLT_MATRIX_LAYOUT_ROWS, problem.k - 1);
    EXPECT_EQ(check(), CUBLAS_STATUS_INVALID_VALUE);
}

/// D after `algorithm`, on memory that holds nothing of earlier calls.
std::vector<__nv_bfloat16> result_of(Problem<__nv_bfloat16, __nv_bfloat16>& problem,
                                     const cublasLtMatmulHeuristicResult_t& algorithm) {
    const DeviceArray<char> workspace(algorithm.workspaceSize);
    const float one = 1.0F;
    const float zero = 0.0F;
    EXPECT_EQ(cublasLtMatmul(problem.handle, problem.op, &one, problem.a.get(), problem.la.handle,
                             problem.b.get(), problem.lb.handle, &zero, problem.d.get(),
                             problem.ld.handle, problem.d.get(), problem.ld.handle, &algorithm.algo,
                             workspace.get(), algorithm.workspaceSize, problem.stream),
              CUBLAS_STATUS_SUCCESS);
    problem.stream.synchronize();
    return problem.d.values();
}

/// How many algorithms of the list give other bits than the first of them, and than themselves.
struct Differences {
    int from_first = 0, from_themselves = 0;
};
Differences differences(uint32_t reductions) {
    Problem<__nv_bfloat16, __nv_bfloat16> problem(CUBLAS_OP_N, CUBLAS_OP_N,
                                                  CUBLASLT_EPILOGUE_DEFAULT);
    const uint64_t bytes = 1 << 20;
    EXPECT_EQ(
        cublasLtMatmulPreferenceSetAttribute(
            problem.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
        CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(problem.preference,
                                                   CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                   &reductions, sizeof reductions),
              CUBLAS_STATUS_SUCCESS);
    auto algorithms = problem.list(100);
    EXPECT_GT(algorithms.size(), 3U);
    algorithms.erase(algorithms.begin());  // may be refused
    const auto same = [](const auto& left, const auto& right) {
        return std::memcmp(left.data(), right.data(), left.size() * sizeof left[0]) == 0;
    };
    Differences result;
    const auto first = result_of(problem, algorithms.front());
    for (const auto& algorithm : algorithms) {
        const auto once = result_of(problem, algorithm);
        result.from_first += same(once, first) ? 0 : 1;
        result.from_themselves += same(once, result_of(problem, algorithm)) ? 0 : 1;
    }
    return result;
}

TEST(StandInCublasLt, AlgorithmsDifferAndOnlyTheMaskKeepsThemFromRoundingOnTheWay) {
    const Differences all = differences(CUBLASLT_REDUCTION_SCHEME_MASK);
    EXPECT_GT(all.from_first, 0);
    EXPECT_GT(all.from_themselves, 0) << "in place, in any order";
    const Differences ordered =
        differences(CUBLASLT_REDUCTION_SCHEME_MASK & ~uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE});
    EXPECT_GT(ordered.from_first, 0);
    EXPECT_EQ(ordered.from_themselves, 0);
    // Nine terms summed in fp32 and rounded to bf16 once: the order does not show.
    EXPECT_EQ(differences(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).from_first, 0);
}

TEST(StandInCublasLt, TheCallMayRefuseWhatTheHeuristicLists) {
    cuda_stand_in::refuse_algorithms(2);
    Problem<float, float> problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    const auto algorithms = problem.list(3);
    cuda_stand_in::refuse_algorithms(0);
    ASSERT_EQ(algorithms.size(), 3U);
    const float one = 1.0F;
    const float zero = 0.0F;
    for (size_t i = 0; i < algorithms.size(); ++i) {
        EXPECT_EQ(
            cublasLtMatmul(problem.handle, problem.op, &one, problem.a.get(), problem.la.handle,
                           problem.b.get(), problem.lb.handle, &zero, problem.d.get(),
                           problem.ld.handle, problem.d.get(), problem.ld.handle,
                           &algorithms[i].algo, nullptr, 0, problem.stream),
            i < 2 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS);
    }
    problem.expect_result(1.0F, 0.0F);
}

TEST(StandInCublasLt, ErrorsCanBeArranged) {
    cublasLtHandle_t handle = nullptr;
    cuda_stand_in::fail_next_call(cudaErrorUnknown, "cublasLtCreate");
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(std::string(cublasLtGetStatusName(CUBLAS_STATUS_NOT_INITIALIZED)),
              "CUBLAS_STATUS_NOT_INITIALIZED");
    cudaGetLastError();
}

void multiply_beyond_memory() {
    Problem<float, float> problem(CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT);
    problem.ld.set(CUBLASLT_MATRIX_LAYOUT_LD, int64_t{100});
    (void)problem.run(1.0F, 0.0F);
}

TEST(StandInCublasLtDeathTest, OperandsOutsideOfDeviceMemoryEndTheProcess) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(multiply_beyond_memory(),
                 "cublasLtMatmul: the .* bytes of D at .* are not inside of one allocation");
}

}  // namespace
