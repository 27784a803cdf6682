// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/microbatch_lengths.hpp"

#include <cmath>

namespace vocabpipe {

LengthShares LengthShares::of(double layers, double tokens, double recompute) {
    const auto ppm = [](double share) { return std::llround(1e6 * share); };
    LengthShares shares;
    shares.tokens_ppm = ppm(tokens);
    for (size_t op = 0; op < kOpTraits.size(); ++op) {
        shares.op_ppm[op] = ppm(kOpTraits[op].has_stage ? layers : tokens);
    }
    shares.op_ppm[static_cast<size_t>(Op::R)] = ppm(recompute);
    return shares;
}

}  // namespace vocabpipe
