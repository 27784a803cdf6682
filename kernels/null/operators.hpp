// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/function_of.hpp"

/// A device on which nothing is implemented: what a new device begins with (README.md).
namespace vocabpipe::kernels::null {

/// One name per operator, by which checks.hpp tells them apart.
namespace names {
#define VOCABPIPE_OPERATOR(name)                   \
    struct name {                                  \
        static constexpr const char* text = #name; \
    };
#include "kernels/operator_list.inc"
}  // namespace names

/// Every entry checks its arguments, and then throws a DeviceError that names the operator.
[[nodiscard]] const Operators& operators();

}  // namespace vocabpipe::kernels::null
