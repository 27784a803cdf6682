// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/compare_losses.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vocabpipe {

bool LossPair::agrees() const {
    if (std::isnan(mine.loss) && std::isnan(other.loss)) return true;
    return mine.loss == other.loss || std::abs(mine.loss - other.loss) <= tolerance;
}

double LossPair::share() const {
    if (mine.loss == other.loss || (std::isnan(mine.loss) && std::isnan(other.loss))) return 0;
    const double share = std::abs(mine.loss - other.loss) / tolerance;
    return std::isfinite(share) ? share : std::numeric_limits<double>::infinity();
}

LossComparison compare_losses(std::span<const LoggedLoss> mine, std::span<const LoggedLoss> other,
                              const LossTolerance& tolerance) {
    LossComparison result;
    for (const LoggedLoss& one : mine) {
        const auto found = std::ranges::lower_bound(other, one.step, {}, &LoggedLoss::step);
        if (found == other.end() || found->step != one.step || one.step > tolerance.last_step) {
            continue;
        }
        const LossPair pair{.mine = one,
                            .other = *found,
                            .tolerance = tolerance.relative *
                                             std::sqrt(static_cast<double>(one.step)) *
                                             std::abs(found->loss) +
                                         one.rounding + found->rounding};
        ++result.steps;
        if (!pair.agrees()) {
            if (!result.first) result.first = pair;
            ++result.differing;
        } else if (!result.worst || pair.share() > result.worst->share()) {
            result.worst = pair;
        }
    }
    return result;
}

double default_loss_tolerance(bool bf16) {
    // Sums of 2^20 terms in fp32; in bf16, one rounding of what the mean over the tokens adds up,
    // in which the roundings of single tokens cancel.
    return bf16 ? std::ldexp(1.0, -9) : std::ldexp(1.0, -24) * std::sqrt(std::ldexp(1.0, 20));
}

}  // namespace vocabpipe
