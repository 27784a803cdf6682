// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/recompute.hpp"

#include "src/support/names_of.hpp"

#include <array>

namespace vocabpipe {

namespace {

constexpr std::array<std::string_view, 3> kNames{"none", "selective", "full"};

}  // namespace

std::string_view to_string(Recompute recompute) {
    return kNames[static_cast<size_t>(recompute)];
}

Recompute recompute_from(std::string_view name) {
    return value_named("--recompute-granularity", name,
                       {Recompute::none, Recompute::selective, Recompute::full});
}

}  // namespace vocabpipe
