// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// c = op(a) op(b) [+ bias] [+ c], with op(a) (m, k), op(b) (k, n), c (m, n), bias (1, n).
/// a and b are both fp32 or both bf16, each with any row stride; the sum runs in fp32, without
/// TF32. c is fp32 or bf16; `accumulate` (c +=) needs an fp32 c. bias is fp32 or bf16. Dimensions
/// of 0 and 1 are fine: k == 0 gives c = bias or 0. a, b and c must not overlap.
///
/// The lane's whole workspace is scratch of the product, which overwrites what an operator keeps
/// there. Descriptors and the algorithm (the first of cuBLASLt's heuristic that the library runs)
/// are cached per shape in the engine of `ctx`. Partial sums stay in fp32. Equal calls give equal
/// bits; row or column shards of a product need not. A product of some rows of a whole
/// (Context::whole_rows) runs with the whole's algorithm. A large product whose rows do not end
/// with whole vectors is computed as two: one of whole vectors, and one of the rest.
/// whole vectors, and of the rest.
void gemm(CallSite ctx, ConstTensor a, bool transpose_a, ConstTensor b, bool transpose_b, Tensor c,
          bool accumulate, ConstTensor bias = {});

/// Further operations that cuBLASLt can apply to a product before it is stored.
enum class Epilogue : uint8_t {
    none,
    gelu,           ///< aux = product, c = gelu(product)
    gelu_gradient,  ///< c = gelu'(aux) * product
};

/// c = epilogue(op(a) op(b) + addend + bias), `batch` times.
struct Product {
    ConstTensor a;
    bool transpose_a = false;
    ConstTensor b;
    bool transpose_b = false;
    Tensor c;
    ConstTensor addend;  ///< empty, c itself, or another matrix of c's shape and type
    ConstTensor bias;
    Epilogue epilogue = Epilogue::none;
    Tensor aux;  ///< of c's shape; only read by gelu_gradient
    int64_t batch = 1;
    /// Elements from one product's matrix to the next one's; c_step is addend's, too. With batch >
    /// 1 there is no bias and no epilogue.
    int64_t a_step = 0, b_step = 0, c_step = 0;
};

/// Runs the product in one call of cuBLASLt; returns false, with nothing done, where the library
/// has no algorithm for the shape, types and alignments.
[[nodiscard]] bool try_multiply(CallSite ctx, const Product& product);

/// Runs a product without epilogue: with cuBLASLt if it can, else with a plain tiled kernel.
void multiply(CallSite ctx, const Product& product);

}  // namespace vocabpipe::kernels::cuda
