// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/range_pattern.hpp"
#include "vocabpipe/pass.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::imported {

/// Which ranges of a trainer are passes and messages, and of which stage and microbatch. A pattern
/// without {stage} is of the stage with the number of its rank; one without {microbatch} counts:
/// its n-th range in a step is of microbatch n.
struct RangeRules {
    /// Ranges of passes.
    struct PassRule {
        RangePattern pattern;
        std::optional<Op> op;  ///< none: the pattern has {op}
    };
    std::string name;              ///< of the rules, for messages
    std::vector<PassRule> passes;  ///< the first that matches counts
    /// Ranges in which a receive is posted, with {op} of the pass that uses the message.
    std::vector<RangePattern> receives;
    /// Ranges that end when a message has arrived. One that begins within a range of `receives` is
    /// of that message, one that begins within a pass is of the pass's input.
    std::vector<RangePattern> arrivals;
    /// Ranges that begin when a message is sent: with {op} of the pass that made it, or within the
    /// range of that pass, whose work has ended then.
    std::vector<RangePattern> sends;
};

/// The rules of a list of keys and their patterns, as in a file: pass, F, B, I, W, R, receive,
/// arrival, send. `name`: for messages. Throws UsageError for an unknown key, a bad pattern, a
/// pattern under `pass`, or with {stage} or {microbatch} under `receive`, that lacks {op}, and if
/// no pattern is of a pass.
[[nodiscard]] RangeRules make_range_rules(
    const std::string& name,
    const std::vector<std::pair<std::string, std::vector<std::string>>>& keys);

}  // namespace vocabpipe::imported
