// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"

namespace vocabpipe {

/// True for actions that several ranks meet in; passes, combine_softmax and ordered_sum are a
/// rank's own.
[[nodiscard]] constexpr bool is_communication(Do what) {
    return what != Do::pass && what != Do::combine_softmax && what != Do::ordered_sum;
}

}  // namespace vocabpipe
