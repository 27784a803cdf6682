// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/train/checkpoint/convert_checkpoint.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/checkpoint/hugging_face_models.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(ConvertCheckpoint, GivesEveryFamilyInEitherTypeWithItsNames) {
    for (const TransformersFiles& model : transformers_files()) {
        SCOPED_TRACE(label(model));
        for (const char* stored : {"F32", "BF16", "F16"}) {
            const TempFolder folder;
            write_model(folder / "m", model.config, weights_of(model, stored));
            convert_checkpoint(folder / "m", folder / "fp32", {.dtype = DType::fp32});
            convert_checkpoint(folder / "m", folder / "bf16", {.dtype = DType::bf16});
            convert_checkpoint(folder / "m", folder / "same/", {});
            expect_weights(folder / "fp32", weights_of(model, "F32"));
            expect_weights(folder / "bf16", weights_of(model, "BF16"));
            const bool half = std::string(stored) == "BF16";
            expect_weights(folder / "same", weights_of(model, half ? "BF16" : "F32"));
            const ModelConfig config = load_model_config(folder / "bf16");
            EXPECT_NO_THROW(
                check_same_model(config, "bf16", parse_model_config(model.config, "m")));
        }
    }
}

TEST(ConvertCheckpoint, TakesTheTypeOfTheWeightsAndNotOfBuffersBesideThem) {
    for (const TransformersFiles& model : transformers_files()) {
        SCOPED_TRACE(label(model));
        const TempFolder folder;
        std::vector<RawTensor> weights = weights_of(model, "BF16");
        const bool gpt2 = std::string(model.model_type) == "gpt2";
        weights.push_back(
            gpt2 ? RawTensor{"transformer.h.0.attn.bias", "U8", "[2]", "ab"}
                 : tensor("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[2]"));
        write_model(folder / "m", model.config, weights);
        EXPECT_EQ(convert_checkpoint(folder / "m", folder / "to", {}).dtype, DType::bf16);
        expect_weights(folder / "to", weights_of(model, "BF16"));
    }
}

TEST(ConvertCheckpoint, KeepsWhatTheConfigSaysOtherwiseAndWhatLiesBeside) {
    const TempFolder folder;
    const TransformersFiles& model = transformers_files().front();
    write_model(folder / "m", model.config, weights_of(model, "F32"));
    write_file(folder / "m/tokenizer.json", "{\"a\": 1}");
    write_file(folder / "m/generation_config.json", "{}");
    write_file(folder / "m/pytorch_model.bin", "pickle");
    convert_checkpoint(folder / "m", folder / "to", {.dtype = DType::bf16});
    nlohmann::json want = nlohmann::json::parse(model.config);
    want["dtype"] = "bfloat16";
    EXPECT_EQ(nlohmann::json::parse(read_file(folder / "to/config.json")), want);
    EXPECT_EQ(read_file(folder / "to/tokenizer.json"), "{\"a\": 1}");
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "to")) {
        names.push_back(entry.path().filename().string());
    }
    EXPECT_THAT(names, UnorderedElementsAre("config.json", "generation_config.json",
                                            "model.safetensors", "tokenizer.json"));
}

TEST(ConvertCheckpoint, CutsShardsBetweenTensorsAndWritesTheirIndex) {
    const TempFolder folder;
    const TransformersFiles& model = transformers_files().back();
    write_model(folder / "m", model.config, weights_of(model, "F32"));
    constexpr uint64_t kMost = 10000;
    const ConvertReport report =
        convert_checkpoint(folder / "m", folder / "to", {.max_shard_bytes = kMost});
    const TensorFolder shards(folder / "to");
    EXPECT_EQ(shards.files().size(), report.weight_files);
    EXPECT_GT(report.weight_files, 2U);
    uint64_t total = 0;
    for (const auto& file : shards.files()) {
        const uint64_t bytes = file->size() - file->header().data_begin;
        EXPECT_TRUE(bytes <= kMost || file->header().tensors.size() == 1) << file->path();
        total += bytes;
    }
    const auto index = nlohmann::json::parse(read_file(shards.path()));
    EXPECT_EQ(index.at("metadata").at("total_size"), total);
    expect_weights(folder / "to", weights_of(model, "F32"));
}

TEST(ConvertCheckpoint, TakesAStepOfARun) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.model = config_of(transformers_files().back());
    options.model.dtype = DType::bf16;
    options.save = runs.path("steps");
    ASSERT_EQ(runs.run(2, options).size(), 6U);
    const ConvertReport report = convert_checkpoint(options.save, runs.path("to"), {});
    EXPECT_EQ(report.dtype, DType::bf16);
    const std::string step = step_folder(options.save, 6);
    EXPECT_EQ(read_file(runs.path("to") + "/model.safetensors"),
              read_file(step + "/model.safetensors"));
    EXPECT_FALSE(find_checkpoint(runs.path("to"), false).training);
}

TEST(ConvertCheckpoint, IsInterruptedAlreadyWhileItVerifies) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.train_iters = 2;
    options.save = runs.path("steps");
    (void)runs.run(1, options);
    struct Interrupted {};  // not a std::exception, as the tool's
    const auto interrupt = [&] {
        EXPECT_TRUE(std::filesystem::is_empty(runs.path(".to.partial")))
            << "nothing is written yet";
        throw Interrupted{};
    };
    EXPECT_THROW(convert_checkpoint(options.save, runs.path("to"), {.poll = interrupt}),
                 Interrupted);
    EXPECT_FALSE(std::filesystem::exists(runs.path(".to.partial")));
}

TEST(ConvertCheckpoint, NeverReplacesAnythingAndLeavesNothingBehind) {
    const TempFolder folder;
    const TransformersFiles& model = transformers_files().front();
    const auto weights = weights_of(model, "F32");
    write_model(folder / "m", model.config, weights);
    std::filesystem::create_directories(folder / "empty");
    std::filesystem::create_symlink("nowhere", folder / "link");
    write_file(folder / "file", "mine");
    const std::set<std::string> before = folder.names();
    const auto usage = [&](const std::string& to) {
        return message_of<UsageError>([&] { convert_checkpoint(folder / "m", folder / to, {}); });
    };
    for (const char* to : {"m", "empty", "link", "file", "empty/"}) {
        EXPECT_THAT(usage(to), HasSubstr("already exists and is never replaced")) << to;
    }
    EXPECT_THAT(message_of<OutputFileError>(
                    [&] { convert_checkpoint(folder / "m", folder / "no/where", {}); }),
                HasSubstr("no/.where.partial: cannot create"));
    int pieces = 0;
    EXPECT_THROW(convert_checkpoint(folder / "m", folder / "to",
                                    {.poll =
                                         [&] {
                                             if (++pieces == 3) throw std::runtime_error("stop");
                                         }}),
                 std::runtime_error);
    EXPECT_EQ(folder.names(), before);
    std::filesystem::create_directories(folder / ".to.partial");
    EXPECT_THAT(usage("to"), HasSubstr(".to.partial: exists; another conversion"));
}

}  // namespace
}  // namespace vocabpipe::testing
