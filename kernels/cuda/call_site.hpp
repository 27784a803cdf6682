// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>

#include "kernels/cuda/engine.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::cuda {

/// The context of an operator, with the function that passed it: what enqueues something takes one
/// in place of a Context&, so that messages name the operator.
class CallSite {
public:
    // Implicit: the caller of a function that takes a CallSite passes its Context&.
    CallSite(Context& ctx, std::source_location where = std::source_location::current())
        : ctx_(&ctx), where_(where) {}

    operator Context&() const { return *ctx_; }
    [[nodiscard]] Engine& cuda() const { return ctx_->cuda(); }
    [[nodiscard]] const std::source_location& where() const { return where_; }

private:
    Context* ctx_;
    std::source_location where_;
};

}  // namespace vocabpipe::kernels::cuda
