// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/bounding_rule.hpp"

#include "src/select/decimal.hpp"
#include "vocabpipe/error.hpp"

#include <array>
#include <utility>

namespace vocabpipe {

namespace {

/// The rules with a share, by name.
constexpr std::array<std::pair<std::string_view, BoundingRule::Kind>, 3> kShared{
    {{"bernoulli", BoundingRule::Kind::bernoulli},
     {"quota", BoundingRule::Kind::quota},
     {"weighted", BoundingRule::Kind::weighted}}};

}  // namespace

BoundingRule BoundingRule::from(std::string_view text, std::string_view flag) {
    if (text == "off") return {.kind = Kind::off};
    if (text == "exact") return {.kind = Kind::exact};
    const size_t colon = text.find(':');
    for (const auto& [name, kind] : kShared) {
        if (colon == std::string_view::npos || text.substr(0, colon) != name) continue;
        if (const auto share = fraction_from(text.substr(colon + 1))) {
            return {.kind = kind, .share = *share};
        }
    }
    throw UsageError(
        std::string(flag) + " " + std::string(text) +
        ": is none of off, exact, bernoulli:Q, quota:Q and weighted:Q with Q from 0 to "
        "1 of at most 9 decimals, such as quota:0.3");
}

std::string to_string(const BoundingRule& rule) {
    for (const auto& [name, kind] : kShared) {
        if (kind == rule.kind) return std::string(name) + ":" + decimal_text(rule.share);
    }
    return rule.kind == BoundingRule::Kind::off ? "off" : "exact";
}

}  // namespace vocabpipe
