// SPDX-License-Identifier: Apache-2.0
// Private to the engine and its products: the only header of this folder that includes oneDNN.
#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/host/engine.hpp"
#include "kernels/host/matmul.hpp"
#include "kernels/host/matmul_strips.hpp"

namespace vocabpipe::kernels::host {

/// Memory that only grows, so that a warm step allocates nothing.
class GrowingBuffer {
public:
    [[nodiscard]] std::byte* at_least(int64_t bytes);

private:
    struct Free {
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    int64_t bytes_ = 0;
};

/// One primitive and, per thread that may run it, the memory objects that hold its arguments.
class MatmulPrimitive {
public:
    MatmulPrimitive(const dnnl::engine& engine, const MatmulShape& shape, int lanes);

    struct Lane {
        dnnl::memory a, b, bias, c, scratch;
    };
    dnnl::matmul primitive;
    std::vector<Lane> lanes;
    int64_t scratch_bytes = 0;
};

/// Types that panel_product() multiplies on this machine. oneDNN multiplies the others: it chooses
/// its fp32 AVX-512 kernels by sizes and strides, and these round long sums in different ways.
struct MatmulKernels {
    bool bf16_panels = false, fp32_panels = false;

    [[nodiscard]] bool panels(DType type) const {
        return type == DType::bf16 ? bf16_panels : fp32_panels;
    }
};

/// A prepared product. bf16 operands are widened to fp32 where panel_product() does not take them.
/// panel_product() needs no further preparation; oneDNN needs one primitive per strip size
/// (matmul_strips()).
class Matmul {
public:
    Matmul(const dnnl::engine& engine, const MatmulKernels& kernels, const MatmulShape& shape,
           int lanes);

    struct Part {
        size_t primitive = 0;
        MatmulStrip strip;
        /// a is copied: transposed, because a^T in place is half as fast or wrong; or padded with
        /// more rows.
        bool packs_a = false;
        int64_t a = 0, b = 0, bias = 0, c = 0;  ///< bytes from the beginning of each operand
    };
    MatmulShape shape;
    MatmulShape run;          ///< shape, or its operands widened and dense
    int64_t panel_bytes = 0;  ///< memory of panel_product() if it runs
    std::vector<MatmulPrimitive> primitives;
    std::vector<Part> parts;
};

struct MatmulShapeHash {
    size_t operator()(const MatmulShape& shape) const;
};

struct Engine::State {
    explicit State(int threads);

    /// What one thread needs to run primitives at the same time as the others.
    struct Lane {
        dnnl::stream stream;
        GrowingBuffer scratch;
        GrowingBuffer wide;    ///< operands that are widened
        GrowingBuffer packed;  ///< operands of a strip that are copied
    };
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    MatmulKernels kernels;
    std::vector<Lane> lanes;
    std::unordered_map<MatmulShape, Matmul, MatmulShapeHash> matmuls;
    GrowingBuffer conversion;  ///< an fp32 product on its way to bf16
};

}  // namespace vocabpipe::kernels::host
