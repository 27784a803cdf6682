// SPDX-License-Identifier: Apache-2.0
#include "src/model/published/published_models.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/model/config_json/model_config_json.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig published(const std::string& name) {
    const NamedModel model = named_model(name);
    EXPECT_EQ(model.name, name);
    EXPECT_EQ(model.path, name);
    return parse_model_config(model.text, model.path);
}

/// What training needs beside the sizes, whose products the test of blocks' work counts.
struct Trained {
    double theta;
    float epsilon;
    int32_t end;
};

TEST(PublishedModels, HaveTheirRotaryBasesEpsilonsAndEndsOfText) {
    const std::map<std::string, Trained> rotary{
        {"deepseek-v3", {1e4, 1e-6F, 1}},       {"gemma-2-9b", {1e4, 1e-6F, 1}},
        {"gemma-3-1b", {1e6, 1e-6F, 1}},        {"llama-3-405b", {5e5, 1e-5F, 128001}},
        {"llama-3-70b", {5e5, 1e-5F, 128001}},  {"llama-3-8b", {5e5, 1e-5F, 128001}},
        {"llama-3.2-1b", {5e5, 1e-5F, 128001}}, {"mixtral-8x7b", {1e6, 1e-5F, 2}},
        {"phi-4", {2.5e5, 1e-5F, 100265}},      {"qwen-2.5-7b", {1e6, 1e-6F, 151643}},
        {"qwen-3-8b", {1e6, 1e-6F, 151645}},    {"qwen3-30b-a3b", {1e6, 1e-6F, 151645}}};
    size_t found = 0;
    for (const std::string& name : published_models()) {
        const ModelConfig model = published(name);
        model.check();
        if (model.learned_positions) {
            EXPECT_EQ(name, "gpt3-175b");
            continue;
        }
        ++found;
        ASSERT_TRUE(rotary.contains(name)) << name;
        EXPECT_EQ(model.rope.theta, rotary.at(name).theta) << name;
        EXPECT_EQ(model.norm_epsilon, rotary.at(name).epsilon) << name;
        EXPECT_THAT(model.ends_of_text, ElementsAre(rotary.at(name).end)) << name;
    }
    EXPECT_EQ(found, rotary.size());
}

TEST(PublishedModels, HaveTheOptionsOfTheirFamilies) {
    const ModelConfig gemma = published("gemma-2-9b");
    EXPECT_EQ(gemma.attention_softcap, 50);
    EXPECT_EQ(gemma.logit_softcap, 30);
    EXPECT_EQ(gemma.attention_scale, 0);  // 1 / sqrt(256), as query_pre_attn_scalar says
    EXPECT_EQ(published("gemma-3-1b").windowed_rope->theta, 1e4);
    EXPECT_EQ(published("llama-3-405b").rope.factor, 8);
    EXPECT_EQ(published("llama-3.2-1b").rope.factor, 32);
    EXPECT_EQ(published("llama-3-8b").rope.factor, published("qwen-3-8b").rope.factor);
    EXPECT_TRUE(published("qwen3-30b-a3b").moe.normalize);
    const ModelConfig deepseek = published("deepseek-v3");
    EXPECT_EQ(deepseek.latent.kv_rank, 512);
    EXPECT_EQ(deepseek.mtp_num_layers, 1);
    // mscale^2 / sqrt(192), mscale = 0.1 log 40 + 1
    EXPECT_NEAR(deepseek.attention_scale, 1.3688879454 * 1.3688879454 / 13.8564064606, 1e-7);
}

TEST(PublishedModels, AreOneKindOfWhatAModelIsNamedBy) {
    const TempFolder folder;
    const std::string text = named_model("llama-3-8b").text;
    std::filesystem::create_directory(folder / "mine");
    write_file(folder / "mine/config.json", text);
    for (const char* const spelled : {"mine", "mine/", "mine/."}) {
        const NamedModel model = named_model(folder / spelled);
        EXPECT_EQ(model.name, "mine") << spelled;
        EXPECT_EQ(model.text, text);
        EXPECT_EQ(model.path, (folder / spelled) + "/config.json");
    }
    EXPECT_EQ(named_model(folder / "mine/config.json").name, "config");
    EXPECT_THAT(message_of<UsageError>([] { (void)named_model("llama3-8b"); }),
                HasSubstr("--model llama3-8b: is neither a file nor one of deepseek-v3, "));
    EXPECT_THAT(message_of<UsageError>([] { (void)named_model("llama3-8b"); }),
                HasSubstr("did you mean llama-3-8b?"));
    EXPECT_THAT(message_of<InputFileError>([] { (void)named_model("no/model"); }),
                HasSubstr("no/model: does not exist"));
    EXPECT_THAT(message_of<InputFileError>([&] { (void)named_model(folder / "."); }),
                HasSubstr("config.json: does not exist"));
}

TEST(PublishedModels, AreNotConfusedWithAFolderOfTheSameName) {
    const TempFolder folder;
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder / ".");
    std::filesystem::create_directory("llama-3-8b");
    write_file("llama-3-8b/config.json", named_model("qwen-3-8b").text);
    const std::string refusal = message_of<UsageError>([] { (void)named_model("llama-3-8b"); });
    const std::string text = named_model("./llama-3-8b").text;
    std::filesystem::current_path(before);
    EXPECT_THAT(refusal, HasSubstr("--model llama-3-8b: is a built-in name, and here is a file or "
                                   "folder of that name; write ./llama-3-8b for the latter"));
    EXPECT_EQ(text, named_model("qwen-3-8b").text);
}

}  // namespace
}  // namespace vocabpipe::testing
