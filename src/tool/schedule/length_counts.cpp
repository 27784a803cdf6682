// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/length_counts.hpp"

#include "src/support/length_distribution.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/split_text.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

namespace vocabpipe::tool {

namespace {

constexpr int64_t kMost = kMostLength;  // --microbatches has the same limit

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
    throw UsageError("--lengths " + text + ": " + why +
                     "; use LENGTH:MICROBATCHES pairs, such as 8192:3,2048:5");
}

int64_t number(const std::string& text, std::string_view part) {
    const std::optional<int64_t> value = parse_flag_number<int64_t>(part);
    if (value && *value >= 1 && *value <= kMost) return *value;
    refuse(text, '"' + std::string(part) + "\" is not an integer from 1 to 2^30");
}

}  // namespace

std::vector<LengthCount> parse_length_counts(const std::string& text) {
    std::vector<LengthCount> lengths;
    int64_t microbatches = 0;
    if (text.empty()) return lengths;
    for (const std::string_view pair : split_text(text)) {
        const size_t colon = pair.find(':');
        if (colon == std::string_view::npos) {
            refuse(text, '"' + std::string(pair) + "\" has no number of microbatches");
        }
        const int64_t length = number(text, pair.substr(0, colon));
        const int64_t count = number(text, pair.substr(colon + 1));
        for (const LengthCount& other : lengths) {
            if (other.length == length) {
                refuse(text, "has length " + std::to_string(length) + " twice");
            }
        }
        microbatches += count;
        if (microbatches > kMost) refuse(text, "has more than 2^30 microbatches");
        lengths.push_back({.length = length, .count = count});
    }
    std::ranges::sort(lengths, std::greater{}, &LengthCount::length);
    return lengths;
}

int microbatches_of(const std::vector<LengthCount>& lengths) {
    int64_t sum = 0;
    for (const LengthCount& length : lengths) sum += length.count;
    return static_cast<int>(sum);
}

std::string length_order_text(const std::vector<LengthCount>& lengths,
                              const std::vector<int>& of_microbatch) {
    std::string text;
    for (size_t j = 0; j < of_microbatch.size();) {
        size_t end = j;
        while (end < of_microbatch.size() && of_microbatch[end] == of_microbatch[j]) ++end;
        text += (text.empty() ? "" : ", ") +
                std::to_string(lengths[static_cast<size_t>(of_microbatch[j])].length);
        if (end - j > 1) text += " x " + std::to_string(end - j);
        j = end;
    }
    return text;
}

}  // namespace vocabpipe::tool
