// SPDX-License-Identifier: Apache-2.0
// Prepared matrix products of fixed shape, for operators that multiply many small blocks inside a
// parallel region. All others call gemm().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

class Engine;
class Matmul;

/// c (m, n) = op(a) (m, k) op(b) (k, n) [+ bias] [+ c]; strides are elements between stored rows.
struct MatmulShape {
    int64_t m = 0, n = 0, k = 0;
    int64_t a_stride = 0, b_stride = 0, c_stride = 0;
    DType ab_type = DType::fp32;
    DType c_type = DType::fp32;
    DType bias_type = DType::fp32;
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;
    bool has_bias = false;

    bool operator==(const MatmulShape&) const = default;

    /// Rows and columns of an operand in memory.
    struct Stored {
        int64_t rows = 0, cols = 0;
    };
    [[nodiscard]] Stored stored_a() const { return transpose_a ? Stored{k, m} : Stored{m, k}; }
    [[nodiscard]] Stored stored_b() const { return transpose_b ? Stored{n, k} : Stored{k, n}; }
};

/// Hold one around run_matmul(): oneDNN asks at execution how many threads it may start. Teams that
/// our own parallel regions start inherit the answer, one.
class OneThreadProducts {
public:
    explicit OneThreadProducts(Engine& engine);
    ~OneThreadProducts();
    OneThreadProducts(const OneThreadProducts&) = delete;
    OneThreadProducts& operator=(const OneThreadProducts&) = delete;

private:
    Engine& engine_;
};

/// Whether products of a type run with AVX-512 (bf16: with its dot products).
[[nodiscard]] bool multiplies_with_avx512(Engine& engine, DType type);

/// Prepares a product, or finds it in the cache. Call it outside parallel regions; the result lives
/// until the operator that runs ends.
[[nodiscard]] Matmul& prepare_matmul(Engine& engine, const MatmulShape& shape);
/// The same for several shapes; all threads create those that are missing.
[[nodiscard]] std::vector<Matmul*> prepare_matmuls(Engine& engine,
                                                   std::span<const MatmulShape> shapes);
/// Drops all cached products if there are more than 2048; oneDNN's take about 80 KB each. Operators
/// whose shapes change from step to step call it before they prepare their own.
void limit_matmuls(Engine& engine);

/// Runs a product on the calling thread; each thread of a team may run its own at the same time.
/// `thread` is 0 outside parallel regions, otherwise the caller's number in the team.
void run_matmul(Engine& engine, Matmul& matmul, int thread, const void* a, const void* b, void* c,
                const void* bias = nullptr);

}  // namespace vocabpipe::kernels::host
