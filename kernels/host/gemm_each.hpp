// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/host/gemm_operands.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::host {

/// Many products, one after the other, with the bits that gemm() gives each. Threads share the
/// list and not every product, so that products too small for all threads keep them busy. Types and
/// shapes are those that gemm() takes and the same for all products but for m and k, of which one
/// is theirs; none has a bias.
void gemm_each(Context& ctx, std::span<const Operands> products);

}  // namespace vocabpipe::kernels::host
