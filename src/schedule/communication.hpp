// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"

namespace vocabpipe {

/// True for actions that several ranks meet in; passes, combine and fold are a rank's own.
[[nodiscard]] constexpr bool is_communication(Do what) {
    return what != Do::pass && what != Do::combine && what != Do::fold;
}

}  // namespace vocabpipe
