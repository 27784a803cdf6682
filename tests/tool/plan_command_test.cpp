// SPDX-License-Identifier: Apache-2.0
// vocabpipe plan, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tests/schedule/small_profile.hpp"
#include "tests/tool/run_program.hpp"
#include "vocabpipe/profile.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::TempFolder;

constexpr const char* kGemma =
    "plan --model gemma-2-9b --gpus 16 --gpu h100 --seq-length 4096 --global-batch-size 64 "
    "--schedules 1f1b ";

Outcome vocabpipe_in(const TempFolder& in, const std::string& arguments) {
    return testing::run_shell("cd '" + (in / "") + "' && '" VOCABPIPE_PROGRAM "' " + arguments);
}

TEST(PlanCommand, PlansGemmaOnSixteenGpus) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(folder, kGemma);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    // Beside progress, which a busy machine shows.
    EXPECT_THAT(outcome.error, Not(HasSubstr("vocabpipe: ")));
    for (const char* part :
         {"model gemma-2-9b: 9.24 B parameters, 42 layers, hidden 3584, V 256000, tied",
          "machine 16 x H100 80 GB SXM, 8 per node, 79.65 GiB each; MFU of 989.4 TFLOP/s (dense)",
          "64 microbatches of 1; pipeline parallel over all GPUs", "1f1b one_barrier", "10x3 6x2",
          "9 of 9 rows that fit shown."}) {
        EXPECT_THAT(testing::unwrapped(outcome.output), HasSubstr(part));
    }
}

TEST(PlanCommand, ShowsWhatLengthsOfDocumentsMean) {
    const TempFolder folder;
    std::ofstream(folder / "lengths.csv") << "length,count\n300,500\n1000,100\n4096,20\n";
    const std::string with = std::string(kGemma) +
                             "--vocab-modes none,one_barrier --evaluation pass_times "
                             "--length-distribution lengths.csv";
    const Outcome outcome = vocabpipe_in(folder, with);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(testing::unwrapped(outcome.output),
                HasSubstr("Documents of the given lengths, in tokens with a label per second"));
    const auto rows =
        nlohmann::json::parse(vocabpipe_in(folder, with + " --json").output)["lengths"];
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_GT(rows[0]["by_length_tokens_per_second"], rows[0]["padded_tokens_per_second"]);
    std::ofstream(folder / "lengths.csv") << "length,count\n300,-1\n";
    const Outcome refused = vocabpipe_in(folder, with);
    EXPECT_EQ(refused.exit_code, 3);
    EXPECT_THAT(refused.error, HasSubstr("lengths.csv:2: count \"-1\": must be an integer"));
}

/// Compares rows of a plan of four ranks from a profile with simulations of it, one row of each
/// schedule and mode. Returns those compared, "pairs" appended where they have them.
std::set<std::string> compare_with_simulations(const std::string& flags) {
    const TempFolder folder;
    Profile profile = testing::small_profile();
    profile.model.layers = 16;
    profile.model.layers_per_stage = {8, 8};
    write_profile(folder / "p.json", profile);
    const Outcome plan = vocabpipe_in(
        folder,
        "plan --profile p.json --gpus 4 --global-batch-size 8 --memory-gib 9 --evaluation "
        "simulation --json" +
            flags);
    EXPECT_EQ(plan.exit_code, 0) << plan.error;
    std::set<std::string> compared;
    if (plan.exit_code != 0) return compared;
    const auto rows = nlohmann::json::parse(plan.output)["rows"];
    for (const auto& row : rows) {
        const std::string name = row["schedule"], mode = row["vocab_mode"],
                          recompute = row["recompute"];
        // One row of each kind; the front is the split that a simulation takes by itself.
        const bool pairs = row["overlap_pairs"];
        if (row["split"] == "back" ||
            !compared.insert(name + mode + (pairs ? " pairs" : "")).second)
            continue;
        std::string arguments = "simulate " + name + " --costs p.json --pp 4 --tile-pieces 1" +
                                " --json --vocab-mode " + mode + " --recompute-granularity " +
                                recompute + " --microbatches " + row["microbatches"].dump();
        if (row["memory_limit"] != 0) arguments += " --memory-limit " + row["memory_limit"].dump();
        arguments += " --chunks " + row["chunks"].dump();
        if (pairs) arguments += " --overlap-pairs";
        const Outcome outcome = vocabpipe_in(folder, arguments);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        if (outcome.exit_code != 0) continue;
        EXPECT_EQ(nlohmann::json::parse(outcome.output)["step"], row["step_ns"]) << arguments;
    }
    return compared;
}

// One rule scales a profile (src/step/costs/): every row is the simulation of the same profile.
TEST(PlanCommand, PredictsFromAProfileWhatSimulateDoes) {
    EXPECT_GT(compare_with_simulations(" --chunks 1,2 --recompute-granularity none,selective,full")
                  .size(),
              60U);
}

TEST(PlanCommand, PredictsPairsFromAProfileAsSimulateDoes) {
    const std::set<std::string> compared = compare_with_simulations(
        " --overlap-pairs --schedules 1f1b,interleaved,dualpipe-v --vocab-modes none,one_barrier "
        "--chunks 1,2 --recompute-granularity none,selective");
    EXPECT_EQ(compared, (std::set<std::string>{"1f1bnone pairs", "1f1bone_barrier pairs",
                                               "dualpipe-vnone pairs", "dualpipe-vone_barrier",
                                               "interleavednone pairs", "interleavedone_barrier"}));
}

TEST(PlanCommand, TrainsRowsWithPairs) {
    const TempFolder folder;
    const Outcome outcome =
        vocabpipe_in(folder,
                     "plan --model mixtral-8x7b --gpus 8 --gpu h200 --seq-length 512 "
                     "--global-batch-size 8 --schedules 1f1b --vocab-modes none --overlap-pairs "
                     "--exchange-percent 30 --expert-model-parallel-size 2 --data-parallel-size 2 "
                     "--evaluation pass_times --threads 1 --write-config run.toml");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(testing::unwrapped(outcome.output), HasSubstr("pairs hide exchanges of 30 %"));
    EXPECT_THAT(outcome.output, HasSubstr(" 1f1b pairs "));
    EXPECT_THAT(testing::read_file(folder / "run.toml"), HasSubstr("\noverlap-pairs = true\n"));
}

TEST(PlanCommand, CountsExperts) {
    const TempFolder folder;
    testing::write_file(folder / "mixture.json",
                        R"({"model_type": "mixtral", "vocab_size": 64, "hidden_size": 16,
                        "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
                        "num_key_value_heads": 1})");
    const std::string rest =
        " --gpus 2 --gpu h100 --seq-length 64 --global-batch-size 8 --schedules 1f1b --vocab-modes "
        "one_barrier";
    const Outcome text = vocabpipe_in(folder, "plan --model qwen3-30b-a3b" + rest);
    EXPECT_EQ(text.exit_code, 0) << text.error;
    EXPECT_THAT(testing::unwrapped(text.output),
                HasSubstr("128 experts in 48 layers, 8 per token, 3.35 B parameters active"));
    const Outcome json = vocabpipe_in(folder, "plan --model mixture.json --json" + rest);
    ASSERT_EQ(json.exit_code, 0) << json.error;
    const auto model = nlohmann::json::parse(json.output)["model"];
    EXPECT_EQ(model["num_experts"], 8);
    EXPECT_EQ(model["experts_per_token"], 2);
    EXPECT_EQ(model["layers_with_experts"], 4);
    EXPECT_EQ(model["parameters"].get<int64_t>() - model["active_parameters"].get<int64_t>(),
              4 * 6 * 3 * 16 * 32);
}

TEST(PlanCommand, TakesListsOfEveryAxis) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(
        folder,
        "plan --model mixtral-8x7b --gpus 16 --gpu h100 --seq-length 512 --global-batch-size 32 "
        "--schedules 1f1b --vocab-modes one_barrier --tensor-model-parallel-size 1,2 "
        "--data-parallel-size 2,4 --expert-model-parallel-size 1,4 --micro-batch-size 1,2 "
        "--recompute-granularity none,selective --moe-imbalance 1.2 --json");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const auto plan = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(plan["rows"].size(), 4U * (4 + 3)) << "e = 4 does not divide t d = 2";
    EXPECT_EQ(plan["moe_imbalance"], 1.2);
    for (const auto& row : plan["rows"]) {
        EXPECT_EQ(row["pipeline"].get<int>() * row["tensor"].get<int>() * row["data"].get<int>(),
                  16);
        EXPECT_EQ(row["ranks"].size(), row["pipeline"].get<size_t>());
    }
}

TEST(PlanCommand, KeepsTo80ColumnsWithEveryAxis) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(
        folder,
        "plan --model mixtral-8x7b --gpus 16 --gpu h100 --seq-length 512 --global-batch-size 32 "
        "--schedules group-interleaved --vocab-modes redistributed,two_barriers "
        "--tensor-model-parallel-size 1,2 --data-parallel-size 4 --expert-model-parallel-size 1,4 "
        "--micro-batch-size 1 --recompute-granularity none,selective");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    EXPECT_THAT(outcome.output, ::testing::ContainsRegex("\n +p +t +d +e +b +m +recompute\n"));
    EXPECT_THAT(outcome.output,
                ::testing::ContainsRegex("schedule +vocab mode +v +step ms +tokens/s"));
}

TEST(PlanCommand, SearchesAllSizes) {
    const TempFolder folder;
    const std::string command =
        "plan --model llama-3.2-1b --gpus 8 --gpu h100 --seq-length 512 --global-batch-size 16 "
        "--all-sizes --data-parallel-size 2,4 --evaluation search --top 12";
    const Outcome outcome = vocabpipe_in(folder, command + " --json");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const auto plan = nlohmann::json::parse(outcome.output);
    const auto& search = plan["search"];
    EXPECT_EQ(search["complete"], true);
    EXPECT_EQ(search["simulated"], 12);
    EXPECT_EQ(plan["rows"].size(), search["timed"]);
    EXPECT_LT(search["timed"], search["candidates"]);
    EXPECT_EQ(plan["rows"][0]["evaluation"], "simulation");
    for (const auto& row : plan["rows"]) {
        EXPECT_TRUE(row["data"] == 2 || row["data"] == 4) << "a list that is given stays";
    }
    EXPECT_THAT(vocabpipe_in(folder, command).output, HasSubstr("and the best 12 simulated"));
}

TEST(PlanCommand, PostsReceivesAsAsked) {
    const TempFolder folder;
    const auto step = [&](const std::string& ahead) {
        const Outcome outcome =
            vocabpipe_in(folder, std::string(kGemma) +
                                     "--schedules zb-v --vocab-modes one_barrier --json "
                                     "--evaluation simulation --receive-ahead " +
                                     ahead);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        return nlohmann::json::parse(outcome.output)["rows"][0]["step_ns"].get<int64_t>();
    };
    EXPECT_LT(step("auto"), step("1"));
    const Outcome refused = vocabpipe_in(folder, std::string(kGemma) + "--receive-ahead 0");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.error, HasSubstr("--receive-ahead 0: must be auto or an integer"));
}

TEST(PlanCommand, WritesJsonAndAPage) {
    const TempFolder folder;
    const Outcome outcome = vocabpipe_in(
        folder, std::string(kGemma) +
                    "--vocab-modes one_barrier,none --vocab-size 32000 --memory-gib 40 --top 1 "
                    "--micro-batch-size 2 --evaluation pass_times --json --html plan.html");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const auto plan = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(plan["model"]["vocab_size"], 32000);
    EXPECT_EQ(plan["memory_gib"], 40);
    EXPECT_EQ(plan["rows"][0]["microbatches"], 32);
    EXPECT_EQ(plan["evaluation"], "pass_times");
    EXPECT_EQ(plan["rows"].size(), 4U);
    EXPECT_THAT(testing::read_file(folder / "plan.html"), HasSubstr("<!doctype html>"));
}

TEST(PlanCommand, WritesTheFlagsOfARowForTrainGpt) {
    const TempFolder folder;
    const std::string plan =
        std::string(kGemma) + "--evaluation pass_times --vocab-modes one_barrier,two_barriers ";
    const Outcome best = vocabpipe_in(folder, plan + "--write-config run.toml");
    ASSERT_EQ(best.exit_code, 0) << best.error;
    EXPECT_THAT(best.output, HasSubstr("run.toml: mpirun -np 16 --hostfile HOSTS train_gpt "
                                       "--config run.toml --data-path PREFIX\n"));
    const std::string file = testing::read_file(folder / "run.toml");
    EXPECT_THAT(file, ::testing::StartsWith("# Flags of train_gpt, from vocabpipe plan\n"
                                            "# gemma-2-9b on 16 GPUs (H100 80 GB SXM):\n"));
    for (const char* line :
         {"model = \"gemma-2-9b\"\n", "pipeline-model-parallel-size = 16\n",
          "schedule = \"1f1b\"\n", "global-batch-size = 64\n", "dtype = \"bf16\"\n"}) {
        EXPECT_THAT(file, HasSubstr(line));
    }
    EXPECT_THAT(testing::unwrapped(best.output), HasSubstr("To train row 1: mpirun -np 16"));

    // Another row replaces the file; nothing else is replaced.
    const auto rows = nlohmann::json::parse(vocabpipe_in(folder, plan + "--json").output)["rows"];
    for (size_t row = 0; row < rows.size(); ++row) {
        const Outcome other = vocabpipe_in(folder, plan +
                                                       "--json --write-config run.toml "
                                                       "--show-command " +
                                                       std::to_string(row + 1));
        ASSERT_EQ(other.exit_code, 0) << other.error;
        EXPECT_THAT(testing::read_file(folder / "run.toml"),
                    HasSubstr("vocab-mode = " + rows[row]["vocab_mode"].dump()));
    }
    testing::write_file(folder / "mine.toml", "lr = 1\n");
    const Outcome refused = vocabpipe_in(folder, plan + "--write-config mine.toml");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.error, HasSubstr("--write-config mine.toml: already exists and is not a "
                                         "config file from vocabpipe plan"));
    EXPECT_EQ(testing::read_file(folder / "mine.toml"), "lr = 1\n");
}

TEST(PlanCommand, WritesNoFlagsWhereNothingFits) {
    const TempFolder folder;
    const std::string plan = std::string(kGemma) +
                             "--evaluation pass_times --vocab-modes one_barrier --memory-gib 20 "
                             "--write-config run.toml ";
    const Outcome none = vocabpipe_in(folder, plan);
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_THAT(
        none.error,
        HasSubstr("--write-config run.toml: no row fits; choose one with --show-command N"));
    EXPECT_FALSE(std::filesystem::exists(folder / "run.toml"));
    const Outcome chosen = vocabpipe_in(folder, plan + "--show-command 1");
    EXPECT_EQ(chosen.exit_code, 0) << chosen.error;
    EXPECT_THAT(testing::unwrapped(chosen.output), HasSubstr("row 1, which does not fit:"));
    EXPECT_TRUE(std::filesystem::exists(folder / "run.toml"));
}

TEST(PlanCommand, ReadsModelsAndDevicesFromFiles) {
    const TempFolder folder;
    std::filesystem::create_directory(folder / "mine");
    testing::write_file(folder / "mine/config.json",
                        R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256,
            "intermediate_size": 512, "num_attention_heads": 4, "vocab_size": 9000})");
    for (const std::string model : {"mine/config.json", "mine"}) {
        const Outcome outcome =
            vocabpipe_in(folder, "plan --model " + model +
                                     " --gpus 4 --gpu a100 --seq-length 256 --global-batch-size 8");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        const std::string name = model == "mine" ? model : "config";
        EXPECT_THAT(outcome.output,
                    HasSubstr("model    " + name + ": 0.01 B parameters, 4 layers"));
    }
}

TEST(PlanCommand, TakesALayoutInMegatronsNotation) {
    const TempFolder folder;
    const std::string command =
        "plan --model llama-3.2-1b --mtp-num-layers 1 --gpus 4 --gpu h100 --seq-length 2048 "
        "--global-batch-size 16 --schedules interleaved --chunks 2 --json ";
    const auto rows = [&](const std::string& layout) {
        const Outcome outcome =
            vocabpipe_in(folder, command + "--pipeline-model-parallel-layout '" + layout + "'");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        return nlohmann::json::parse(outcome.output)["rows"];
    };
    const auto whole = rows("Ettt|(tt|)*5tt,t|mL");
    ASSERT_EQ(whole.size(), 1U);
    EXPECT_EQ(whole[0]["vocab_mode"], "none");
    EXPECT_EQ(whole[0]["layers_per_stage"], (std::vector{3, 2, 2, 2, 2, 2, 3, 0}));
    // Where m is alone, the rank before the last one has more to do, and the last one less.
    EXPECT_NE(rows("Ettt|(tt|)*5ttt,m|L")[0]["step_ns"], whole[0]["step_ns"]);
    const auto sharded = rows("Vttt|(tt|)*5ttt|mV");
    ASSERT_EQ(sharded.size(), 3U);
    for (const auto& row : sharded) EXPECT_NE(row["vocab_mode"], "none");
}

TEST(PlanCommand, TakesPassTimesFromAFile) {
    const TempFolder folder;
    testing::write_file(folder / "t.csv",
                        "rank,op,stage,ns\n0,F,0,1000000\n0,B,0,2000000\n1,F,1,1000000\n"
                        "1,B,1,2000000\n1,S,-,0\n1,T,-,0\n");
    const std::string command =
        "plan --model gemma-2-9b --gpus 2 --gpu h100 --seq-length 512 --global-batch-size 8 "
        "--schedules 1f1b,zb-v --vocab-modes none --json";
    const Outcome outcome = vocabpipe_in(folder, command + " --pass-times t.csv");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const auto plan = nlohmann::json::parse(outcome.output);
    ASSERT_EQ(plan["rows"].size(), 1U) << "the file has a stage per rank";
    ASSERT_EQ(plan["skipped"].size(), 1U);
    EXPECT_EQ(plan["skipped"][0]["reason"], "the passes of t.csv are of 2 stages");
    // Twice the times, twice the passes; optimizer and messages stay.
    testing::write_file(folder / "t.csv",
                        "rank,op,stage,ns\n0,F,0,2000000\n0,B,0,4000000\n1,F,1,2000000\n"
                        "1,B,1,4000000\n1,S,-,0\n1,T,-,0\n");
    const Outcome slower = vocabpipe_in(folder, command + " --pass-times t.csv");
    ASSERT_EQ(slower.exit_code, 0) << slower.error;
    const auto other = nlohmann::json::parse(slower.output);
    const int64_t more =
        other["rows"][0]["step_ns"].get<int64_t>() - plan["rows"][0]["step_ns"].get<int64_t>();
    EXPECT_EQ(more, 9 * 3'000'000);
}

struct BadInput {
    std::string arguments;
    int exit_code;
    std::string message;
};

class BadPlanInput : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadPlanInput, IsRefusedInOneLine) {
    const TempFolder folder;
    testing::write_file(folder / "broken.json", "{\n \"model_type\": \"llama\",\n}");
    testing::write_file(folder / "short.json", R"({"model_type": "llama"})");
    testing::write_file(folder / "half.csv", "rank,op,stage,ns\n0,F,0,1000\n");
    testing::write_file(folder / "two.csv", "rank,op,stage,ns\n0,F,0,9\n1,F,0,9\n");
    testing::write_file(folder / "one.csv", "rank,op,stage,ns\n0,F,0,9\n0,B,0,9\n");
    const Outcome outcome = vocabpipe_in(folder, "plan " + GetParam().arguments);
    EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr(GetParam().message));
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
    EXPECT_EQ(outcome.output, "");
}

const std::string kRest = " --gpus 4 --gpu h100 --seq-length 512 --global-batch-size 8 ";

INSTANTIATE_TEST_SUITE_P(
    All, BadPlanInput,
    ::testing::Values(
        BadInput{"--model gemma-2-9b", 2, "--gpus is required"},
        BadInput{"--model gemma2-9b" + kRest, 2, "did you mean gemma-2-9b?"},
        BadInput{"--model missing.json" + kRest, 3, "missing.json: does not exist"},
        BadInput{"--model broken.json" + kRest, 3,
                 "broken.json: is not valid JSON: parse error at line 3"},
        BadInput{"--model short.json" + kRest, 3,
                 "short.json: \"num_hidden_layers\" is missing; add it"},
        BadInput{"--model gemma-2-9b --gpus 4 --gpu h10 --seq-length 512 --global-batch-size 8", 2,
                 "--gpu h10: is neither a file nor one of a100, h100, h200; did you mean h100?"},
        BadInput{"--model gemma-2-9b --gpus 0 --gpu h100 --seq-length 512 --global-batch-size 8", 2,
                 "--gpus 0: must be from 1 to"},
        BadInput{"--model gemma-2-9b --gpus -4 --gpu h100 --seq-length 512 --global-batch-size 8",
                 2, "--gpus -4: must be from 1 to"},
        BadInput{"--model gemma-2-9b --gpus 4 --gpu h100 --seq-length -1 --global-batch-size 8", 2,
                 "--seq-length -1: must be"},
        BadInput{"--model gemma-2-9b --micro-batch-size 3" + kRest, 2,
                 "--global-batch-size 8: must be a multiple of --micro-batch-size 3"},
        BadInput{"--gpus 4 --gpu h100 --seq-length 512 --global-batch-size 8", 2,
                 "--model: is required; set --model, --gpu and --seq-length, or --profile FILE"},
        BadInput{"--gpus 4 --profile p.json --gpu h100 --global-batch-size 8", 2, "excludes"},
        BadInput{"--gpus 4 --profile none.json --global-batch-size 8", 3, "none.json"},
        BadInput{"--gpus 4 --profile broken.json --global-batch-size 8", 3, "broken.json"},
        BadInput{"--model gemma-2-9b --vocab-size 0" + kRest, 2, "--vocab-size 0: must be"},
        BadInput{"--model gemma-2-9b --memory-gib -1" + kRest, 2, "--memory-gib -1"},
        BadInput{"--model gemma-2-9b --schedules 1f1c" + kRest, 2, "did you mean 1f1b?"},
        BadInput{"--model gemma-2-9b --vocab-modes one-barrier" + kRest, 2, "one-barrier"},
        BadInput{"--model gemma-2-9b --chunks 0" + kRest, 2, "--chunks 0: must be"},
        BadInput{"--model gemma-2-9b --chunks 02" + kRest, 2, "--chunks 02: is not a number"},
        BadInput{"--model gemma-2-9b --tensor-model-parallel-size 1,8" + kRest, 2,
                 "--tensor-model-parallel-size 8: must be from 1 to 4"},
        BadInput{"--model gemma-2-9b --tensor-model-parallel-size 3" + kRest, 2,
                 "--gpus 4: is not the product of any listed"},
        BadInput{"--model gemma-2-9b --moe-imbalance 0.5" + kRest, 2, "--moe-imbalance 0.5"},
        BadInput{"--model gemma-2-9b --schedules 1f1b,,zb" + kRest, 2,
                 "--schedules 1f1b,,zb: has an empty entry"},
        BadInput{"--model gemma-2-9b --vocab-modes none," + kRest, 2,
                 "--vocab-modes none,: has an empty entry"},
        BadInput{"--model gemma-2-9b --chunks ,2" + kRest, 2, "--chunks ,2: has an empty entry"},
        BadInput{"--model gemma-2-9b --overlap-pairs --schedules gpipe" + kRest, 2,
                 "--overlap-pairs: no candidate can have pairs; only 1f1b, "},
        BadInput{"--model gemma-2-9b --exchange-percent 101" + kRest, 2, "--exchange-percent 101"},
        BadInput{"--model gemma-2-9b --pass-times none.csv" + kRest, 3, "none.csv"},
        BadInput{"--model gemma-2-9b --pass-times half.csv" + kRest, 3,
                 "half.csv: stage 0 of rank 0 has no row for B, or for I and W"},
        BadInput{"--model gemma-2-9b --pass-times two.csv" + kRest, 3,
                 "two.csv:3: stage 0: is on rank 0, not on rank 1"},
        BadInput{"--model gemma-2-9b --pass-times one.csv" + kRest, 2,
                 "--gpus 4: does not match the passes of one.csv, which are for 1 rank"},
        BadInput{"--model gemma-2-9b --pipeline-model-parallel-layout 'Et*42L'" + kRest +
                     "--layers-per-stage 42",
                 2, "excludes"},
        BadInput{"--model gemma-2-9b --pipeline-model-parallel-layout 'Et*41L'" + kRest, 2,
                 "has 41 transformer layers (t), but the model has 42"},
        BadInput{"--model gemma-2-9b --pipeline-model-parallel-layout 'Et*42mL'" + kRest, 2,
                 "has 1 depths of multi-token prediction (m), but the model has 0"},
        BadInput{"--model gemma-2-9b --pipeline-model-parallel-layout 'Vt*42L'" + kRest, 2,
                 "shards only one of embedding and output layer"},
        BadInput{"--model gemma-2-9b --pipeline-model-parallel-layout 'Et*42L'" + kRest +
                     "--vocab-modes one_barrier",
                 2, "does not match vocabulary mode one_barrier; use V for sharded layers"},
        BadInput{"--model gemma-2-9b --mtp-num-layers 65" + kRest, 2,
                 "--mtp-num-layers 65: must be at most 64"},
        BadInput{"--model gemma-2-9b --top 0" + kRest, 2, "--top 0: must be at least 1"},
        BadInput{"--model gemma-2-9b --show-command 0" + kRest, 2, "--show-command 0: must be"},
        BadInput{
            "--model gemma-2-9b --schedules gpipe --vocab-modes none --show-command 999 --json" +
                kRest,
            2, "--show-command 999: the plan has "},
        BadInput{"--model gemma-2-9b --write-config none/run.toml" + kRest, 1, "none/run.toml"},
        BadInput{"--model gemma-2-9b --evaluation guess" + kRest, 2, "--evaluation guess"},
        BadInput{"--model gemma-2-9b --param-group '*.h.0.*:freeze'" + kRest, 2,
                 "--param-group *.h.0.*:freeze: "},
        BadInput{"--model gemma-2-9b --param-group '*:freeze'" + kRest, 2, "nothing to train"},
        BadInput{"--model gemma-2-9b --param-group '*:frozen'" + kRest, 2, "'PATTERN:freeze'"},
        BadInput{"--model gpt3-175b --gpus 4 --gpu h100 --seq-length 4096 --global-batch-size 8", 2,
                 "--seq-length 4096: gpt3-175b has 2048 learned positions"},
        BadInput{"--model gemma-2-9b --html none/plan.html" + kRest, 1, "none/plan.html"}));

}  // namespace
}  // namespace vocabpipe
