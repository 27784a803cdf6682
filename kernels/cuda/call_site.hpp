// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>

#include "kernels/cuda/engine.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::cuda {

#ifdef __cpp_lib_source_location
using SourceLocation = std::source_location;
#else
/// In place of std::source_location, which clang 14 lacks. A lambda's name is "operator()" here.
class SourceLocation {
public:
    static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                            const char* function = __builtin_FUNCTION(),
                                            unsigned line = __builtin_LINE()) {
        return {file, function, line};
    }
    [[nodiscard]] constexpr const char* file_name() const { return file_; }
    [[nodiscard]] constexpr const char* function_name() const { return function_; }
    [[nodiscard]] constexpr unsigned line() const { return line_; }

private:
    constexpr SourceLocation(const char* file, const char* function, unsigned line)
        : file_(file), function_(function), line_(line) {}
    const char *file_, *function_;
    unsigned line_;
};
#endif

/// The context of an operator, with the function that passed it. Functions that enqueue something
/// take one in place of a Context&, so that messages name the operator.
class CallSite {
public:
    // Implicit: the caller of a function that takes a CallSite passes its Context&.
    CallSite(Context& ctx, SourceLocation where = SourceLocation::current())
        : ctx_(&ctx), where_(where) {}

    operator Context&() const { return *ctx_; }
    [[nodiscard]] Engine& cuda() const { return ctx_->cuda(); }
    [[nodiscard]] const SourceLocation& where() const { return where_; }

private:
    Context* ctx_;
    SourceLocation where_;
};

}  // namespace vocabpipe::kernels::cuda
