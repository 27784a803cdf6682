// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/operators.hpp"

namespace vocabpipe::kernels {

template <auto entry>
struct EntryOf;
template <typename Function, Function* Operators::*entry>
struct EntryOf<entry> {
    using Type = Function;
};

/// The type of the functions that an entry of Operators points to. A device declares its own as
/// `FunctionOf<&Operators::add> add;`, so that only the table spells out the signature.
template <auto entry>
using FunctionOf = typename EntryOf<entry>::Type;

}  // namespace vocabpipe::kernels
