// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/rope_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/model/config_json/unused_rope_keys.hpp"
#include "tests/train/checkpoint/config_json.hpp"
#include "tests/train/checkpoint/rope_values.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RopeConfig, GivesTheTableThatTransformersComputes) {
    constexpr int64_t kPositions = 40;
    for (const RopeValues& of : kRopeValues) {
        const StrictJson config = StrictJson::parse(
            "{\"rope_parameters\": " + std::string(of.parameters) + "}", "config.json");
        const bool phi = std::string_view(of.parameters).find("longrope") != std::string::npos;
        const std::span<const NamedScaling> types =
            phi ? std::span<const NamedScaling>(kPhiRopeTypes) : kRopeTypes;
        const auto half = static_cast<int64_t>(of.frequencies.size());
        const std::vector<float> table =
            rotary_table(read_rope(config, 4096, Rope{}.theta, types), 2 * half, kPositions);
        for (int64_t t = 0; t < kPositions; ++t) {
            for (int64_t i = 0; i < half; ++i) {
                const double angle =
                    static_cast<double>(t) * of.frequencies[static_cast<size_t>(i)];
                // Their frequencies are fp32, computed in a few operations.
                const double bound = of.amplitude * (4 * 6e-8 * angle + 1e-7);
                const float* const row = table.data() + t * 2 * half;
                EXPECT_NEAR(row[i], of.amplitude * std::cos(angle), bound)
                    << of.parameters << " position " << t << " pair " << i;
                EXPECT_NEAR(row[half + i], of.amplitude * std::sin(angle), bound)
                    << of.parameters << " position " << t << " pair " << i;
            }
        }
    }
}

TEST(RopeConfig, OfLongropeEnlargesCosAndSinBeyondTheTrainedLengthAlone) {
    // Microsoft's formula: sqrt(1 + log(factor) / log(trained)), 1 for a factor up to 1.
    Rope rope{.scaling = RopeScaling::longrope,
              .original_positions = 16,
              .short_factors = {1, 2},
              .long_factors = {2, 4}};
    const auto amplitude = [&](double factor) {
        rope.factor = factor;
        return rotary_table(rope, 4, 1).front();  // the cosine of 0
    };
    EXPECT_EQ(amplitude(0.25), 1);
    EXPECT_EQ(amplitude(1), 1);
    EXPECT_FLOAT_EQ(amplitude(std::sqrt(2.0)), std::sqrt(1.125F));  // an eighth of log(16)
    EXPECT_FLOAT_EQ(amplitude(2), std::sqrt(1.25F));
    EXPECT_FLOAT_EQ(amplitude(4096), 2);
}

TEST(RopeConfig, OfDynamicTypeGrowsThetaBeyondThePositionsOfTheModel) {
    // transformers' formula: theta ((factor L / M) - (factor - 1))^(d / (d - 2)), L the longer of
    // the sequence and M, max_position_embeddings.
    json file = with(rotary("llama"), "max_position_embeddings", 32);
    file["rope_scaling"] = {{"type", "dynamic"}, {"factor", 4.0}};
    const Rope rope = parsed(file).rope;
    constexpr int64_t kColumns = 12;
    const auto expect_theta = [&](int64_t length, double theta) {
        const std::vector<float> table = rotary_table(rope, kColumns, length);
        for (int64_t t = 0; t < length; ++t) {
            for (int64_t i = 0; i < kColumns / 2; ++i) {
                const double angle = static_cast<double>(t) *
                                     std::pow(theta, -2.0 * static_cast<double>(i) / kColumns);
                const float* const row = table.data() + t * kColumns;
                EXPECT_FLOAT_EQ(row[i], static_cast<float>(std::cos(angle)));
                EXPECT_FLOAT_EQ(row[kColumns / 2 + i], static_cast<float>(std::sin(angle)));
            }
        }
    };
    expect_theta(20, 10000);
    expect_theta(32, 10000);
    expect_theta(48, 10000 * std::pow(3.0, 1.2));
    expect_theta(64, 10000 * std::pow(5.0, 1.2));
    file["max_position_embeddings"] = 48;
    EXPECT_NE(parsed(file).rope, rope);
    EXPECT_FALSE(
        printed(parsed(file)).at("rope_scaling").contains("original_max_position_embeddings"));
    EXPECT_EQ(parsed(printed(parsed(file))).rope, parsed(file).rope);
}

TEST(RopeConfig, PassesOverKeysThatTransformersReadsInNoType) {
    for (const std::string type : {"default", "linear", "dynamic", "yarn"}) {
        json scaling{{"rope_type", type}, {"factor", 4.0}};
        const json file = with(rotary("qwen3"), "rope_scaling", scaling);
        const auto notes = [](const json& config) {
            return unused_rope_keys(StrictJson::parse(config.dump(), "d/config.json"));
        };
        if (type == "default") {
            EXPECT_THAT(notes(file), ElementsAre(HasSubstr("rope_scaling.factor is not used")));
        } else {
            EXPECT_THAT(notes(file), IsEmpty()) << type;
        }
        for (const char* const key : {"finetuned", "attn_factor", "short_mscale", "long_mscale"}) {
            json more = file;
            more["rope_scaling"][key] = std::string(key) == "finetuned" ? json(true) : json(0.878);
            EXPECT_EQ(parsed(more).rope, parsed(file).rope) << type << " " << key;
            EXPECT_THAT(notes(more),
                        Contains("rope_scaling." + std::string(key) +
                                 " is not used with rope_type " + type + ", as in transformers"));
        }
    }
}

TEST(RopeConfig, NotesWhatOtherTypesWouldUse) {
    const auto notes = [](const json& config) {
        (void)parsed(config);
        return unused_rope_keys(StrictJson::parse(config.dump(), "d/config.json"));
    };
    EXPECT_THAT(notes(rotary("llama")), IsEmpty());
    EXPECT_THAT(notes(with(gpt2(), "rope_scaling", {{"type", "of no use here"}})), IsEmpty());
    json file = with(rotary("llama"), "rope_parameters",
                     {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 500}});
    EXPECT_THAT(notes(file), IsEmpty());
    file["rope_parameters"]["beta_fast"] = 3;
    EXPECT_THAT(notes(file), ElementsAre(HasSubstr("rope_parameters.beta_fast is not used")));
    file["rope_parameters"]["beta_fast"] = nullptr;
    EXPECT_THAT(notes(file), IsEmpty());

    json gemma = rotary("gemma3_text");
    gemma["rope_parameters"] = {
        {"full_attention", {{"rope_type", "yarn"}, {"factor", 2}, {"attn_factor", 0.5}}},
        {"sliding_attention", {{"rope_type", "default"}}}};
    EXPECT_THAT(notes(gemma),
                ElementsAre(HasSubstr("rope_parameters.full_attention.attn_factor is not used")));

    json phi = with(with(rotary("phi3"), "head_dim", 4), "original_max_position_embeddings", 512);
    phi["rope_scaling"] = {
        {"type", "su"}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 7}}, {"long_mscale", 1.2}};
    EXPECT_THAT(notes(phi), ElementsAre("rope_scaling.long_mscale is not used with rope_type "
                                        "longrope, as in transformers"));
}

TEST(RopeConfig, IsRefusedWithoutATypeWhereItWouldNeedOne) {
    for (const std::string& family : model_families()) {
        if (family == "gpt2" || family == "gemma3_text") continue;
        SCOPED_TRACE(family);
        json file = any_rotary(family);
        for (const char* const key : {"type", "rope_type"}) {
            file["rope_scaling"] = {{key, nullptr}, {"factor", 4.0}};
            EXPECT_THAT(refused(file), HasSubstr("rope_scaling." + std::string(key) +
                                                 ": is null; set it to default, "));
        }
        file["rope_scaling"] = {{"rope_type", nullptr}, {"type", "linear"}, {"factor", 4.0}};
        EXPECT_THAT(refused(file), HasSubstr("rope_scaling.rope_type: is null"));
        file["rope_scaling"] = {{"factor", 4.0}};
        EXPECT_THAT(refused(file), HasSubstr("rope_scaling.factor: is set without a rope_type"));
        file["rope_scaling"] = {{"rope_theta", 500.0}};
        EXPECT_EQ(parsed(file).rope.theta, 500);
    }
    json phi = with(with(rotary("phi3"), "head_dim", 4), "original_max_position_embeddings", 512);
    phi["rope_scaling"] = {{"type", nullptr}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 7}}};
    EXPECT_THAT(refused(phi), HasSubstr("rope_scaling.type: is null; set it to default, longrope"));
    phi["rope_scaling"].erase("type");
    EXPECT_THAT(refused(phi), HasSubstr("is set without a rope_type; set rope_type to default, "
                                        "longrope"));
}

TEST(RopeConfig, IsReadInTheKeysOfPhi3) {
    json file = rotary("phi3");
    file["head_dim"] = 4;
    file["original_max_position_embeddings"] = 512;
    Rope expected{.scaling = RopeScaling::longrope,
                  .factor = 8,
                  .original_positions = 512,
                  .short_factors = {1, 1.5},
                  .long_factors = {2, 7}};
    for (const char* const type : {"longrope", "su", "yarn"}) {
        file["rope_scaling"] = {
            {"type", type}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 7}}};
        EXPECT_EQ(parsed(file).rope, expected) << type;
    }
    const json text = printed(parsed(file));
    EXPECT_EQ(text.at("rope_scaling"), with(file.at("rope_scaling"), "type", "longrope"));
    EXPECT_EQ(text.at("original_max_position_embeddings"), 512);
    json now = file;
    now["rope_parameters"] = now["rope_scaling"];
    now.erase("rope_scaling");
    now["rope_parameters"].update({{"partial_rotary_factor", 1.0},
                                   {"original_max_position_embeddings", 512},
                                   {"factor", 3.0},
                                   {"attention_factor", 1.25}});
    expected.factor = 3;
    expected.attention_factor = 1.25;
    EXPECT_EQ(parsed(now).rope, expected);
    EXPECT_EQ(printed(parsed(now)).at("rope_scaling").at("factor"), 3);

    EXPECT_THAT(
        refused(with(file, "head_dim", 6)),
        HasSubstr("short_factor and long_factor have 2 and 2 entries; rotary positions of 6 "
                  "columns of a head need 3 in each"));
    EXPECT_THAT(refused(with(file, "original_max_position_embeddings", 1)),
                HasSubstr("original_max_position_embeddings: 1: must be an integer from 2"));
    EXPECT_THAT(refused(with(file, "rope_scaling", {{"type", "linear"}, {"factor", 2}})),
                HasSubstr("\"linear\" is not supported; use default, longrope, su, yarn"));
    now.erase("original_max_position_embeddings");
    EXPECT_THAT(refused(now), HasSubstr("\"original_max_position_embeddings\" is missing"));
    file["rope_scaling"].erase("long_factor");
    EXPECT_THAT(refused(file), HasSubstr("\"long_factor\" is missing"));
}

TEST(RopeConfig, IsReadOfTwoKindsInOldAndNewKeys) {
    json old = rotary("gemma3_text");
    old["rope_theta"] = 300.0;
    old["rope_local_base_freq"] = 200.0;
    old["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
    const Rope full{.theta = 300, .scaling = RopeScaling::linear, .factor = 8};
    EXPECT_EQ(parsed(old).rope, full);
    EXPECT_EQ(parsed(old).windowed_rope, Rope{.theta = 200});
    json now = rotary("gemma3_text");
    now["rope_parameters"] = {
        {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 300.0}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 200.0}}}};
    EXPECT_EQ(parsed(now).rope, full);
    EXPECT_EQ(parsed(now).windowed_rope, Rope{.theta = 200});
    const json text = printed(parsed(now));
    EXPECT_EQ(text.at("rope_theta"), 300);
    EXPECT_EQ(text.at("rope_local_base_freq"), 200);
    EXPECT_EQ(text.at("rope_scaling"), old.at("rope_scaling"));

    json part = now;  // each kind by itself has its defaults
    part["rope_parameters"]["full_attention"] = nullptr;
    part["rope_parameters"]["sliding_attention"].erase("rope_theta");
    EXPECT_EQ(parsed(part).rope, Rope{.theta = 1e6});
    EXPECT_EQ(parsed(part).windowed_rope, Rope{.theta = 1e4});

    EXPECT_THAT(refused(with(now, "rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}})),
                HasSubstr("rope_scaling: is set together with rope_parameters"));
    EXPECT_THAT(refused(with(old, "partial_rotary_factor", 0.5)),
                HasSubstr("partial_rotary_factor: rotary positions on part"));
    json flat = rotary("gemma3_text");
    flat["rope_parameters"] = {{"rope_theta", 300.0}};
    EXPECT_THAT(refused(flat), HasSubstr("rope_parameters: unknown key \"rope_theta\""));
    now["rope_parameters"]["sliding_attention"]["rope_type"] = "linear";
    EXPECT_THAT(refused(now), HasSubstr("\"factor\" is missing"));
    now["rope_parameters"]["sliding_attention"]["factor"] = 2;
    EXPECT_THAT(refused(now), HasSubstr("rope_parameters.sliding_attention: layers with a window "
                                        "cannot have scaled positions; rope_type must be default"));
}

}  // namespace
}  // namespace vocabpipe::testing
