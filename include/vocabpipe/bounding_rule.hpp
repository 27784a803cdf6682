// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe {

/// A decimal fraction as it was written, so that every rank computes with the same number: 0.3 is
/// 3 / 10.
struct Fraction {
    int64_t numerator = 1;    ///< 0 to `denominator`
    int64_t denominator = 1;  ///< a power of ten, at most 10^9
};

/// What bounding, the first phase of select_samples(), looks at: the undecided neighbours that the
/// lower bound of a sample counts (arXiv 2402.16442, section 4).
struct BoundingRule {
    /// Kinds of rules.
    enum class Kind : uint8_t {
        off,        ///< no bounding
        exact,      ///< all: decisions are never wrong
        bernoulli,  ///< each with probability `share`
        quota,      ///< as many as make up this `share` of all, together with the selected ones
        weighted,   ///< as many as quota, similar ones more likely
    };
    Kind kind = Kind::exact;  ///< takes nothing away from the objective
    Fraction share{};  ///< of bernoulli, quota and weighted: the smaller, the more is decided

    /// Whether it counts a number of neighbours, so that a decision about one of them changes which
    /// others count.
    [[nodiscard]] bool has_quota() const { return kind == Kind::quota || kind == Kind::weighted; }
    /// Parses "off", "exact", "bernoulli:0.3", "quota:0.3", "weighted:0.3"; UsageError with the
    /// flag `flag`.
    [[nodiscard]] static BoundingRule from(std::string_view text, std::string_view flag);
};
/// The text that BoundingRule::from() parses.
[[nodiscard]] std::string to_string(const BoundingRule& rule);

}  // namespace vocabpipe
