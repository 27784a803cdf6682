// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two saved steps of a small run.
class CheckpointCommand : public ::testing::Test {
protected:
    CheckpointCommand() {
        std::string tokens;
        for (int i = 0; i < 2000; ++i) tokens += bytes_of<uint16_t>({static_cast<uint16_t>(i % 7)});
        write_file(folder_ / "tokens.bin", tokens);
        const Outcome made = run_shell(
            "cd '" + (folder_ / "") +
            "' && '" TRAIN_GPT_PROGRAM
            "' --transport threads --ranks 2 --data-path tokens.bin --data-format raw-u16 "
            "--vocab-size 7 --hidden-size 16 --num-attention-heads 2 --seq-length 8 "
            "--global-batch-size 2 --train-iters 2 --bf16 --save steps --save-interval 1");
        EXPECT_EQ(made.exit_code, 0) << made.error;
    }
    [[nodiscard]] Outcome checkpoint(const std::string& arguments) const {
        return run_shell("cd '" + (folder_ / "") + "' && '" VOCABPIPE_PROGRAM "' checkpoint " +
                         arguments);
    }

    TempFolder folder_;
};

TEST_F(CheckpointCommand, InspectShowsTensorsAndTrainingState) {
    const Outcome step = checkpoint("inspect steps");
    EXPECT_EQ(step.exit_code, 0) << step.error;
    EXPECT_THAT(step.output,
                AllOf(HasSubstr("steps/step-00000002\n"), HasSubstr("consumed samples  4\n"),
                      HasSubstr("--hidden-size 16"), HasSubstr("112 tensors, ")));
    EXPECT_THAT(step.output, ::testing::ContainsRegex("\nmodel.safetensors\ntensor +type +shape "
                                                      "+bytes\n"));
    EXPECT_THAT(step.output,
                ::testing::ContainsRegex("transformer.wte.weight +BF16 +\\[7, 16\\] +224\n"));
    EXPECT_THAT(step.output, ::testing::ContainsRegex(
                                 "master/transformer.h.0.mlp.c_fc.weight +F32 +\\[64, 16\\] "
                                 "+4096\n"));
    EXPECT_THAT(step.output, HasSubstr("--norm-epsilon 1e-05")) << "not 9.9999997473787516e-06";
    EXPECT_THAT(unwrapped(step.output),
                AllOf(HasSubstr("--eod-token-id not given"), HasSubstr("--chunks not given"),
                      HasSubstr("--seed "), Not(HasSubstr(" -1 "))));
    const Outcome file = checkpoint("inspect steps/step-00000001/model.safetensors");
    EXPECT_THAT(file.output, AllOf(HasSubstr("metadata format: pt"), HasSubstr("28 tensors, ")));
    // Names that leave no room for the rest of a line have lines of their own.
    std::string header = "{";
    const std::string name = "exp_avg_sq/model.layers.10.post_attention_layernorm.weight";
    header += "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[1000],\"data_offsets\":[0,4000]},";
    header += R"("short":{"dtype":"F32","shape":[1000,1000,1],"data_offsets":[4000,4004000]}})";
    write_file(folder_ / "long.safetensors",
               bytes_of<uint64_t>({header.size()}) + header + std::string(4004000, '\0'));
    const Outcome names = checkpoint("inspect long.safetensors");
    EXPECT_EQ(names.exit_code, 0) << names.error;
    std::istringstream lines(names.output);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    EXPECT_THAT(names.output,
                ::testing::ContainsRegex("\nshort +F32 +\\[1000, 1000, 1\\] +4000000\n"));
    EXPECT_THAT(names.output, ::testing::ContainsRegex(name + " *\n? +F32 +\\[1000\\] +4000\n"));
    const Outcome none = checkpoint("inspect nowhere.safetensors");
    EXPECT_EQ(none.exit_code, 3);
    EXPECT_THAT(none.error, HasSubstr("nowhere.safetensors: cannot open"));
}

TEST_F(CheckpointCommand, VerifyFindsADamagedTensorAndAMissingFile) {
    const Outcome good = checkpoint("verify steps");
    EXPECT_EQ(good.exit_code, 0) << good.error;
    EXPECT_EQ(good.output,
              "steps/step-00000002: complete after step 2; all shapes and checksums match\n");
    const std::string path = folder_ / "steps/step-00000002/optimizer.safetensors";
    const std::string whole = read_file(path);
    std::string bad = whole;
    bad.back() = static_cast<char>(bad.back() ^ 1);
    write_file(path, bad);
    const Outcome damaged = checkpoint("verify steps");
    EXPECT_EQ(damaged.exit_code, 3);
    EXPECT_THAT(damaged.error,
                AllOf(HasSubstr("vocabpipe: error: steps/step-00000002/optimizer.safetensors: "
                                "tensor master/transformer.wte.weight: the checksum"),
                      HasSubstr("load an older step")));
    EXPECT_EQ(checkpoint("verify steps/step-00000001").exit_code, 0);
    std::filesystem::remove(path);
    const Outcome missing = checkpoint("verify steps");
    EXPECT_EQ(missing.exit_code, 3);
    EXPECT_THAT(missing.error, HasSubstr("optimizer.safetensors: cannot open"));
}

TEST_F(CheckpointCommand, ConvertWritesAModelThatTrainingBeginsWithAndReplacesNothing) {
    const Outcome made = checkpoint("convert steps model --dtype fp32 --max-shard-size 5kB");
    EXPECT_EQ(made.exit_code, 0) << made.error;
    EXPECT_THAT(made.output, ::testing::ContainsRegex("^model: 28 tensors in fp32, [0-9.]+ MiB in "
                                                      "[0-9]+ files\n$"));
    EXPECT_THAT(checkpoint("verify model").output,
                HasSubstr("shapes match config.json for 28 tensors"));
    const Outcome again = checkpoint("convert steps model");
    EXPECT_EQ(again.exit_code, 2);
    EXPECT_THAT(again.error, HasSubstr("model: already exists and is never replaced"));
    EXPECT_EQ(checkpoint("convert steps other --max-shard-size 0").exit_code, 2);
    EXPECT_EQ(checkpoint("convert nowhere other").exit_code, 3);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));
    const Outcome trained =
        run_shell("cd '" + (folder_ / "") +
                  "' && '" TRAIN_GPT_PROGRAM
                  "' --transport threads --ranks 1 --data-path tokens.bin --data-format raw-u16 "
                  "--load model --seq-length 8 --global-batch-size 2 --train-iters 1");
    EXPECT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_THAT(trained.output, HasSubstr("loaded weights of model"));
}

}  // namespace
}  // namespace vocabpipe::testing
