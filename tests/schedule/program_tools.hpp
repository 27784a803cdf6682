// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A family in a vocabulary mode: one entry of the table that most tests walk through.
struct Kind {
    std::string family;
    VocabMode mode;
    bool forward_only;
};
[[nodiscard]] std::string name_of(const Kind& kind);
void PrintTo(const Kind& kind, std::ostream* out);
[[nodiscard]] std::vector<Kind> every_kind(bool with_evaluation);

[[nodiscard]] Schedule generated(const Kind& kind, int ranks, int microbatches,
                                 int64_t vocab_size = 1000);

/// Sizes of a step of `tokens` tokens in which no two buffers of different purposes are equally
/// large.
[[nodiscard]] StepSizes sizes_for(const Schedule& schedule, int64_t tokens = 24,
                                  int64_t hidden = 8);
/// Every size at random, some of them 0.
[[nodiscard]] StepSizes random_sizes(const Schedule& schedule, std::mt19937& random);
/// Adds up to three shorter lengths with every size at random, and gives each microbatch one of
/// them or the longest.
void add_random_lengths(StepSizes& sizes, const Schedule& schedule, std::mt19937& random);

/// Costs of real proportions, different on every stage and rank, with latency and rates.
[[nodiscard]] TableCosts uneven_costs(const Schedule& schedule);

[[nodiscard]] std::vector<Program> lowered(const Schedule& schedule);

/// send, receive and the collectives: what has participants.
[[nodiscard]] bool has_participants(const Action& action);
/// The pass of a compute action.
[[nodiscard]] const Pass& pass_of(const Program& program, const Action& action);
/// Indices of the actions that use a buffer, ascending.
[[nodiscard]] std::vector<std::vector<uint32_t>> users_of_buffers(const Program& program);

/// Which actions of one rank are over before which others begin, from what the executor promises
/// and nothing else: edges; passes run one after the other, but for the second of a pair, which
/// may begin when the first has begun; actions of another lane begin in order.
class HappensBefore {
public:
    /// Edges must point forward in the list of actions.
    explicit HappensBefore(const Program& program);
    /// `before` has ended when `after` begins, whatever the timing.
    [[nodiscard]] bool ordered(uint32_t before, uint32_t after) const;

private:
    size_t words_ = 0;
    std::vector<uint64_t> reaches_;  ///< [2 * action, + 1 for its end] bit set over the same
};

}  // namespace vocabpipe::testing
