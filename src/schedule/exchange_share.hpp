// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass.hpp"

#include <cstdint>

namespace vocabpipe {

/// CostModel::exchange_ns() of a pass that takes `ns`, where `permille` is the share of F, B and I
/// in thousandths: the other passes wait for no team.
[[nodiscard]] inline int64_t exchange_share_ns(const Pass& pass, int64_t ns, int64_t permille) {
    const bool exchanges = pass.op == Op::F || pass.op == Op::B || pass.op == Op::I;
    return exchanges ? ns * permille / 1000 : 0;
}

}  // namespace vocabpipe
