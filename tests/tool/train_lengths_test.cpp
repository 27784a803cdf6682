// SPDX-License-Identifier: Apache-2.0
// train_gpt --length-buckets, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::TempFolder;

/// A folder with a token file of documents of 1 to 60 bytes.
class TrainLengths : public ::testing::Test {
protected:
    TrainLengths() {
        std::string text;
        for (int i = 0; i < 300; ++i) {
            text +=
                std::string(static_cast<size_t>(1 + i * i % 60), static_cast<char>('a' + i % 26));
            text += "\n";
        }
        testing::write_file(folder_ / "text.txt", text);
        const Outcome made = testing::run_shell("cd '" + (folder_ / "") +
                                                "' && '" VOCABPIPE_PROGRAM
                                                "' data prepare --input text.txt --output set "
                                                "--document-separator line");
        EXPECT_EQ(made.exit_code, 0) << made.error;
    }

    /// Three steps of 12 sequences.
    [[nodiscard]] Outcome train(const std::string& flags) const {
        return testing::run_shell(
            "cd '" + (folder_ / "") +
            "' && '" TRAIN_GPT_PROGRAM
            "' --transport threads --data-path set --vocab-size 257 --num-layers 4 --hidden-size "
            "32 --num-attention-heads 2 --seq-length 64 --global-batch-size 12 --lr 1e-2 "
            "--distributed-timeout-seconds 30 " +
            flags);
    }

    /// Loss of every step of a metrics file.
    [[nodiscard]] std::vector<double> losses(const std::string& metrics) const {
        std::istringstream lines(testing::read_file(folder_ / metrics));
        std::vector<double> losses;
        for (std::string line; std::getline(lines, line);) {
            const auto step = nlohmann::json::parse(line);
            if (step.contains("loss")) losses.push_back(step["loss"]);
        }
        return losses;
    }

    TempFolder folder_;
};

TEST_F(TrainLengths, HaveTheSameStepsOnAnyMeshWithAnyMicrobatch) {
    std::vector<double> first;
    for (const std::string mesh : {"--ranks 1", "--ranks 2 --schedule zb-h1",
                                   "--ranks 4 "
                                   "--pipeline-model-parallel-size 2",
                                   "--ranks 1 --micro-batch-size 3"}) {
        const std::string flags = mesh +
                                  " --train-iters 3 --packing-strategy padded "
                                  "--length-buckets 8,24,64 --metrics m.jsonl";
        const Outcome outcome = train(flags);
        ASSERT_EQ(outcome.exit_code, 0) << mesh << ": " << outcome.error;
        EXPECT_THAT(testing::unwrapped(outcome.output), HasSubstr("300 documents in"))
            << outcome.output;
        const std::vector<double> here = losses("m.jsonl");
        ASSERT_EQ(here.size(), 3U);
        if (first.empty()) first = here;
        for (size_t step = 0; step < 3; ++step) EXPECT_NEAR(here[step], first[step], 1e-4) << mesh;
    }
}

TEST_F(TrainLengths, GoOnWhereARunWasSaved) {
    const std::string flags =
        "--ranks 2 --packing-strategy padded --length-buckets auto "
        "--train-iters 6 --metrics ";
    ASSERT_EQ(train(flags + "whole.jsonl").exit_code, 0);
    const std::string saved = " --save run --save-interval 2 ";
    ASSERT_EQ(train(flags + "first.jsonl" + saved + "--exit-interval 4").exit_code, 0);
    const Outcome resumed = train(flags + "second.jsonl" + saved + "--load run");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
    std::vector<double> parts = losses("first.jsonl");
    ASSERT_EQ(parts.size(), 4U);
    std::ranges::copy(losses("second.jsonl"), std::back_inserter(parts));
    EXPECT_EQ(parts, losses("whole.jsonl"));
    const Outcome other = train(
        "--ranks 2 --packing-strategy padded --length-buckets 32,64 "
        "--train-iters 6 --load run");
    EXPECT_EQ(other.exit_code, 3);
    EXPECT_THAT(other.error, HasSubstr("--length-buckets"));
}

TEST_F(TrainLengths, AreRefusedInOneLineThatSaysWhatIsWrong) {
    const auto refused = [&](const std::string& flags, const std::string& why) {
        const Outcome outcome = train("--ranks 2 --train-iters 1 " + flags);
        EXPECT_EQ(outcome.exit_code, 2) << flags;
        EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
        EXPECT_THAT(outcome.error, HasSubstr(why)) << flags;
    };
    refused("--length-buckets 16,64", "set --packing-strategy bfd or padded");
    refused("--packing-strategy padded --length-buckets 16",
            "the largest must be --seq-length 64; add it");
    refused("--packing-strategy padded --length-buckets 128,64",
            "128 is more than --seq-length 64");
    refused("--packing-strategy padded --length-buckets some", "\"some\" is not an integer");
}

}  // namespace
}  // namespace vocabpipe
