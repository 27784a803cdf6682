// SPDX-License-Identifier: Apache-2.0
// The parts that a selection is made of, against brute force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "src/select/decimal.hpp"
#include "src/select/memory_plan.hpp"
#include "src/select/partition.hpp"
#include "src/select/radix_select.hpp"
#include "src/select/weighted_order.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RadixSelect, FindsEveryOrderStatisticOfValuesOnSeveralRanks) {
    std::mt19937_64 random(1);
    for (const int64_t spread : {int64_t{1}, int64_t{5}, int64_t{1} << 40}) {
        std::vector<int64_t> values(97);
        for (int64_t& value : values) {
            value = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * spread)) - spread;
        }
        values[3] = INT64_MIN;
        values[4] = INT64_MAX;
        std::vector<int64_t> sorted = values;
        std::ranges::sort(sorted, std::greater());
        for (const int ranks : {1, 2, 3, 8}) {
            World::threads(ranks).run([&](Communicator& world) {
                const auto for_each = [&](const auto& use) {
                    for (size_t i = 0; i < values.size(); ++i) {
                        if (static_cast<int>(i) % ranks == world.rank()) use(values[i]);
                    }
                };
                for (const int64_t k : {1, 2, 48, 96, 97}) {
                    EXPECT_EQ(kth_largest(world, k, for_each), sorted[static_cast<size_t>(k - 1)]);
                }
                // Several at once, in any order, some of them equal; as keys of the same order.
                const uint64_t sign = uint64_t{1} << 63;
                RadixSelect select({50, 1, 97, 50, 51});
                while (!select.done()) {
                    for_each(
                        [&](int64_t value) { select.add(static_cast<uint64_t>(value) ^ sign); });
                    select.next_digit(world);
                }
                std::vector<int64_t> found;
                for (const uint64_t key : select.results())
                    found.push_back(static_cast<int64_t>(key ^ sign));
                EXPECT_THAT(found, ::testing::ElementsAre(sorted[49], sorted[0], sorted[96],
                                                          sorted[49], sorted[50]));
            });
        }
    }
}

TEST(Ownership, CoversAllSamplesOnce) {
    for (const int64_t n : {0, 1, 2, 7, 16, 1000}) {
        for (const int ranks : {1, 2, 3, 8}) {
            const Ownership owners(n, ranks);
            EXPECT_EQ(owners.begin(0), 0);
            EXPECT_EQ(owners.end(ranks - 1), n);
            for (int rank = 0; rank < ranks; ++rank) {
                EXPECT_LE(owners.count(rank), owners.largest());
                for (int64_t v = owners.begin(rank); v < owners.end(rank); ++v) {
                    EXPECT_EQ(owners.owner_of(v), rank);
                }
            }
        }
    }
}

TEST(Decimals, AreReadExactly) {
    const auto text = [](const char* given) {
        const auto fraction = fraction_from(given);
        return fraction ? decimal_text(*fraction) : std::string("none");
    };
    EXPECT_EQ(fraction_from("0.3")->numerator, 3);
    EXPECT_EQ(fraction_from("0.3")->denominator, 10);
    EXPECT_EQ(text("0.300"), "0.3");
    EXPECT_EQ(text(".25"), "0.25");
    EXPECT_EQ(text("0.000000001"), "0.000000001");
    for (const char* same : {"0", "1", "0.123456789"}) EXPECT_EQ(text(same), same);
    EXPECT_EQ(text("1.0"), "1");
    for (const char* bad : {"", ".", "-0.1", "1.1", "2", "0.1234567891", "1e-3", "0.3x", "nan",
                            "0,3", "+0.3", "00.3"}) {
        EXPECT_EQ(text(bad), "none") << bad;
    }
}

TEST(BoundingRules, AreReadAndPrinted) {
    for (const char* rule :
         {"off", "exact", "bernoulli:0.3", "quota:1", "quota:0.25", "weighted:0.3"}) {
        EXPECT_EQ(to_string(BoundingRule::from(rule, "--bounding")), rule);
    }
    for (const char* bad : {"", "exactly", "exact:1", "quota", "quota:", "quota:2", "bernoulli:x",
                            "weighted:", "weight:0.3"}) {
        EXPECT_THROW((void)BoundingRule::from(bad, "--bounding"), UsageError) << bad;
    }
}

TEST(WeightedOrder, DrawsInProportionToTheWeights) {
    // The chances of each of three items to come first, and to come last.
    constexpr std::array<int32_t, 3> kWeights{1 << 18, 1 << 19, 1 << 20};
    constexpr int kDraws = 200'000;
    std::array<int, 3> first{}, last{};
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
        std::array<uint64_t, 3> place{};
        for (size_t i = 0; i < 3; ++i) place[i] = weighted_order(hash_of(9, draw, i), kWeights[i]);
        ++first[static_cast<size_t>(std::ranges::min_element(place) - place.begin())];
        ++last[static_cast<size_t>(std::ranges::max_element(place) - place.begin())];
    }
    for (size_t i = 0; i < 3; ++i) {
        const auto share = [](int count) { return static_cast<double>(count) / kDraws; };
        const double a = kWeights[i], b = kWeights[(i + 1) % 3], c = kWeights[(i + 2) % 3];
        EXPECT_NEAR(share(first[i]), a / (a + b + c), 0.005);
        EXPECT_NEAR(share(last[i]), b / (a + b + c) * c / (a + c) + c / (a + b + c) * b / (a + b),
                    0.005);
    }
}

TEST(WeightedOrder, IsOfTheLogarithmOfTheHash) {
    for (const uint64_t hash : {uint64_t{1}, uint64_t{3}, uint64_t{1} << 40, uint64_t{0xFFF} << 50,
                                uint64_t{1} << 63, UINT64_MAX / 3, UINT64_MAX}) {
        const double right = -std::log2(static_cast<double>(hash)) + 64;
        EXPECT_NEAR(static_cast<double>(exponential_of(hash)) / 0x1p32, right, 4e-6) << hash;
    }
    EXPECT_EQ(exponential_of(0), exponential_of(1));
    EXPECT_EQ(weighted_order(1, 1), uint64_t{64} << 57) << "the largest fits";
    EXPECT_EQ(weighted_order(5, 0), UINT64_MAX) << "after all others";
}

TEST(MemoryBudget, RefusesWhatIsBeyondIt) {
    MemoryBudget budget(100);
    {
        const MemoryLease a(budget, 60, "a");
        EXPECT_EQ(budget.left(), 40U);
        EXPECT_THROW(MemoryLease(budget, 41, "b"), OutOfMemoryError);
        const MemoryLease c(budget, 40, "c");
    }
    EXPECT_EQ(budget.left(), 100U);
    EXPECT_EQ(budget.peak(), 100U);
}

TEST(MemoryPlan, ThatIsTooLargeSaysWhatFits) {
    const GraphSizes sizes{.nodes = 10'000'000,
                           .entries = 160'000'000,
                           .rank_nodes = 10'000'000,
                           .rank_entries = 160'000'000,
                           .own_entries = 160'000'000,
                           .longest_row = 100};
    const BoundingRule quota = BoundingRule::from("quota:0.3", "--bounding");
    constexpr uint64_t kBatch = 1 << 20;
    const auto refusal = [&](uint64_t memory, int64_t parts) -> std::string {
        const StateBlocks blocks = plan_blocks(sizes, memory, 1, parts, quota, kBatch);
        const MemoryPlan plan = plan_memory(sizes, 1, parts, quota, kBatch, blocks);
        try {
            check_memory_plan(plan, memory, sizes, 1, parts, quota, kBatch);
        } catch (const OutOfMemoryError& error) {
            return error.what();
        }
        return {};
    };
    // 10^7 samples with 16 neighbours in 2 GiB, as long as greedy works on parts.
    EXPECT_EQ(refusal(uint64_t{2} << 30, 16), "");
    EXPECT_THAT(refusal(uint64_t{1} << 30, 1), HasSubstr("--partitions 2"));
    EXPECT_EQ(refusal(100'000'000, 16), "") << "the state goes to files";
    EXPECT_THAT(refusal(1000, 1), AllOf(HasSubstr("use --memory "), Not(HasSubstr("partitions"))));
    // What it says would fit does.
    EXPECT_EQ(refusal(uint64_t{1} << 30, 2), "");
    const std::string less = refusal(1000, 64);
    EXPECT_EQ(refusal(std::stoull(less.substr(less.find("use --memory ") + 13)), 64), "");
    // The fewest parts that fit are named, down to the last byte.
    const auto least = [&](int64_t parts) {
        const std::string text = refusal(1000, parts);
        return std::stoull(text.substr(text.find("use --memory ") + 13));
    };
    const std::string one = std::to_string(least(1));
    const auto advice = [&](uint64_t memory, int64_t parts) {
        return "--memory " + std::to_string(memory) +
               ": 10000000 samples with 160000000 row entries need at least " + one +
               " bytes per rank; use --memory " + one + ", or --partitions " +
               std::to_string(parts);
    };
    for (int64_t parts = 2; parts <= 9; ++parts) {
        ASSERT_LT(least(parts), least(parts - 1));
        EXPECT_EQ(refusal(least(parts), 1), advice(least(parts), parts));
        EXPECT_EQ(refusal(least(parts) - 1, 1), advice(least(parts) - 1, parts + 1));
        EXPECT_EQ(refusal(least(parts), parts), "");
    }
    // The state takes 23.5 bytes per sample where 16 neighbours are the rule.
    const MemoryPlan plan = plan_memory(sizes, 1, 16, quota, kBatch);
    EXPECT_LE(plan.always.front().second + plan.bounding.front().second,
              uint64_t{235} * 1'000'000 + 100 * 16 + 10 * 1024);
}

TEST(Partition, OfFewerSamplesThanPartsLeavesSomeEmpty) {
    const TempFolder folder;
    const SelectProblem problem = random_problem(1, 5, 1, 3, 3);
    World::threads(2).run([&](Communicator& world) {
        write_graph(world, folder / "graph", problem);
        const GraphFile graph(folder / "graph");
        SelectContext context{.world = world, .graph = graph, .objective = {}, .seed = 3};
        const SelectionState state(context.memory, context.first(), context.last());
        const Partition partition(context, state, 8, 5, 1);
        std::vector<int> counts(8);
        for (int64_t v = 0; v < 5; ++v) {
            ++counts[static_cast<size_t>(partition.part_of(v))];
            for (int64_t part = 0; part < 8; ++part) {
                EXPECT_EQ(partition.has(part, v), partition.part_of(v) == part);
            }
        }
        for (int64_t part = 0; part < 8; ++part) {
            EXPECT_EQ(counts[static_cast<size_t>(part)], (part + 1) * 5 / 8 - part * 5 / 8);
        }
    });
}

}  // namespace
}  // namespace vocabpipe::testing
