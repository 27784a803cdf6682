// SPDX-License-Identifier: Apache-2.0
// Every family, vocabulary mode and size: one table, two independent verdicts.
#include "vocabpipe/validate.hpp"

#include "tests/schedules/notation.hpp"
#include "tests/support/brute_force_checker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace vocabpipe::testing {
namespace {

struct Kind {
    std::string family;
    VocabMode mode;
    bool forward_only;
    bool overlap_pairs = false;
};

std::string name_of(const Kind& kind) {
    std::string family = kind.family == "1f1b" ? "one_f_one_b" : kind.family;
    std::replace(family.begin(), family.end(), '-', '_');
    return family + "_" + std::string(to_string(kind.mode)) +
           (kind.forward_only ? "_forward_only" : "") +
           (kind.overlap_pairs ? "_overlap_pairs" : "");
}

void PrintTo(const Kind& kind, std::ostream* out) {
    *out << name_of(kind);
}

std::vector<Kind> every_kind() {
    std::vector<Kind> kinds;
    for (const Generator& family : generators()) {
        for (const VocabMode mode : kEveryMode) {
            for (const bool forward_only : {false, true}) {
                kinds.push_back({std::string(family.name), mode, forward_only});
            }
            const bool pairs =
                family.overlap_pairs && (family.placement != Placement::loop || !sharded(mode));
            if (pairs) kinds.push_back({std::string(family.name), mode, false, true});
        }
    }
    return kinds;
}

/// Families with an order of their own for the vocabulary passes; the others have them inserted.
bool places_the_vocabulary(const std::string& family) {
    return family == "1f1b" || family == "gpipe";
}

class EverySchedule : public ::testing::TestWithParam<Kind> {
protected:
    /// Every size up to `most_ranks` ranks.
    template <typename Check>
    void for_each_size(int most_ranks, const Check& check) {
        for (int p = 1; p <= most_ranks; ++p) {
            for (int m = 1; m <= 3 * p; ++m) {
                SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
                check(ScheduleOptions{.ranks = p,
                                      .microbatches = m,
                                      .vocab_mode = GetParam().mode,
                                      .vocab_size = 1000,
                                      .rule = {.overlap_pairs = GetParam().overlap_pairs},
                                      .forward_only = GetParam().forward_only});
                if (HasFatalFailure()) return;
            }
        }
    }
    /// The smaller grid is for what is general, the larger for rules written down family by family.
    template <typename Check>
    void for_each_size(const Check& check) {
        for_each_size(places_the_vocabulary(GetParam().family) ? 8 : 3, check);
    }
    Schedule generated(const ScheduleOptions& options) {
        return make_schedule(GetParam().family, options);
    }
};

TEST_P(EverySchedule, IsAcceptedByTheValidator) {
    const bool searches = GetParam().family == "v-search";
    for_each_size(searches ? 4 : 8, [&](const ScheduleOptions& options) {
        const int p = options.ranks;
        const int m = options.microbatches;
        // Around the minima of the rules; the insertion takes most of the time of this program.
        const bool near = m <= 2 || m % p <= 1 || m % p == p - 1;
        if (p > 4 && !near && !places_the_vocabulary(GetParam().family)) return;
        const auto violation = find_violation(generated(options));
        ASSERT_FALSE(violation.has_value()) << violation->message();
    });
}

TEST_P(EverySchedule, IsAcceptedByBruteForce) {
    for_each_size([&](const ScheduleOptions& options) {
        ASSERT_EQ(brute_force_fault(generated(options)), "");
    });
}

TEST_P(EverySchedule, IsValidForEveryRatioOfCosts) {
    const std::pair<int64_t, int64_t> costs[] = {{1, 1}, {20, 37}, {1, 3}, {3, 1}, {1, 100}};
    for_each_size([&](ScheduleOptions options) {
        for (const auto& [forward, backward] : costs) {
            options.costs = PassCosts::uniform(forward, backward, 1);
            options.rule.broadcast_margin = backward / 4;
            ASSERT_EQ(brute_force_fault(generated(options)), "") << forward << ":" << backward;
        }
    });
}

TEST_P(EverySchedule, IsValidWithFewerRowsThanRanks) {
    for_each_size([&](ScheduleOptions options) {
        for (const int64_t rows : {1, 2, 5}) {
            options.vocab_size = rows;
            const Schedule schedule = generated(options);
            ASSERT_EQ(schedule.output.vocab_size(), rows);
            ASSERT_EQ(brute_force_fault(schedule), "") << rows << " rows";
            ASSERT_FALSE(find_violation(schedule).has_value()) << rows << " rows";
        }
    });
}

// The exp_logits of S_j is the largest buffer of the output layer and is freed by T_j. The general
// insertion promises no such thing.
TEST_P(EverySchedule, KeepsAtMostOneNumeratorAlivePerRankWhereTheFamilyPlacesIt) {
    if (!places_the_vocabulary(GetParam().family)) return;
    for_each_size([&](const ScheduleOptions& options) {
        if (options.forward_only) return;  // evaluation keeps no exp_logits
        for (const auto& list : generated(options).passes) {
            int alive = 0;
            for (const Pass& pass : list) {
                if (pass.op == Op::S) {
                    ASSERT_LE(++alive, 1) << text_of(list);
                } else if (pass.op == Op::T) {
                    --alive;
                }
            }
        }
    });
}

TEST_P(EverySchedule, OnlyEvaluationHasNoBackward) {
    for_each_size([&](const ScheduleOptions& options) {
        ASSERT_EQ(generated(options).forward_only(), GetParam().forward_only);
    });
}

// The general insertion moves T into gaps: only the optimizer waits for it.
TEST_P(EverySchedule, RunsSAndTBackToBackWithoutBarriersWhereTheFamilyPlacesThem) {
    if (!places_the_vocabulary(GetParam().family)) return;
    for_each_size([&](const ScheduleOptions& options) {
        const Schedule schedule = generated(options);
        if (schedule.barriers != Barriers::in_line || options.forward_only) return;
        for (const auto& list : schedule.passes) {
            for (size_t i = 0; i < list.size(); ++i) {
                if (list[i].op != Op::S) continue;
                ASSERT_LT(i + 1, list.size());
                ASSERT_EQ(list[i + 1], (Pass{Op::T, 0, list[i].microbatch}));
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(, EverySchedule, ::testing::ValuesIn(every_kind()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::testing
