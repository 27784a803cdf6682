// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// What passes of microbatches with shorter sequences take, in parts per million of what those with
/// the longest sequences take.
struct LengthShares {
    std::array<int64_t, kOpTraits.size()> op_ppm{};  ///< [op], as in kOpTraits; of_step: not read
    int64_t tokens_ppm = 0;                          ///< tokens, and with them bytes of messages

    /// Layers take `layers` of the time of the longest (attention makes that less than their share
    /// of the tokens), everything else `tokens`. `recompute`: the share of R. All from 0 to 1.
    [[nodiscard]] static LengthShares of(double layers, double tokens, double recompute);

    /// Member by member.
    friend bool operator==(const LengthShares&, const LengthShares&) = default;
};

/// The lengths of the microbatches of a step, for costs that are those of the longest length.
struct MicrobatchLengths {
    std::vector<LengthShares> shorter;  ///< lengths that a microbatch may have besides the longest
    /// [microbatch] 0: the longest; k: shorter[k - 1]. Microbatches beyond the end have the
    /// longest, so empty: all of them.
    std::vector<int> of_microbatch;

    /// Time of a pass that takes `longest` for the longest length; at least 1 if that is.
    [[nodiscard]] int64_t pass_time(int64_t longest, const Pass& pass) const {
        if (traits(pass.op).of_step) return longest;
        const LengthShares* shares = shares_of(pass.microbatch);
        return shares == nullptr ? longest
                                 : share(longest, shares->op_ppm[static_cast<size_t>(pass.op)]);
    }
    /// Time of a communication of this microbatch's tokens that takes `longest` for the longest
    /// length, its latency included.
    [[nodiscard]] int64_t transfer_time(int64_t longest, uint32_t microbatch) const {
        const LengthShares* shares = shares_of(microbatch);
        return shares == nullptr ? longest : share(longest, shares->tokens_ppm);
    }

private:
    /// Null for the longest.
    [[nodiscard]] const LengthShares* shares_of(uint32_t microbatch) const {
        if (microbatch >= of_microbatch.size() || of_microbatch[microbatch] == 0) return nullptr;
        return &shorter.at(static_cast<size_t>(of_microbatch[microbatch]) - 1);
    }
    /// Costs are at most 2^40, which a million times is within 64 bits.
    static int64_t share(int64_t of, int64_t ppm) {
        constexpr int64_t kMillion = 1'000'000;
        const int64_t value = (of * ppm + kMillion / 2) / kMillion;
        return value == 0 && of > 0 ? 1 : value;
    }
};

}  // namespace vocabpipe
