// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/recompute.hpp"

#include "src/support/nearest_name.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace vocabpipe {

namespace {

constexpr std::array<std::string_view, 3> kNames{"none", "selective", "full"};

}  // namespace

std::string_view to_string(Recompute recompute) {
    return kNames[static_cast<size_t>(recompute)];
}

Recompute recompute_from(std::string_view name) {
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) {
        throw UsageError("--recompute-granularity " + std::string(name) +
                         ": must be one of none, selective, full" + did_you_mean(name, kNames));
    }
    return static_cast<Recompute>(found - kNames.begin());
}

}  // namespace vocabpipe
