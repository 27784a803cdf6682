// SPDX-License-Identifier: Apache-2.0
// Plans for four GPUs, here ranks of this machine, and the runs that their commands start: stages,
// layers, schedule and memory are those of the plan's row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "schedules/placement.hpp"
#include "tests/tool/run_program.hpp"
#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::TempFolder;

/// A device of about a core's rates, without a reserve.
std::string core_file() {
    const std::map<std::string, double> figures{{"gpus_per_node", 4},
                                                {"peak_tflops", 0.05},
                                                {"memory_gib", 1},
                                                {"memory_gb_per_s", 5},
                                                {"link_gb_per_s", 2},
                                                {"network_gb_per_s", 2},
                                                {"link_latency_us", 20},
                                                {"network_latency_us", 20},
                                                {"dense_efficiency", 0.6},
                                                {"product_startup_terms", 8},
                                                {"product_overhead_us", 5},
                                                {"layer_launch_us", 0},
                                                {"fp8_speedup", 1},
                                                {"attention_efficiency", 0.3},
                                                {"flash_attention_2_efficiency", 0.3},
                                                {"elementwise_efficiency", 0.5},
                                                {"link_efficiency", 0.8},
                                                {"message_efficiency", 0.8},
                                                {"network_efficiency", 0.8},
                                                {"softmax_bytes_per_logit", 24},
                                                {"whole_softmax_bytes_per_logit", 24},
                                                {"vocabulary_pass_overhead_us", 50},
                                                {"overlap_efficiency", 0.95},
                                                {"reserve_gib", 0}};
    json file{{"name", "core"}};
    for (const auto& [name, value] : figures) {
        file[name] = {{"value", value}, {"basis", "assumed"}, {"source", "about a core"}};
    }
    return file.dump();
}

struct PlanCase {
    std::string name;
    std::string arguments;  // of plan, without the batch
    std::string says;       // in the first lines of the run
    double tolerance;       // of the memory of a rank, as a share
};

class PlannedRuns : public ::testing::TestWithParam<PlanCase> {
protected:
    [[nodiscard]] Outcome in_folder(const std::string& command) const {
        return testing::run_shell("cd '" + (folder_ / "") + "' && " + command);
    }
    /// Data, models, and where the case needs it the measured profile of four ranks.
    void prepare() {
        std::string text;
        for (int i = 0; i < 500; ++i) text += "Line " + std::to_string(i * i) + " of text. ";
        testing::write_file(folder_ / "text.txt", text);
        testing::write_file(folder_ / "core.json", core_file());
        testing::write_file(folder_ / "llama.json",
                            R"({"model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64,
                            "intermediate_size": 192, "num_attention_heads": 4,
                            "num_key_value_heads": 4, "vocab_size": 2048})");
        testing::write_file(folder_ / "mixture.json",
                            R"({"model_type": "mixtral", "vocab_size": 512, "hidden_size": 64,
                            "intermediate_size": 128, "num_hidden_layers": 4,
                            "num_attention_heads": 4, "num_key_value_heads": 4,
                            "num_local_experts": 8})");
        const Outcome made =
            in_folder("'" VOCABPIPE_PROGRAM "' data prepare --input text.txt --output set");
        ASSERT_EQ(made.exit_code, 0) << made.error;
        if (GetParam().arguments.find("--profile") == std::string::npos) return;
        const Outcome profiled = in_folder(
            "mpirun --oversubscribe -np 4 '" VOCABPIPE_PROGRAM
            "' profile --output host.json --num-layers 8 --hidden-size 64 --num-attention-heads 4 "
            "--seq-length 64 --vocab-size 2048 --untie-embeddings-and-output-weights "
            "--global-batch-size 4 --threads-per-rank 1 --distributed-timeout-seconds 60");
        ASSERT_EQ(profiled.exit_code, 0) << profiled.error;
    }
    /// A command as the plan printed it, of the programs under test, on hosts.
    static std::string here(std::string command, const std::string& more) {
        const auto replace = [&](const std::string& from, const std::string& to) {
            const size_t at = command.find(from);
            ASSERT_NE(at, std::string::npos) << command;
            command.replace(at, from.size(), to);
        };
        replace("mpirun -np 4 train_gpt", "mpirun --oversubscribe -np 4 '" TRAIN_GPT_PROGRAM "'");
        replace("--data-path PREFIX", "--data-path set");
        return command + " --device host --threads-per-rank 1 " + more;
    }

    TempFolder folder_;
};

/// Stages and layers by rank, as the table of a run has them.
std::vector<std::string> places_of_run(const std::string& output) {
    std::vector<std::string> places;
    std::istringstream lines(output);
    const std::regex row(R"( *(\d+) +([0-9,]+) +(\d+) +\d+ +\d+ +[0-9.]+ .*)");
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (std::regex_match(line, match, row))
            places.push_back(match[2].str() + ":" + match[3].str());
        if (line.find("iteration") != std::string::npos) break;
    }
    return places;
}

/// The same as the row of a plan has them; ranks of one place follow each other.
std::vector<std::string> places_of_row(const json& row) {
    const std::string name = row["schedule"];
    const int pipeline = row["pipeline"], chunks = row["chunks"];
    const std::vector<int> rank_of = rank_of_stage(generator(name).placement, pipeline, chunks);
    std::vector<std::string> places;
    for (int rank = 0; rank < pipeline; ++rank) {
        std::string stages;
        int layers = 0;
        for (size_t stage = 0; stage < rank_of.size(); ++stage) {
            if (rank_of[stage] != rank) continue;
            stages += (stages.empty() ? "" : ",") + std::to_string(stage);
            layers += row["layers_per_stage"][stage].get<int>();
        }
        places.insert(places.end(), static_cast<size_t>(4 / pipeline),
                      stages + ":" + std::to_string(layers));
    }
    return places;
}

int64_t sum_of(const json& memory, std::initializer_list<const char*> purposes) {
    int64_t sum = 0;
    for (const char* const purpose : purposes) {
        sum += memory[std::string(purpose) + "_bytes"].get<int64_t>();
    }
    return sum;
}

TEST_P(PlannedRuns, AreWhatWasPlanned) {
    prepare();
    const Outcome planned = in_folder("'" VOCABPIPE_PROGRAM "' plan --gpus 4 " +
                                      GetParam().arguments + " --json --write-config row.toml");
    ASSERT_EQ(planned.exit_code, 0) << planned.error;
    const json row = json::parse(planned.output)["rows"][0];
    ASSERT_TRUE(row["fits"]);
    const std::string command = row["command"];

    // The file has the flags of the command.
    const Outcome flags = in_folder(here(command, "--print-config"));
    ASSERT_EQ(flags.exit_code, 0) << flags.error;
    const Outcome file = in_folder(
        here("mpirun -np 4 train_gpt --config row.toml --data-path PREFIX", "--print-config"));
    EXPECT_EQ(file.output, flags.output) << file.error;
    EXPECT_THAT(file.output, HasSubstr("micro-batch-size = "));

    // Until costs are measured, which comes after the third step, the order is that of FLOPs.
    const Outcome run = in_folder(
        here(command, "--train-iters 3 --report run.json --distributed-timeout-seconds 60"));
    ASSERT_EQ(run.exit_code, 0) << command << "\n" << run.error;
    EXPECT_EQ(places_of_run(run.output), places_of_row(row)) << run.output;
    const std::string said = testing::unwrapped(run.output);
    EXPECT_THAT(said, HasSubstr(GetParam().says));
    EXPECT_THAT(said, HasSubstr(row["schedule"].get<std::string>() + ", vocab mode " +
                                row["vocab_mode"].get<std::string>() + ", "));
    EXPECT_THAT(said, HasSubstr(", " + row["microbatches"].dump() + " microbatches of " +
                                row["micro_batch_size"].dump() + " x 64 tokens"));

    const json report = json::parse(testing::read_file(folder_ / "run.json"));
    ASSERT_EQ(report["ranks"].size(), 4U);
    for (size_t rank = 0; rank < 4; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank) + " of " + command);
        const json& memory = row["ranks"][rank * row["ranks"].size() / 4];
        const json& ran = report["ranks"][rank];
        const auto persistent =
            static_cast<double>(sum_of(memory, {"weights", "gradients", "optimizer"}));
        // Parts of buckets are whole rows.
        EXPECT_NEAR(ran["persistent_bytes"].get<double>(), persistent, 0.001 * persistent);
        const auto all = persistent + static_cast<double>(sum_of(
                                          memory, {"activations", "vocabulary", "communication"}));
        // Orders follow costs, predicted or of FLOPs, and attention on hosts has a workspace.
        const double ran_all =
            ran["persistent_bytes"].get<double>() + ran["live_peak_bytes"].get<double>();
        EXPECT_NEAR(ran_all, all, GetParam().tolerance * all);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Models, PlannedRuns,
    ::testing::Values(
        PlanCase{"replicas_by_profile",
                 "--profile host.json --memory-gib 1 --global-batch-size 16 --data-parallel-size 2 "
                 "--schedules 1f1b,interleaved,gpipe",
                 "2 replicas x 2 ranks x 1 thread", 0.25},
        PlanCase{"whole_vocabulary_by_profile",
                 "--profile host.json --memory-gib 1 --global-batch-size 8 --schedules 1f1b "
                 "--vocab-modes redistributed",
                 "vocab mode redistributed, 4 ranks x 1 thread", 0.03},
        PlanCase{"tensor_ranks",
                 "--model llama.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--tensor-model-parallel-size 2 --vocab-size 3000",
                 "2 tensor ranks x 2 pipeline ranks", 0.05},
        PlanCase{"pairs_of_tensor_ranks",
                 "--model llama.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--tensor-model-parallel-size 2 --vocab-size 3000 --schedules 1f1b "
                 "--vocab-modes one_barrier --overlap-pairs --exchange-percent 30",
                 "2 tensor ranks x 2 pipeline ranks", 0.05},
        PlanCase{"experts",
                 "--model mixture.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--data-parallel-size 2 --expert-model-parallel-size 2",
                 "experts shared by 2", 0.15},
        PlanCase{"parts_of_experts",
                 "--model mixture.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--data-parallel-size 2 --expert-tensor-parallel-size 2",
                 "experts shared by 2 (each by 2)", 0.15},
        PlanCase{"depths_on_tensor_ranks",
                 "--model llama.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--tensor-model-parallel-size 2 --vocab-size 3000 --mtp-num-layers 2",
                 "2 tensor ranks x 2 pipeline ranks", 0.05},
        PlanCase{"depths_with_experts",
                 "--model mixture.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--data-parallel-size 2 --expert-model-parallel-size 2 --mtp-num-layers 1",
                 "experts shared by 2", 0.15},
        PlanCase{"frozen_first_layers",
                 "--model llama.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--vocab-size 3000 --param-group '*embed_tokens*:freeze' "
                 "--param-group '*.layers.[0-2].*:freeze'",
                 "'*.layers.[0-2].*': 18 tensors, ", 0.15},
        PlanCase{"frozen_but_attention_of_tensor_ranks",
                 "--model llama.json --gpu core.json --seq-length 64 --global-batch-size 8 "
                 "--tensor-model-parallel-size 2 --param-group '*.self_attn.*:lr_mult=1' "
                 "--param-group '*:freeze'",
                 "'*': 27 tensors, ", 0.15},
        PlanCase{"memory_limit_and_recomputation",
                 "--model llama.json --gpu core.json --seq-length 64 --global-batch-size 16 "
                 "--micro-batch-size 2 --schedules zb --recompute-granularity full",
                 "full recomputation", 0.25}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace vocabpipe
