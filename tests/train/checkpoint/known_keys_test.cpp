// SPDX-License-Identifier: Apache-2.0
// Keys of config.json that no reader of a family asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/support/strict_json.hpp"
#include "tests/train/checkpoint/config_json.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(KnownKeys, OthersAreRefusedByName) {
    EXPECT_THAT(refused(with(rotary("llama"), "residual_multiplier", 0.2)),
                HasSubstr("residual_multiplier: unknown key, which may change what the model "
                          "computes; remove it if it does not"));
    EXPECT_THAT(refused(with(gpt2(), "n_embed", 768)), HasSubstr("n_embed: unknown key"));
}

// As good as left out, of how text is made, of another family, of who wrote it.
TEST(KnownKeys, LeaveTheModelAsItIs) {
    json harmless = rotary("llama");
    harmless["residual_multiplier"] = nullptr;
    harmless["max_length"] = 20;
    harmless["n_positions"] = 7;
    harmless["transformers_version"] = "9.9";
    EXPECT_EQ(parsed(harmless).max_position_embeddings,
              parsed(rotary("llama")).max_position_embeddings);
}

TEST(StrictJsonDocument, NamesKeysAsTheyAreUnlessALineCannotHoldThem) {
    const auto only_b = [](const std::string& text) {
        StrictJson::parse(text, "file").only({"b"});
    };
    const auto refusal = [&](const std::string& text) {
        return message_of<InputFileError>([&] { only_b(text); });
    };
    EXPECT_NO_THROW(only_b(R"({"b":1})"));
    EXPECT_EQ(refusal(R"({"a b":1})"), "file: unknown key \"a b\"; use one of b");
    EXPECT_EQ(refusal(R"({"a\nb":1})"), "file: unknown key \"\"a\\nb\"\"; use one of b");
}

TEST(StrictJsonDocument, IsRefusedForTheFirstFaultInIt) {
    const auto refusal = [](const std::string& text) {
        return message_of<InputFileError>([&] { (void)StrictJson::parse(text, "file"); });
    };
    const std::string deepest = std::string(31, '[') + std::string(31, ']');
    const std::string deeper = "[" + deepest + "]";
    EXPECT_NO_THROW((void)StrictJson::parse(R"({"a":)" + deepest + "}", "file"));
    EXPECT_EQ(refusal(R"({"a":)" + deeper + R"(,"a":1})"), "file: nested deeper than 32 levels");
    EXPECT_EQ(refusal(R"({"a":)" + deepest + R"(,"a":)" + deeper + "}"),
              "file: \"a\" appears twice in one object; keep one");
}

TEST(StrictJsonDocument, KnowsTheKeysThatNobodyAskedFor) {
    const StrictJson root = StrictJson::parse(R"({"a":{"b":1,"c":2},"d":3,"e":4,"f":5})", "file");
    EXPECT_THAT(root.unread_keys(), ElementsAre("a", "d", "e", "f"));
    EXPECT_TRUE(root.has("d"));
    EXPECT_FALSE(root.has("g"));
    const StrictJson inner = root.at("a");
    EXPECT_FALSE(inner.has("e")) << "another object's key";
    const StrictJson copy = root;
    EXPECT_EQ(copy.at("f").integer(0, 9), 5);
    EXPECT_THAT(root.unread_keys(), ElementsAre("e"));
    EXPECT_THAT(StrictJson::parse("[1]", "file").unread_keys(), IsEmpty());
}

}  // namespace
}  // namespace vocabpipe::testing
