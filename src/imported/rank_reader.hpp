// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/measured_run.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe::imported {

/// Turns the ranges of one rank, given by ascending begin, into its passes, step after step.
class RankReader {
public:
    RankReader(const RangeRules& rules, const ReadOptions& options, int rank)
        : rules_(rules), options_(options), rank_(rank) {}

    /// Throws UsageError where ReadOptions::microbatches is needed.
    void take(const NamedRange& range);
    [[nodiscard]] std::vector<std::vector<MeasuredPass>> steps() && { return std::move(steps_); }

private:
    using PassKey = std::tuple<Op, uint16_t, uint32_t>;  ///< op, stage, microbatch
    /// A message by the stage and microbatch of the pass that uses or made it.
    using MessageKey = std::tuple<bool, uint16_t, uint32_t>;  ///< whether it is an activation
    struct Input {
        int64_t posted_ns = 0, arrived_ns = 0;
    };

    static MessageKey message_of(const Pass& pass);
    static void set_input(MeasuredPass& pass, const Input& input);
    [[nodiscard]] Pass pass_of(const RangePattern::Found& found, Op op) const;
    void add_pass(const NamedRange& range, const RangePattern::Found& found, Op op);
    void add_arrival(const NamedRange& range, const RangePattern::Found& found);
    void add_send(const NamedRange& range, const RangePattern::Found& found);
    /// The latest pass if the moment lies in its range, else null.
    MeasuredPass* pass_at(int64_t ns);

    const RangeRules& rules_;
    const ReadOptions& options_;
    const int rank_;
    std::vector<std::vector<MeasuredPass>> steps_;
    int64_t pass_until_ns_ = 0;  ///< end of the latest pass's range
    std::set<PassKey> seen_;     ///< passes of the last step
    std::map<std::pair<Op, uint16_t>, uint32_t> counts_;
    std::map<MessageKey, Input> inputs_;  ///< of passes that have not begun
    std::optional<MessageKey> posting_;   ///< the message that the next arrival is
    int64_t posted_ns_ = 0, posting_until_ns_ = 0;
};

}  // namespace vocabpipe::imported
