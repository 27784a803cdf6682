// SPDX-License-Identifier: Apache-2.0
// vocabpipe simulate, timeline and explain, run as programs.
#include "tests/schedule/small_profile.hpp"
#include "tests/tool/run_program.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::Outcome;
using testing::small_profile;
using ::testing::StartsWith;
using testing::TempFolder;
using Json = nlohmann::json;

Outcome vocabpipe_in(const TempFolder& in, const std::string& arguments) {
    return testing::run_shell("cd '" + (in / "") + "' && '" VOCABPIPE_PROGRAM "' " + arguments);
}

Json simulated(const std::string& arguments) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(folder, "simulate " + arguments + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return Json::parse(outcome.output);
}

/// Fails if the command does not end with this code and one line on stderr; returns the line.
std::string refused(const std::string& arguments, int exit_code) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(folder, arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments;
    EXPECT_THAT(outcome.error, StartsWith("vocabpipe: error: ")) << arguments;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    return outcome.error;
}

// Interlaced waits for each of its collectives; sends still cost their latency.
TEST(SimulateCommand, LeavesOutWhatCollectivesOfVocabularyPassesCost) {
    const auto step = [](const std::string& mode, const std::string& flags) {
        return simulated("1f1b --pp 4 --microbatches 16 --costs 40,80,10 --vocab-mode " + mode +
                         flags)["step"]
            .get<int64_t>();
    };
    const std::string free = " --free-vocabulary-collectives";
    EXPECT_GT(step("interlaced", " --latency 5"), step("interlaced", " --latency 5" + free));
    EXPECT_GT(step("interlaced", " --latency 5" + free), step("interlaced", ""));
    EXPECT_EQ(step("interlaced", free), step("interlaced", ""));
}

TEST(SimulateCommand, SaysThatLongWorkGoesOn) {
    // It would take longer; nobody needs the result.
    const Outcome outcome = testing::run_shell("timeout 4 '" VOCABPIPE_PROGRAM
                                               "' simulate v-half --pp 256 --microbatches 1024");
    EXPECT_THAT(outcome.error, StartsWith("vocabpipe: still simulating v-half after 2 s\n"));
}

TEST(ExplainCommand, TakesATraceOfAnotherProfilerForNoSchedule) {
    const TempFolder folder;
    testing::write_file(folder / "kineto.json",
                        "{\"schemaVersion\": 1, \"deviceProperties\": [\"" +
                            std::string(20000, 'x') +
                            "\"], \"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", "
                            "\"name\": \"aten::add\", \"pid\": 1, \"tid\": 1, \"ts\": 1, "
                            "\"dur\": 2}]}");
    const Outcome outcome = vocabpipe_in(folder, "explain kineto.json");
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_THAT(outcome.error, HasSubstr("kineto.json: has no pass among ranges such as"));
}

TEST(SimulateCommand, RefusesProgramsThatMemoryCannotHold) {
    if (::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE) > int64_t{48} << 30) {
        GTEST_SKIP() << "this machine may hold them";
    }
    const std::string error =
        refused("simulate 1f1b --pp 32000 --microbatches 1 --vocab-mode one_barrier", 4);
    EXPECT_THAT(error, MatchesRegex("vocabpipe: error: --pp 32000: programs of 32000 ranks and 1 "
                                    "microbatch need at least 53\\.[0-9] GiB, but only [0-9.]+ GiB "
                                    "are available; use fewer of them\n"));
}

// With B = 2 F and free vocabulary layers 1F1B takes (m + p - 1) 3 F (docs/schedules.md).
TEST(SimulateCommand, PrintsTimeBubbleAndMemoryPerRank) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(
        folder, "simulate 1f1b --pp 4 --microbatches 8 --costs 10,20,0 --hidden-size 1024");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.error, "");
    EXPECT_THAT(outcome.output,
                AllOf(StartsWith("1f1b none, 4 ranks, 8 microbatches\n"
                                 "times in the unit of the costs of a rank: F 10, B 20, V 0; V: "),
                      HasSubstr("\nmakespan      330\nlargest span  330\n")));
    EXPECT_THAT(outcome.output, HasSubstr("bubble        27.27 %\n"));
    EXPECT_THAT(outcome.output, HasSubstr("\n   0   240    90  72.73 %\n"));
    EXPECT_THAT(outcome.output, HasSubstr("\n   3   240    90  72.73 %\n"));
    EXPECT_THAT(
        outcome.output,
        HasSubstr("\n"
                  "peak memory of each rank, in MiB: hidden size 1024, 1 x 2048 tokens per\n"
                  "microbatch, bf16, 4 layers, 128000 vocabulary rows; without weights and\n"
                  "optimizer\n\n"
                  "rank   peak  activ  work\n"
                  "   0  332.0  280.0  52.0\n"));
}

TEST(SimulateCommand, RefusesWhatWouldTakeTooMuchMemoryBeforeItMakesAnything) {
    const TempFolder folder;
    for (const std::string command :
         {"simulate 1f1b", "timeline 1f1b --html a.html", "explain 1f1b"}) {
        const Outcome outcome = vocabpipe_in(folder, command + " --pp 64 --microbatches 10000");
        EXPECT_EQ(outcome.exit_code, 2);
        EXPECT_THAT(outcome.error,
                    HasSubstr("--microbatches 10000: with 64 stages, a step has up to 4480000 "
                              "passes, but at most 4000000 are supported"));
    }
}

TEST(SimulateCommand, AgreesWithTheQuickClockWhereCommunicationIsFree) {
    for (const Generator& family : generators()) {
        SCOPED_TRACE(family.name);
        const Json json =
            simulated(std::string(family.name) + " --pp 4 --microbatches 12 --costs 10,20,0");
        const Json by_rank = json.at("by_rank");
        ASSERT_EQ(by_rank.size(), 4U);
        for (const Json& rank : by_rank) {
            // Every rank has the same work, in however many stages: m times F, B.
            EXPECT_EQ(rank.at("busy"), 12 * 30);
            EXPECT_LE(rank.at("span"), json.at("makespan"));
            uint64_t sum = 0;
            for (const auto& [use, bytes] : rank.at("bytes_at_peak").items()) {
                sum += bytes.get<uint64_t>();
            }
            EXPECT_EQ(sum, rank.at("peak_bytes"));
        }
        EXPECT_EQ(json.at("time_unit"), "costs");
    }
}

TEST(SimulateCommand, MakesTheOutputLayerAsHeavyAsItsRows) {
    // V is an even share; whole on one rank it takes 4 of them.
    const Json whole = simulated("1f1b --pp 4 --microbatches 8 --costs 10,20,8");
    const Json sharded =
        simulated("1f1b,vocab-mode=one_barrier --pp 4 --microbatches 8 --costs 10,20,8");
    EXPECT_EQ(whole.at("by_rank").at(3).at("busy"), 8 * (10 + 20 + 4 * 16));
    EXPECT_EQ(whole.at("by_rank").at(1).at("busy"), 8 * (10 + 20));
    EXPECT_EQ(sharded.at("by_rank").at(1).at("busy"), 8 * (10 + 20 + 16 + 2 * 2));
    EXPECT_LT(sharded.at("makespan"), whole.at("makespan"));
}

TEST(SimulateCommand, MovesLayersAwayFromTheOutputLayer) {
    // 16 layers of 3 + 6, and an output layer of 8 x 9: layers_per_stage() keeps 0 for the last.
    const Json json = simulated(
        "1f1b --vocab-mode redistributed --pp 4 --microbatches 8 --costs 12,24,9 --num-layers 16");
    EXPECT_EQ(json.at("by_rank").at(3).at("busy"), 8 * 4 * 18);
    // An output layer of 8 x 6 is 5 1/3 such layers, and 4 layers that also recompute.
    const Json recomputing = simulated(
        "1f1b --vocab-mode redistributed --pp 4 --microbatches 8 --costs 12,24,6 --num-layers 16 "
        "--recompute-granularity full");
    EXPECT_EQ(recomputing.at("by_rank").at(3).at("busy"), 8 * (8 * 6 + 12));
    EXPECT_THAT(
        refused("simulate 1f1b --vocab-mode redistributed --pp 4 --microbatches 8 --costs 1,2", 2),
        HasSubstr("--num-layers"));
}

// A depth is a layer and a product of 2 h to h columns, 4 h^2 of 24 h^2 + 2 s h: 1/6 for s = 0.
TEST(SimulateCommand, PutsWhatPredictsSeveralTokensOnTheLastStage) {
    const std::string step =
        "--pp 4 --microbatches 8 --costs 14,28,6 --num-layers 14 --mtp-num-layers 2 "
        "--seq-length 1 --hidden-size 1048576";
    // Ranks have 14 / 4 layers of 4 + 8 in the mean. Of 14 + 2 x 7/6 layers the last rank has 1
    // to 2.
    const double layer = 8 * 42 / 3.5;
    const Json whole = simulated("1f1b " + step);
    EXPECT_NEAR(whole.at("by_rank").at(0).at("busy"), 4 * layer + 8 * (1.5 + 3), 1e-3);
    EXPECT_NEAR(whole.at("by_rank").at(3).at("busy"), (2 + 2 * 7 / 6.0) * layer + 8 * 3 * 4 * 12,
                1e-3);
    // S and T have three rows per token, and G adds up two gradients.
    const Json sharded = simulated("1f1b --vocab-mode one_barrier " + step);
    EXPECT_NEAR(sharded.at("by_rank").at(0).at("busy"), 4 * layer + 8 * (3 * 12 + 1.5 + 3), 1e-3);
    EXPECT_THAT(refused("simulate 1f1b --pp 4 --microbatches 8 --costs 1,2 --mtp-num-layers 1", 2),
                HasSubstr("--mtp-num-layers: requires --num-layers"));
}

TEST(SimulateCommand, TakesALayoutInMegatronsNotation) {
    const std::string step =
        "1f1b --pp 4 --microbatches 8 --costs 12,24,6 --num-layers 8 --mtp-num-layers 1 "
        "--seq-length 1 --hidden-size 1048576 --pipeline-model-parallel-layout ";
    const auto busy = [&](const std::string& more) {
        std::vector<double> of_ranks;
        const Json json = simulated(step + more);  // which outlives the loop
        for (const Json& rank : json.at("by_rank")) of_ranks.push_back(rank.at("busy"));
        return of_ranks;
    };
    const double layer = 8 * 36 / 2, output = 8 * 2 * 4 * 12;
    const auto before = busy("'Ettt|ttt|ttm|L'");
    EXPECT_NEAR(before[0], 3 * layer + 8 * (1.5 + 3), 1e-3);  // E, and G of two gradients
    EXPECT_NEAR(before[2], (3 + 1 / 6.0) * layer, 1e-3);
    EXPECT_NEAR(before[3], output, 1e-3);
    EXPECT_NEAR(busy("'Ettt|ttt|tt|mL'")[3], (1 + 1 / 6.0) * layer + output, 1e-3);
    EXPECT_NEAR(busy("'Vtttt|ttt|t|mV' --vocab-mode two_barriers")[3],
                (1 + 1 / 6.0) * layer + output / 4 + 8 * 4.5, 1e-3);
    EXPECT_THAT(refused("simulate " + step + "'Vtttt|ttt|t|mV'", 2),
                HasSubstr("does not match vocabulary mode none"));
    EXPECT_THAT(refused("simulate " + step + "'Etttt|tttt|mL'", 2),
                HasSubstr("has 3 stages, but the schedule has 4; both must be equal"));
}

// A third of 1 for S and T, a quarter of that for E and G: nothing is rounded away.
TEST(SimulateCommand, DividesSmallCosts) {
    const Json json = simulated("1f1b,vocab-mode=interlaced --pp 2 --microbatches 6 --costs 1,2");
    EXPECT_DOUBLE_EQ(json.at("by_rank").at(0).at("busy"), 6 * (3 + 2.0 / 3 + 2.0 / 12));
}

TEST(SimulateCommand, ReceivesEarlierWhereItPays) {
    const std::string gpipe =
        "gpipe --pp 8 --microbatches 32 --costs 200,400,0 --num-layers 64 --latency 50";
    const auto step = [&](const std::string& more) {
        return simulated(gpipe + more).at("step").get<double>();
    };
    EXPECT_LT(step(""), 0.9 * step(" --receive-ahead 1"));
    EXPECT_EQ(step(""), step(" --receive-ahead auto"));
    EXPECT_EQ(simulated(gpipe + " --receive-ahead 2").at("receive_ahead"), 2);
    EXPECT_EQ(simulated("1f1b --pp 2 --microbatches 2").at("receive_ahead"), 1);
    const TempFolder folder;
    EXPECT_THAT(vocabpipe_in(folder, "simulate " + gpipe).output,
                HasSubstr("\nreceives      3 passes ahead\n"));
    EXPECT_THAT(refused("simulate " + gpipe + " --receive-ahead 0", 2),
                HasSubstr("--receive-ahead 0: must be auto or an integer"));
    EXPECT_THAT(refused("schedule show " + gpipe + " --receive-ahead 2", 2),
                HasSubstr("--receive-ahead"));
}

TEST(SimulateCommand, ChoosesPiecesWhereHopsAreSlow) {
    const std::string step = "1f1b --pp 4 --microbatches 8 --costs 20,40 --num-layers 8";
    const auto pieces = [&](const std::string& more) {
        return simulated(step + more).at("tile_pieces").get<int>();
    };
    const auto length = [&](const std::string& more) {
        return simulated(step + " --hop 4" + more).at("step").get<double>();
    };
    EXPECT_EQ(pieces(""), 1) << "messages take no time";
    EXPECT_EQ(pieces(" --latency 4"), 1) << "which pieces cannot hide";
    EXPECT_GT(pieces(" --hop 4"), 1);
    EXPECT_LT(length(""), 0.97 * length(" --tile-pieces 1"));
    EXPECT_EQ(length(""), length(" --tile-pieces auto"));
    const TempFolder folder;
    EXPECT_THAT(vocabpipe_in(folder, "simulate " + step + " --hop 4 --tile-pieces 8").output,
                HasSubstr("8 microbatches, boundaries by 8 pieces\n"));
    EXPECT_THAT(refused("simulate " + step + " --tile-pieces 65", 2),
                HasSubstr("--tile-pieces 65: must be auto or an integer from 1 to 64"));
    EXPECT_THAT(refused("simulate " + step + " --overlap-table t.json", 2),
                HasSubstr("--overlap-table t.json: is in nanoseconds"));
}

TEST(SimulateCommand, LetsPairsHideExchanges) {
    const auto step = [&](const std::string& schedule, const std::string& exchange) {
        return simulated(schedule + " --pp 4 --microbatches 16 --costs 12,24,1" + exchange)
            .at("step")
            .get<double>();
    };
    for (const std::string exchange : {" --exchange-percent 20", " --exchange-percent 40"}) {
        EXPECT_LT(step("dualpipe-v", exchange), 0.97 * step("dualpipe-v", ""));
        EXPECT_EQ(step("zb-v", exchange), step("zb-v", "")) << "has no pairs";
    }
    const std::string wait = " --exchange-percent 30";
    for (const std::string mode : {"none", "one_barrier", "two_barriers", "interlaced"}) {
        const std::string schedule = "1f1b --vocab-mode " + mode;
        EXPECT_LT(step(schedule, " --overlap-pairs" + wait), 0.9 * step(schedule, wait)) << mode;
    }
    // Pairs wait for those of the ranks below.
    EXPECT_GT(step("1f1b", " --overlap-pairs --warm-up-depth 1" + wait),
              step("1f1b", " --overlap-pairs" + wait));
    const TempFolder folder;
    EXPECT_THAT(vocabpipe_in(folder,
                             "simulate dualpipe-v --pp 2 --microbatches 8 --costs 12,24 "
                             "--exchange-percent 20")
                    .output,
                HasSubstr(", exchange 20 %"));
}

TEST(SimulateCommand, LetsMessagesOfALaneGoOneAfterTheOther) {
    const auto makespan = [](const std::string& order) {
        const Json json = simulated(
            "interleaved --pp 4 --microbatches 8 --costs 12,24 --latency 6 "
            "--receive-ahead 1" +
            order);
        return json.at("makespan").get<double>();
    };
    EXPECT_EQ(makespan(" --communication-order lanes"), makespan(""));
    EXPECT_LT(makespan(""), makespan(" --communication-order streams"));
    EXPECT_LT(makespan(" --communication-order launches"),
              makespan(" --communication-order serial"));
    const TempFolder folder;
    EXPECT_THAT(
        vocabpipe_in(folder, "simulate 1f1b --pp 2 --microbatches 2 --communication-order launches")
            .output,
        StartsWith("1f1b none, 2 ranks, 2 microbatches, communication order launches\n"));
    EXPECT_THAT(
        vocabpipe_in(folder, "simulate 1f1b --pp 2 --microbatches 2 --communication-order x").error,
        HasSubstr("must be one of lanes, streams, launches, serial"));
}

TEST(SimulateCommand, TakesSchedulesFromFiles) {
    const TempFolder folder;
    for (const char* made : {"zb-v --vocab-mode two_barriers --format json >whole.json",
                             "zb-v --format csv >base.csv"}) {
        ASSERT_EQ(vocabpipe_in(folder, "schedule show --pp 3 --microbatches 7 --costs 12,24 " +
                                           std::string(made))
                      .exit_code,
                  0);
    }
    const Json whole =
        Json::parse(vocabpipe_in(folder, "simulate whole.json --costs 12,24 --json").output);
    EXPECT_EQ(whole.at("title"), "whole.json, 3 ranks, 7 microbatches");
    EXPECT_EQ(whole.at("stages"), 6);
    // Vocabulary passes are added to a file that has none.
    const Json base = Json::parse(
        vocabpipe_in(folder, "simulate base.csv --vocab-mode two_barriers --costs 12,24 --json")
            .output);
    EXPECT_EQ(base.at("by_rank").at(1).at("busy"), whole.at("by_rank").at(1).at("busy"));
    EXPECT_EQ(vocabpipe_in(folder, "timeline base.csv whole.json --html x.html").exit_code, 0);
    EXPECT_THAT(vocabpipe_in(folder, "explain base.csv").output, HasSubstr("critical path"));
    const auto error = [&](const std::string& arguments) {
        const Outcome outcome = vocabpipe_in(folder, "simulate " + arguments);
        EXPECT_EQ(outcome.exit_code, 2);
        return outcome.error;
    };
    EXPECT_THAT(error("whole.json --vocab-mode none"), HasSubstr("--vocab-mode none"));
    EXPECT_THAT(error("whole.json --microbatches 8"), HasSubstr("--microbatches 8"));
    EXPECT_THAT(error("whole.json --chunks 2"), HasSubstr("--chunks"));
}

TEST(SimulateCommand, WritesTraceAndPage) {
    const TempFolder folder;
    const Outcome outcome =
        vocabpipe_in(folder, "simulate zb-h1 --pp 3 --microbatches 5 --trace a.json --html a.html");
    EXPECT_EQ(outcome.exit_code, 0);
    const RecordedRun run = read_chrome_trace(folder / "a.json");
    EXPECT_EQ(run.ranks, 3);
    EXPECT_EQ(run.title, "zb-h1 none, 3 ranks, 5 microbatches");
    EXPECT_THAT(testing::read_file(folder / "a.html"),
                HasSubstr("<title>zb-h1 none, 3 ranks, 5 microbatches</title>"));
}

TEST(SimulateCommand, TakesCostsAndSizesFromAProfile) {
    const TempFolder folder;
    write_profile(folder / "profile.json", small_profile());
    const Outcome outcome = vocabpipe_in(
        folder,
        "simulate 1f1b,vocab-mode=one_barrier --microbatches 6 --costs profile.json --json");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const Json json = Json::parse(outcome.output);
    EXPECT_EQ(json.at("time_unit"), "ns");
    EXPECT_EQ(json.at("ranks"), 2);
    EXPECT_EQ(json.at("title"), "1f1b one_barrier, 2 ranks, 6 microbatches");
    EXPECT_GE(json.at("by_rank").at(0).at("busy"), 6 * 5'000'000);
    EXPECT_EQ(json.at("by_rank").at(0).at("bytes_at_peak").at("optimizer"), 2 << 20);
}

TEST(SimulateCommand, OfAProfileWithTensorRanksHasAllRanksOfItsMesh) {
    const TempFolder folder;
    Profile profile = small_profile();
    write_profile(folder / "alone.json", profile);
    profile.sizes.tensor = 2;
    write_profile(folder / "profile.json", profile);
    const auto simulated = [&](const std::string& file) {
        return Json::parse(
            vocabpipe_in(folder,
                         "simulate 1f1b,vocab-mode=one_barrier --microbatches 6 --json "
                         "--trace trace.json --costs " +
                             file)
                .output);
    };
    const Json alone = simulated("alone.json");
    const Json run = simulated("profile.json");
    EXPECT_EQ(run.at("ranks"), 4);
    EXPECT_EQ(run.at("by_rank").size(), 4U);
    EXPECT_EQ(run.at("by_rank").at(1).at("busy"), run.at("by_rank").at(0).at("busy"));
    EXPECT_EQ(run.at("by_rank").at(2).at("bytes_at_peak").at("optimizer"), 2 << 20);
    EXPECT_NEAR(run.at("step").get<double>(), alone.at("step").get<double>(),
                0.02 * alone.at("step").get<double>())
        << "the costs of passes are those of a tensor rank";
    EXPECT_THAT(testing::read_file(folder / "trace.json"),
                HasSubstr("rank 3 (pipeline rank 1, tensor rank 1)"));
    const Outcome planned = vocabpipe_in(
        folder, "plan --gpus 2 --memory-gib 80 --global-batch-size 8 --profile profile.json");
    EXPECT_EQ(planned.exit_code, 2);
    EXPECT_THAT(planned.error,
                HasSubstr("--profile: was measured with --tensor-model-parallel-size 2"));
}

TEST(SimulateCommand, ScalesAProfileToOtherRanks) {
    const TempFolder folder;
    write_profile(folder / "profile.json", small_profile());
    const Outcome outcome = vocabpipe_in(folder,
                                         "simulate 1f1b,vocab-mode=two_barriers --pp 4 "
                                         "--num-layers 8 --microbatches 6 --costs profile.json "
                                         "--json");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const Json json = Json::parse(outcome.output);
    EXPECT_THAT(json.at("title").get<std::string>(),
                HasSubstr("costs scaled from a profile of 2 ranks"));
    // Two layers of 3 ms, a quarter of the output layer's 2 ms, E and G as measured.
    const int64_t busy = json.at("by_rank").at(0).at("busy");
    EXPECT_NEAR(static_cast<double>(busy), 6 * (6e6 + 0.5e6 + 1e6), 1e4);
    EXPECT_EQ(json.at("by_rank").at(0).at("bytes_at_peak").at("optimizer"), 0);
}

// The step of 1F1B with F 10, R 10, B 20: the last rank is busy from 30 to 350, and the others have
// recomputed the last microbatch when its gradient comes.
TEST(SimulateCommand, RecomputesBeforeEveryBackward) {
    const std::string step = "1f1b --pp 4 --microbatches 8 --costs 10,20,0";
    const Json plain = simulated(step);
    const Json full = simulated(step + " --recompute-granularity full");
    const Json selective = simulated(step + " --recompute-granularity selective");
    EXPECT_EQ(full.at("title"), "1f1b none, 4 ranks, 8 microbatches, full recomputation");
    EXPECT_EQ(full.at("makespan"), 30 + 8 * 40 + 60);
    EXPECT_EQ(full.at("by_rank").at(0).at("busy"), 8 * 40);
    EXPECT_GT(selective.at("makespan"), plain.at("makespan"));
    EXPECT_LT(selective.at("makespan"), full.at("makespan"));
    const auto activations = [](const Json& json, const char* use) {
        return json.at("by_rank").at(0).at("largest_bytes").at(use).get<int64_t>();
    };
    // Per layer and token 16 h elements of 2 bytes, and 6 h of them by selective recomputation.
    const int64_t row = int64_t{2048} * 4096 * 2;
    EXPECT_EQ(activations(plain, "activations") - activations(full, "activations"), 3 * 16 * row);
    EXPECT_EQ(activations(plain, "activations") - activations(selective, "activations"),
              3 * 6 * row);
}

TEST(SimulateCommand, TakesRecomputationFromAFile) {
    const TempFolder folder;
    testing::write_file(folder / "r.csv", "0F0,0F1,0B0,0R1,0B1\n");
    testing::write_file(folder / "plain.csv", "0F0,0F1,0B0,0B1\n");
    const Outcome own = vocabpipe_in(folder, "simulate r.csv --costs 10,20,0 --json");
    ASSERT_EQ(own.exit_code, 0) << own.error;
    EXPECT_EQ(Json::parse(own.output).at("makespan"), 70);
    const Outcome added = vocabpipe_in(
        folder, "simulate plain.csv --costs 10,20,0 --recompute-granularity full --json");
    EXPECT_EQ(Json::parse(added.output).at("makespan"), 80);
    const Outcome shown =
        vocabpipe_in(folder, "schedule show plain.csv --recompute-granularity full --format csv");
    EXPECT_THAT(shown.output, HasSubstr("0R0,0B0,G0,0R1,0B1,G1"));
    EXPECT_THAT(vocabpipe_in(folder, "simulate r.csv --recompute-granularity none").error,
                HasSubstr("r.csv has recomputation passes (R); use selective or full"));
    EXPECT_THAT(vocabpipe_in(folder, "simulate r.csv --recompute-granularity ful").error,
                HasSubstr("did you mean full?"));
}

TEST(SimulateCommand, DividesWhatAProfiledModelSaves) {
    const TempFolder folder;
    Profile profile = small_profile();
    profile.costs.local_bytes_per_ns = 1;
    for (StageBytes& stage : profile.sizes.stages) stage.saved = 64 << 20;
    write_profile(folder / "profile.json", profile);
    const auto rank = [&](const std::string& flags) {
        const Outcome outcome = vocabpipe_in(folder,
                                             "simulate 1f1b,vocab-mode=one_barrier --microbatches "
                                             "6 --costs profile.json --json" +
                                                 flags);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        return Json::parse(outcome.output).at("by_rank").at(0);
    };
    const auto peak = [&](const std::string& flags) {
        return rank(flags).at("largest_bytes").at("activations").get<int64_t>();
    };
    // Three microbatches in flight: all of one are alive at a time.
    EXPECT_EQ(peak("") - peak(" --recompute-granularity full"), 2 * (64 << 20));
    // What was not measured takes what its 4 h + 2 f elements of 4 bytes take.
    const auto busy = [&](const std::string& flags) {
        return rank(flags).at("busy").get<int64_t>();
    };
    EXPECT_EQ(busy(" --recompute-granularity selective") - busy(""), 6 * 16 * 96 * 4);
    EXPECT_EQ(busy(" --recompute-granularity full") - busy(""), 6 * 1'000'000);
}

TEST(TimelineCommand, StacksSchedulesAndTraces) {
    const TempFolder folder;
    ASSERT_EQ(
        vocabpipe_in(folder, "simulate gpipe --pp 2 --microbatches 3 --trace t.json").exit_code, 0);
    const Outcome outcome = vocabpipe_in(
        folder,
        "timeline 1f1b 1f1b,vocab-mode=one_barrier,costs=10,20,5 t.json --pp 2 --microbatches 4 "
        "--html out.html --title 'A and B'");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(testing::unwrapped(outcome.output),
                HasSubstr(" % 1f1b none, 2 ranks, 4 microbatches "));
    EXPECT_THAT(testing::unwrapped(outcome.output),
                HasSubstr(" % 1f1b one_barrier, 2 ranks, 4 microbatches "));
    EXPECT_THAT(testing::unwrapped(outcome.output),
                HasSubstr(" % gpipe none, 2 ranks, 3 microbatches "));
    // Beside a measured run figures are nanoseconds.
    EXPECT_THAT(outcome.output, HasSubstr(" ns "));
    const std::string page = testing::read_file(folder / "out.html");
    EXPECT_THAT(page, HasSubstr("<title>A and B</title>"));
    EXPECT_EQ(folder.names(), (std::set<std::string>{"out.html", "t.json"}));
}

TEST(TimelineCommand, SaysCostsAndTitleInPageAndPicture) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(folder,
                                         "timeline 1f1b,costs=12,24,4 1f1b,costs=10,20 --pp 2 "
                                         "--microbatches 4 --latency 2 --html out.html "
                                         "--svg out.svg --title 'A and B'");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    const std::string page = testing::read_file(folder / "out.html");
    EXPECT_THAT(page, HasSubstr(R"("costs":"F 12, B 24, V 4, latency 2")"));
    EXPECT_THAT(page, HasSubstr(R"("costs":"F 10, B 20, V 3.33, latency 2")"));
    const std::string picture = testing::read_file(folder / "out.svg");
    EXPECT_THAT(picture, HasSubstr("<title>A and B</title>"));
    EXPECT_THAT(picture, HasSubstr(">costs in units: F 12, B 24, V 4, latency 2</text>"));
}

TEST(TimelineCommand, DoesNotReplaceItsInput) {
    const TempFolder folder;
    ASSERT_EQ(
        vocabpipe_in(folder, "timeline 1f1b --pp 2 --microbatches 4 --trace a.json").exit_code, 0);
    const std::string before = testing::read_file(folder / "a.json");
    for (const char* flag : {"--html", "--svg", "--trace"}) {
        const Outcome outcome =
            vocabpipe_in(folder, "timeline a.json " + std::string(flag) + " ./a.json");
        EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
        EXPECT_THAT(outcome.error,
                    HasSubstr(std::string(flag) + " ./a.json: is also an input of this"));
        EXPECT_EQ(testing::read_file(folder / "a.json"), before);
    }
}

TEST(CompareCommand, RefusesWhatIsNoReportAndShowsLossesThatAreNotFinite) {
    const TempFolder folder;
    const auto compare = [&](const std::string& loss, const std::string& mode,
                             const std::string& ranks = "[]") {
        testing::write_file(folder / "r.json",
                            R"({"schedule":"1f1b\u001b[31m","vocab_mode":)" + mode +
                                R"(,"tokens_per_second":1,"first_loss":5.5,"last_loss":)" + loss +
                                R"(,"bubble":0.1,"simulated_tokens_per_second":1,)"
                                R"("simulated_bubble":0.1,"ranks":)" +
                                ranks + "}");
        return vocabpipe_in(folder, "compare r.json");
    };
    const Outcome diverged = compare("null", R"("none")");
    EXPECT_EQ(diverged.exit_code, 0) << diverged.error;
    EXPECT_THAT(diverged.output, HasSubstr("nan"));
    EXPECT_THAT(diverged.output, Not(HasSubstr("\x1b")));
    const Outcome wrong = compare("5.0", "3");
    EXPECT_EQ(wrong.exit_code, 3);
    EXPECT_THAT(wrong.error,
                HasSubstr("r.json: is not a report of train_gpt (no valid vocab mode)"));
    EXPECT_THAT(compare("5.0", R"("none")", "{}").error, HasSubstr("\"ranks\" is not a list"));
    const Outcome none = vocabpipe_in(folder, "compare .");
    EXPECT_EQ(none.exit_code, 3);
    EXPECT_THAT(none.error, HasSubstr("is a folder"));
}

TEST(TimelineCommand, WritesAChromeTraceOfOneSchedule) {
    const TempFolder folder;
    EXPECT_EQ(
        vocabpipe_in(folder, "timeline zb-v --pp 2 --microbatches 4 --trace t.json").exit_code, 0);
    EXPECT_EQ(read_chrome_trace(folder / "t.json").ranks, 2);
    EXPECT_THAT(refused("timeline 1f1b gpipe --pp 2 --microbatches 4 --trace t.json", 2),
                HasSubstr("--trace t.json"));
}

TEST(ProfileCommand, EndsAfterTheStepOnCtrlCAndSigterm) {
    for (const auto& [signal, code] : {std::pair("INT", 130), std::pair("TERM", 143)}) {
        const TempFolder folder;
        const Outcome ended = testing::run_shell(
            "cd '" + (folder / "") + "' && timeout --preserve-status -k 20 -s " + signal +
            " 2 '" VOCABPIPE_PROGRAM
            "' profile --transport threads --ranks 2 --steps 100000 --num-layers 2 "
            "--hidden-size 16 --num-attention-heads 2 --seq-length 16 --vocab-size 257 "
            "--global-batch-size 2 --output out.json");
        EXPECT_EQ(ended.exit_code, code);
        EXPECT_THAT(
            ended.error,
            // After two seconds a line tells how far it is.
            MatchesRegex("(steps with .* left\n)?vocabpipe: error: SIG" + std::string(signal) +
                         ": ended after step [0-9]+; no profile was written\n"));
        EXPECT_TRUE(folder.names().empty());
    }
}

TEST(ExplainCommand, PrintsTheChainAndTheCriticalPath) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(
        folder, "explain 1f1b --pp 3 --microbatches 4 --costs 10,20,0 --latency 2 --rank 2 --at 5");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output, HasSubstr("rank 2 is idle"));
    EXPECT_THAT(outcome.output, HasSubstr("1F0"));
    EXPECT_THAT(outcome.output, HasSubstr("send to rank 2"));
    EXPECT_THAT(outcome.output, HasSubstr("critical path"));
    const Outcome path = vocabpipe_in(folder, "explain 1f1b --pp 3 --microbatches 4");
    EXPECT_EQ(path.exit_code, 0);
    EXPECT_THAT(path.output, AllOf(HasSubstr("critical path"), Not(HasSubstr("is idle"))));
}

TEST(ExplainCommand, TellsWhereTheTimeOfATraceWent) {
    const TempFolder folder;
    ASSERT_EQ(vocabpipe_in(folder,
                           "simulate 1f1b --pp 3 --microbatches 4 --costs 10,20,0 "
                           "--latency 2 --trace t.json")
                  .exit_code,
              0);
    const Outcome outcome = vocabpipe_in(folder, "explain t.json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr(" on 3 ranks, which compute "), HasSubstr("\nrank 2: B "),
                      HasSubstr("idle: "), HasSubstr("forward messages"),
                      HasSubstr("critical path, which everything else waited for: "),
                      Not(HasSubstr("CPU time"))));
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    EXPECT_THAT(
        vocabpipe_in(folder, "explain t.json --rank 2 --at 5").output,
        AllOf(HasSubstr("rank 2 is idle before 2F0"), HasSubstr("after "), HasSubstr("of rank 1")));
    EXPECT_THAT(vocabpipe_in(folder, "explain t.json --rank 0 --at 5").output,
                HasSubstr("rank 0 runs 0F0, from 0 ns to "));
    EXPECT_EQ(vocabpipe_in(folder, "explain t.json --rank 3 --at 5").exit_code, 2);
    EXPECT_THAT(vocabpipe_in(folder, "explain t.json --pp 3").error,
                HasSubstr("--pp: is for schedules that are simulated; t.json is a trace"));
}

TEST(SimulationCommands, TakeFilesWhoseNamesAreNoUtf8) {
    const TempFolder folder;
    testing::write_file(folder / "s\xff.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    const std::string file = "'s\xff.csv' ";
    for (const std::string& command :
         {"simulate " + file + "--json", "simulate " + file + "--html a.html --trace a.json",
          "timeline " + file + "--html b.html --svg b.svg", "explain " + file}) {
        const Outcome outcome = vocabpipe_in(folder, command);
        EXPECT_EQ(outcome.exit_code, 0) << command << outcome.error;
    }
    EXPECT_EQ(read_chrome_trace(folder / "a.json").ranks, 2);
}

TEST(SimulationCommands, RefuseWhatCannotBe) {
    const std::string size = " --pp 4 --microbatches 8";
    EXPECT_THAT(refused("simulate f1b" + size, 2), HasSubstr("did you mean 1f1b?"));
    EXPECT_THAT(refused("simulate 1f1b --microbatches 8", 2), HasSubstr("--pp"));
    EXPECT_THAT(refused("simulate 1f1b --pp 4", 2), HasSubstr("--microbatches"));
    EXPECT_THAT(refused("simulate 1f1b --pp -4 --microbatches 8", 2), HasSubstr("--pp"));
    EXPECT_THAT(refused("simulate 1f1b --chunks 3" + size, 2), HasSubstr("--chunks 3"));
    EXPECT_THAT(refused("simulate 1f1b --vocab-mode many" + size, 2), HasSubstr("many"));
    for (const char* costs :
         {"1,x", "1", "-1,2", "0,1", "1,2,3,4", "1,2,-3", ",", "1,2000000000000"}) {
        EXPECT_THAT(refused(std::string("simulate 1f1b --costs=") + costs + size, 2),
                    HasSubstr(std::string("--costs ") + costs));
    }
    EXPECT_THAT(refused("simulate 1f1b --costs none.json" + size, 3), HasSubstr("none.json"));
    EXPECT_THAT(refused("simulate 1f1b,foo=3" + size, 2), HasSubstr("--foo: unknown flag"));
    EXPECT_THAT(refused("simulate 1f1b,pp=x" + size, 2), HasSubstr("pp"));
    EXPECT_THAT(refused("timeline 1f1b" + size, 2), HasSubstr("--html FILE"));
    EXPECT_THAT(refused("timeline 1f1b --html x.html --critical-path" + size, 2),
                HasSubstr("--critical-path: is of the picture of --svg"));
    EXPECT_THAT(refused("timeline none.json --html x.html", 3), HasSubstr("none.json"));
    EXPECT_THAT(refused("explain 1f1b --rank 4 --at 1" + size, 2), HasSubstr("rank 4"));
    EXPECT_THAT(refused("explain 1f1b --rank 3 --at 99999" + size, 2), HasSubstr("99999"));
    EXPECT_THAT(refused("explain 1f1b --rank 3 --at 5x" + size, 2), HasSubstr("--at 5x"));
    EXPECT_THAT(refused("explain 1f1b --rank 3" + size, 2), HasSubstr("--at T"));
    EXPECT_THAT(refused("explain 1f1b --at 3" + size, 2), HasSubstr("--rank R"));
    EXPECT_THAT(refused("simulate 1f1b --html /nonexistent/a.html" + size, 1),
                HasSubstr("/nonexistent/a.html"));
    EXPECT_THAT(refused("simulate 1f1b --trace /nonexistent/a.json" + size, 1),
                HasSubstr("/nonexistent/a.json"));
}

TEST(SimulationCommands, SayWhatAFileIsThatIsNoSchedule) {
    const TempFolder folder;
    testing::write_file(folder / "rep.json",
                        R"({"last_loss": 1, "measured_step_seconds": 1, "ranks": []})");
    testing::write_file(folder / "trace.json",
                        R"({"displayTimeUnit":"ns","otherData":{"title":"a"},"traceEvents":[]})");
    testing::write_file(folder / "profile.json", R"({"vocabpipe_profile": 1})");
    testing::write_file(folder / "other.json", R"({"losses": [1]})");
    testing::write_file(folder / "plain", "rank,op");
    for (const auto& [arguments, code, message] :
         {std::tuple{"timeline rep.json --html x.html", 3,
                     "rep.json: is a train_gpt report, not a schedule; vocabpipe compare reads it, "
                     "and vocabpipe timeline draws the traces of train_gpt --trace-dir"},
          {"simulate trace.json", 3,
           "trace.json: is a VocabPipe trace, not a schedule; vocabpipe timeline and explain read "
           "it"},
          {"schedule show profile.json", 3,
           "profile.json: is a profile, not a schedule; --costs reads it"},
          {"schedule check other.json", 3, "other.json: is not a schedule (no \"format\""},
          {"schedule show nope", 2,
           "SCHEDULE nope: is neither the name of a schedule (see vocabpipe schedule list) nor a "
           ".csv or .json file"},
          {"schedule show 1f1d", 2, "did you mean 1f1b?"},
          {"schedule show plain", 2,
           "SCHEDULE plain: is a file, but its name does not end in .csv"}}) {
        const Outcome outcome = vocabpipe_in(folder, arguments);
        EXPECT_EQ(outcome.exit_code, code) << arguments;
        EXPECT_THAT(outcome.error, HasSubstr(message));
    }
}

TEST(SimulateCommand, SharesTheCoresThatAProfileSays) {
    const TempFolder folder;
    Profile profile = small_profile();
    profile.costs = TableCosts::uniform(2, 2, 1000, 2000, 0);
    const auto step = [&](int cores, const std::string& flags) {
        profile.cores = cores;
        write_profile(folder / "p.json", profile);
        const Outcome outcome =
            vocabpipe_in(folder, "simulate 1f1b --microbatches 4 --costs p.json --json" + flags);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        return Json::parse(outcome.output)["step"].get<int64_t>();
    };
    EXPECT_GE(step(1, ""), 2 * 4 * 3000) << "one after the other";
    EXPECT_LT(step(2, ""), 2 * 4 * 3000);
    EXPECT_EQ(step(0, ""), step(2, ""));
    EXPECT_EQ(step(1, " --cores 2"), step(2, "")) << "what is given counts";
}

TEST(SimulateCommand, KnowsRanksThatShareCores) {
    // On one core all passes together take as long as their costs: 4 ranks x 8 x (10 + 20).
    const std::string flags = "1f1b --pp 4 --microbatches 8 --costs 10,20,0";
    EXPECT_EQ(simulated(flags + " --cores 1")["makespan"], 4 * 8 * 30);
    EXPECT_EQ(simulated(flags + " --cores 4")["makespan"], simulated(flags)["makespan"]);
    EXPECT_THAT(refused("simulate " + flags + " --cores 0", 2), HasSubstr("--cores"));
    EXPECT_THAT(refused("schedule show " + flags + " --cores 1", 2),
                HasSubstr("use vocabpipe simulate"));
}

TEST(PassTimesFile, GivesEveryPassItsOwnTime) {
    const TempFolder folder;
    // By hand: the last rank is busy all the time but for its first F's arrival and the last B.
    testing::write_file(folder / "t.csv",
                        "# a slow last stage\nrank,op,stage,ns\r\n0,F,0,1000\n0,B,0,2000\n"
                        "1,F,1,3000\n1,I,1,1500\n1,W,1,1000\n1,S,-,400\n");
    const Outcome outcome =
        vocabpipe_in(folder, "simulate 1f1b --pp 2 --microbatches 4 --pass-times t.csv --json");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const Json json = Json::parse(outcome.output);
    EXPECT_EQ(json["time_unit"], "ns");
    EXPECT_EQ(json["makespan"], 1000 + 4 * (3000 + 400 + 2500) + 2000);
    EXPECT_EQ(json["by_rank"][0]["busy"], 4 * 3000);
    EXPECT_EQ(json["by_rank"][1]["busy"], 4 * 5900);
    const Outcome shown =
        vocabpipe_in(folder, "schedule show 1f1b --pp 2 --microbatches 4 --pass-times t.csv");
    EXPECT_THAT(shown.output, HasSubstr("costs: pass times of t.csv"));
    EXPECT_THAT(shown.output, HasSubstr("makespan 26.60 us"));
}

TEST(PassTimesFile, SaysWhatIsWrongWithIt) {
    const auto error_of = [](const std::string& rows, const std::string& schedule) {
        const TempFolder folder;
        testing::write_file(folder / "t.csv", rows);
        const Outcome outcome = vocabpipe_in(
            folder, "simulate " + schedule + " --pp 2 --microbatches 4 --pass-times t.csv");
        EXPECT_EQ(outcome.exit_code, 3) << rows;
        return outcome.error;
    };
    const std::string head = "rank,op,stage,ns\n";
    EXPECT_THAT(error_of("", "1f1b"), HasSubstr("must begin with the line rank,op,stage,ns"));
    EXPECT_THAT(error_of("0,F,0,1\n", "1f1b"), HasSubstr("t.csv:1: must begin with"));
    EXPECT_THAT(error_of(head + "0,F,0\n", "1f1b"), HasSubstr("t.csv:2: has 3 cells; expected 4"));
    EXPECT_THAT(error_of(head + "2,F,0,1\n", "1f1b"),
                HasSubstr("rank \"2\": must be an integer from 0 to 1"));
    EXPECT_THAT(error_of(head + "0,X,0,1\n", "1f1b"), HasSubstr("op \"X\": must be one of F, B"));
    EXPECT_THAT(error_of(head + "0,F,1,1\n", "1f1b"),
                HasSubstr("stage 1: is on rank 1, not on rank 0"));
    EXPECT_THAT(error_of(head + "0,S,0,1\n", "1f1b"), HasSubstr("S has no stage; write -"));
    for (const char* ns : {"0", "-1", "1e3", "99999999999999999999", ""}) {
        EXPECT_THAT(error_of(head + "0,F,0," + ns + "\n", "1f1b"),
                    HasSubstr(std::string("ns \"") + ns + "\": must be an integer from 1"));
    }
    EXPECT_THAT(error_of(head + "0,F,0,1\n0,F,0,2\n", "1f1b"),
                HasSubstr("t.csv:3: F already has a row for this rank and stage"));
    EXPECT_THAT(error_of(head + "0,F,0,1\n0,B,0,2\n1,F,1,1\n", "1f1b"),
                HasSubstr("stage 1 of rank 1 has no row for B, or for I and W"));
    EXPECT_THAT(error_of(head + "0,I,0,1\n", "zb-h1"),
                HasSubstr("stage 0 has only one of I and W; add the other, or use B alone"));
    EXPECT_THAT(refused("simulate 1f1b --pp 2 --microbatches 4 --pass-times none.csv", 3),
                HasSubstr("none.csv"));
}

}  // namespace
}  // namespace vocabpipe
