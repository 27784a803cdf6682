// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>

#include "vocabpipe/operators.hpp"

namespace vocabpipe::kernels::test {

using AnyFunction = void (*)();

/// All entries of a table, in the order of their declarations: nothing else is in it.
inline auto entries_of(const Operators& table) {
    return std::bit_cast<std::array<AnyFunction, sizeof(Operators) / sizeof(AnyFunction)>>(table);
}

}  // namespace vocabpipe::kernels::test
