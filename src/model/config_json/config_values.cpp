// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/config_values.hpp"

namespace vocabpipe {

namespace {

constexpr double kSmallest = 1e-30;  // least positive value; positive as a float
constexpr double kLargest = 1e30;    // likewise, finite as a float

}  // namespace

std::optional<StrictJson> ConfigValues::given(std::string_view key) const {
    if (!json_.has(key) || json_.at(key).is_null()) return std::nullopt;
    return json_.at(key);
}

bool ConfigValues::flag(std::string_view key, bool otherwise) const {
    const auto value = given(key);
    return value ? value->boolean() : otherwise;
}

double ConfigValues::positive(std::string_view key, double otherwise) const {
    const auto value = given(key);
    return value ? value->number(kSmallest, kLargest) : otherwise;
}

double ConfigValues::not_negative(std::string_view key, double otherwise) const {
    const auto value = given(key);
    return value ? value->number(0, kLargest) : otherwise;
}

int64_t ConfigValues::width(std::string_view key) const {
    return json_.at(key).integer(1, kWidest);
}

int64_t ConfigValues::size(std::string_view key, int64_t missing, int64_t null,
                           int64_t most) const {
    if (!json_.has(key)) return missing;
    return json_.at(key).is_null() ? null : json_.at(key).integer(1, most);
}

}  // namespace vocabpipe
