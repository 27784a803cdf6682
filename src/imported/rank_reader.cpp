// SPDX-License-Identifier: Apache-2.0
#include "src/imported/rank_reader.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe::imported {

namespace {

/// Larger numbers are not those of a pipeline, but stand for something else.
constexpr uint32_t kMostMicrobatches = 1U << 16;
constexpr int kMostStages = 4096;

/// The first of the patterns that matches.
std::optional<RangePattern::Found> first_match(const std::vector<RangePattern>& patterns,
                                               const std::string& name) {
    for (const RangePattern& pattern : patterns) {
        if (auto found = pattern.match(name)) return found;
    }
    return std::nullopt;
}

}  // namespace

RankReader::MessageKey RankReader::message_of(const Pass& pass) {
    return {pass.op == Op::F, pass.stage, pass.microbatch};
}

Pass RankReader::pass_of(const RangePattern::Found& found, Op op) const {
    return {.op = op,
            .stage = found.stage.value_or(static_cast<uint16_t>(rank_)),
            .microbatch = found.microbatch.value_or(0)};
}

void RankReader::take(const NamedRange& range) {
    for (const RangeRules::PassRule& rule : rules_.passes) {
        const std::optional<RangePattern::Found> found = rule.pattern.match(range.name);
        if (!found) continue;
        add_pass(range, *found, rule.op ? *rule.op : *found->op);
        return;
    }
    if (const auto received = first_match(rules_.receives, range.name)) {
        posting_ = message_of(pass_of(*received, *received->op));
        posted_ns_ = range.begin_ns;
        posting_until_ns_ = range.end_ns;
    } else if (const auto arrived = first_match(rules_.arrivals, range.name)) {
        add_arrival(range, *arrived);
    } else if (const auto sent = first_match(rules_.sends, range.name)) {
        add_send(range, *sent);
    }
}

void RankReader::add_pass(const NamedRange& range, const RangePattern::Found& found, Op op) {
    Pass pass = pass_of(found, op);
    if (!found.microbatch) {
        if (options_.microbatches == 0) {
            throw UsageError("--microbatches: is required, because ranges such as \"" + range.name +
                             "\" do not name their microbatch");
        }
        uint32_t& next = counts_[{op, pass.stage}];
        pass.microbatch = next++ % static_cast<uint32_t>(options_.microbatches);
    }
    if (pass.microbatch >= kMostMicrobatches || pass.stage >= kMostStages) {
        throw InputFileError(
            "range \"" + range.name + "\" is of stage " + std::to_string(pass.stage) +
            " and microbatch " + std::to_string(pass.microbatch) + ", but at most " +
            std::to_string(kMostStages) + " and " + std::to_string(kMostMicrobatches) +
            " are supported; use --rules for its form");
    }
    const PassKey key{pass.op, pass.stage, pass.microbatch};
    if (steps_.empty() || !seen_.insert(key).second) {
        seen_ = {key};
        steps_.emplace_back();
    }
    MeasuredPass& added = steps_.back().emplace_back();
    added.pass = pass;
    added.begin_ns = range.begin_ns;
    added.end_ns = pass_until_ns_ = range.end_ns;
    if (op == Op::W || op == Op::R) return;
    if (const auto input = inputs_.find(message_of(pass)); input != inputs_.end()) {
        set_input(added, input->second);
        inputs_.erase(input);
    }
}

void RankReader::set_input(MeasuredPass& pass, const Input& input) {
    pass.posted_ns = input.posted_ns;
    pass.arrived_ns = std::min(input.arrived_ns, pass.end_ns);
    pass.begin_ns = std::max(pass.begin_ns, pass.arrived_ns);
}

MeasuredPass* RankReader::pass_at(int64_t ns) {
    return steps_.empty() || ns > pass_until_ns_ ? nullptr : &steps_.back().back();
}

void RankReader::add_arrival(const NamedRange& range, const RangePattern::Found& found) {
    if (found.op && found.microbatch) {
        inputs_[message_of(pass_of(found, *found.op))] = {range.begin_ns, range.end_ns};
    } else if (posting_ && range.begin_ns <= posting_until_ns_) {
        inputs_[*posting_] = {posted_ns_, range.end_ns};
        posting_.reset();
    } else if (MeasuredPass* const pass = pass_at(range.begin_ns)) {
        set_input(*pass, {range.begin_ns, range.end_ns});
    }
}

void RankReader::add_send(const NamedRange& range, const RangePattern::Found& found) {
    if (!found.op) {
        // A trainer that sends within the range of a pass has its result by then.
        MeasuredPass* const pass = pass_at(range.begin_ns);
        if (pass == nullptr || pass->sent_ns != MeasuredPass::kUnknown) return;
        pass->sent_ns = range.begin_ns;
        pass->end_ns = std::max(pass->begin_ns, range.begin_ns);
        return;
    }
    if (steps_.empty()) return;
    const MessageKey key = message_of(pass_of(found, *found.op));
    std::vector<MeasuredPass>& list = steps_.back();
    const auto made = std::find_if(list.rbegin(), list.rend(), [&](const MeasuredPass& one) {
        return one.pass.op != Op::W && one.pass.op != Op::R && message_of(one.pass) == key;
    });
    if (made != list.rend()) made->sent_ns = std::max(range.begin_ns, made->end_ns);
}

}  // namespace vocabpipe::imported
