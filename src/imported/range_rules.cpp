// SPDX-License-Identifier: Apache-2.0
#include "src/imported/range_rules.hpp"

#include "src/support/nearest_name.hpp"
#include "vocabpipe/error.hpp"

#include <string_view>

namespace vocabpipe::imported {

namespace {

/// The pass with this letter that has a stage.
std::optional<Op> op_of(std::string_view key) {
    for (size_t op = 0; op < kOpTraits.size(); ++op) {
        if (kOpTraits[op].has_stage && kOpTraits[op].name == key) return static_cast<Op>(op);
    }
    return std::nullopt;
}

void add_pattern(RangeRules& rules, const std::string& key, const std::string& text) {
    const bool says_op = text.find("{op}") != std::string::npos;
    if (const std::optional<Op> op = op_of(key)) {
        rules.passes.push_back({.pattern = RangePattern(text), .op = op});
    } else if (key == "pass") {
        if (!says_op) {
            throw UsageError("pass \"" + text +
                             "\": has no {op}; add it, or write the pattern under F, B, I, W or R");
        }
        rules.passes.push_back({.pattern = RangePattern(text), .op = {}});
    } else if (key == "receive") {
        if (!says_op) throw UsageError("receive \"" + text + "\": has no {op}; add it");
        rules.receives.emplace_back(text);
    } else if (key == "arrival") {
        rules.arrivals.emplace_back(text);
    } else if (key == "send") {
        rules.sends.emplace_back(text);
    } else {
        const std::vector<std::string_view> known{"pass", "F",       "B",       "I",   "W",
                                                  "R",    "receive", "arrival", "send"};
        throw UsageError(key +
                         ": is no key of rules; use pass, F, B, I, W, R, receive, arrival "
                         "or send" +
                         did_you_mean(key, known));
    }
}

}  // namespace

RangeRules make_range_rules(
    const std::string& name,
    const std::vector<std::pair<std::string, std::vector<std::string>>>& keys) {
    RangeRules rules{.name = name};
    for (const auto& [key, patterns] : keys) {
        for (const std::string& text : patterns) add_pattern(rules, key, text);
    }
    if (rules.passes.empty()) {
        throw UsageError("no pattern is of a pass; add pass = [\"...{op}...\"], or F and B");
    }
    return rules;
}

}  // namespace vocabpipe::imported
