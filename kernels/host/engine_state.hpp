// SPDX-License-Identifier: Apache-2.0
// Private to engine.cpp and matmul.cpp: the only header of this folder that includes oneDNN.
#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/host/engine.hpp"
#include "kernels/host/matmul.hpp"

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

/// One primitive and, per thread that may run it, the memory objects that its arguments are put in.
class Matmul {
public:
    Matmul(const dnnl::engine& engine, const MatmulShape& shape, int lanes);

    struct Lane {
        dnnl::memory a, b, bias, c, scratch;
    };
    dnnl::matmul primitive;
    std::vector<Lane> lanes;
    int64_t scratch_bytes = 0;
    bool has_bias = false;
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
    };
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    std::vector<Lane> lanes;
    std::unordered_map<MatmulShape, Matmul, MatmulShapeHash> matmuls;
    GrowingBuffer conversion;  ///< an fp32 product on its way to bf16
};

}  // namespace vocabpipe::kernels::host
