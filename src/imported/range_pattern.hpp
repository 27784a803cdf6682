// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::imported {

/// The form of the names of ranges, such as "PP:{stage}{op}{microbatch}". {stage} and {microbatch}
/// stand for decimal digits, {op} for the letter of a pass with a stage (F, B, I, W, R), * for any
/// text; all else stands for itself.
class RangePattern {
public:
    /// Throws UsageError saying what is wrong with the pattern.
    explicit RangePattern(std::string_view text);

    /// What a name says.
    struct Found {
        std::optional<uint16_t> stage;
        std::optional<uint32_t> microbatch;
        std::optional<Op> op;
    };
    /// None if the name has another form, or a number that is too large. Takes at most
    /// name.size() * parts steps.
    [[nodiscard]] std::optional<Found> match(std::string_view name) const;

private:
    enum class Kind : uint8_t { text, stage, microbatch, op, any };
    struct Part {
        Kind kind = Kind::text;
        std::string text = {};
    };
    static bool take(const Part& part, std::string_view name, size_t& at, Found& found);

    std::vector<Part> parts_;
};

}  // namespace vocabpipe::imported
