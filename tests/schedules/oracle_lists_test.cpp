// SPDX-License-Identifier: Apache-2.0
// Every deterministic list of the oracle file, exactly. Not in the file, because nothing here could
// run them: two-copy DualPipe (two models per rank), Seq1F1B (pieces of sequences) and the lists
// with recomputation. JaxPP's DualPipeV and the lists of searches only feed metrics.
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/validate.hpp"

#include "tests/schedules/oracles.hpp"
#include "tests/support/brute_force_checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace vocabpipe::testing {
namespace {

struct Family {
    std::string name;
    int warm_up_depth = 0;
};

Family family_of(const std::string& schedule) {
    const std::map<std::string, Family> families{
        {"GPipe", {"gpipe"}},
        {"1F1B", {"1f1b"}},
        {"Eager1F1B", {"eager-1f1b"}},
        {"Interleaved1F1B", {"interleaved"}},
        {"Interleaved1F1B (flexible group size)", {"interleaved"}},
        {"Interleaved1F1B with one extra warm-up forward (KimiK2 / Megatron "
         "overlap_moe_expert_parallel_comm)",
         {"interleaved", 2}},
        {"LoopedBFS", {"looped-bfs"}},
        {"ZB-H1", {"zb-h1"}},
        {"InterleavedZeroBubble (torch ZB1P)", {"interleaved-zb"}},
        {"ZB-V (hand-crafted; torch ScheduleZBVZeroBubble)", {"zb-v"}},
        {"DualPipeV", {"dualpipe-v"}},
        {"Group-interleaved 1F1B (PipeOffload)", {"group-interleaved"}},
    };
    const auto found = families.find(schedule);
    return found == families.end() ? Family{} : found->second;
}

void expect_generated(const nlohmann::json& oracle, const std::string& name,
                      ScheduleOptions options) {
    SCOPED_TRACE(oracle.at("id").get<std::string>());
    options.ranks = oracle.at("p").get<int>();
    options.microbatches = oracle.at("m").get<int>();
    options.vocab_size = 1;
    const Schedule made = without_vocabulary(make_schedule(name, options));
    const Schedule wanted = schedule_of(oracle);
    EXPECT_EQ(lists_of(made), lists_of(wanted));
    EXPECT_EQ(made.rank_of_stage, wanted.rank_of_stage);
}

TEST(OracleLists, AreWhatTheFamiliesGenerate) {
    int compared = 0;
    for (const auto& oracle : oracles().at("cases")) {
        if (oracle.at("compare") != "exact_list") continue;
        const Family family = family_of(oracle.at("schedule"));
        ASSERT_FALSE(family.name.empty()) << oracle.at("schedule");
        const auto params = oracle.value("params", nlohmann::json::object());
        expect_generated(oracle, family.name,
                         {.rule = {.chunks = oracle.at("v").get<int>(),
                                   .warm_up_depth = family.warm_up_depth,
                                   .group_size = params.value("group_size_N", 0)}});
        ++compared;
    }
    EXPECT_EQ(compared, 30);
}

TEST(OracleLists, OfZbAreTheClosedForm) {
    int compared = 0;
    for (const auto& oracle : oracles().at("closed_form_zb_k")) {
        expect_generated(oracle, "zb", {.rule = {.memory_limit = oracle.at("k").get<int>()}});
        ++compared;
    }
    EXPECT_EQ(compared, 6);
}

TEST(OracleLists, OfGroupInterleavedAreTheSlotGrid) {
    int compared = 0;
    for (const auto& oracle : oracles().at("group_interleaved")) {
        expect_generated(oracle, "group-interleaved",
                         {.rule = {.chunks = oracle.at("v").get<int>(),
                                   .group_size = oracle.at("params").at("group_size").get<int>()}});
        ++compared;
    }
    EXPECT_EQ(compared, 4);
}

TEST(OracleLists, AreValid) {
    for (const char* part :
         {"cases", "closed_form_zb_k", "group_interleaved", "search_upper_bounds"}) {
        for (const auto& oracle : oracles().at(part)) {
            const Schedule schedule = schedule_of(oracle);
            const auto violation = find_violation(schedule);
            EXPECT_FALSE(violation.has_value()) << oracle.at("id") << violation->message();
            EXPECT_EQ(brute_force_fault(schedule), "") << oracle.at("id");
        }
    }
}

// What a Schedule cannot say is a matter of reading files: transfers, tokens that are none.
TEST(OracleLists, ThatAreInvalidAreRefused) {
    int refused = 0;
    for (const auto& oracle : oracles().at("negative_cases")) {
        const std::string id = oracle.at("id");
        if (id == "blocking_comm_order" || id == "old_dialect_token" ||
            id == "microbatch_missing_in_token") {
            EXPECT_THROW((void)schedule_of(oracle), std::invalid_argument) << id;
            continue;
        }
        const Schedule schedule = schedule_of(oracle);
        EXPECT_TRUE(find_violation(schedule).has_value()) << id;
        EXPECT_NE(brute_force_fault(schedule), "") << id;
        ++refused;
    }
    EXPECT_EQ(refused, 17);
}

}  // namespace
}  // namespace vocabpipe::testing
