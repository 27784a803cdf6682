// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/host/gemm_operands.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::host {

/// Many products, one after the other, with the bits that gemm() gives each. Threads share the list
/// rather than each product, so that products too small for all threads keep them busy. Types and
/// shapes are those that gemm() takes, and equal for all products except that one of m and k
/// differs; none has a bias.
void gemm_each(Context& ctx, std::span<const Operands> products);

}  // namespace vocabpipe::kernels::host
