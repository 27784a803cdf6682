// SPDX-License-Identifier: Apache-2.0
#include "src/select/bounding.hpp"
#include "src/select/decimal.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

BoundingRule BoundingRule::from(std::string_view text, std::string_view flag) {
    if (text == "off") return {.kind = Kind::off};
    if (text == "exact") return {.kind = Kind::exact};
    const size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    if (colon != std::string_view::npos && (name == "bernoulli" || name == "quota")) {
        const auto share = fraction_from(text.substr(colon + 1));
        if (share) {
            return {.kind = name == "quota" ? Kind::quota : Kind::bernoulli, .share = *share};
        }
    }
    throw UsageError(std::string(flag) + " " + std::string(text) +
                     ": is none of off, exact, bernoulli:Q and quota:Q with Q from 0 to 1 of at "
                     "most 9 decimals, such as quota:0.3");
}

std::string to_string(const BoundingRule& rule) {
    switch (rule.kind) {
        case BoundingRule::Kind::off:
            return "off";
        case BoundingRule::Kind::exact:
            return "exact";
        case BoundingRule::Kind::bernoulli:
            return "bernoulli:" + decimal_text(rule.share);
        case BoundingRule::Kind::quota:
            break;
    }
    return "quota:" + decimal_text(rule.share);
}

}  // namespace vocabpipe
