// SPDX-License-Identifier: Apache-2.0
// Models and devices from files: what is read, and how broken files are refused.
#include "tests/plan/plan_cases.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace vocabpipe::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json llama() {
    return {{"model_type", "llama"},    {"num_hidden_layers", 4},     {"hidden_size", 64},
            {"intermediate_size", 128}, {"num_attention_heads", 4},   {"num_key_value_heads", 2},
            {"vocab_size", 1000},       {"tie_word_embeddings", true}};
}

json device() {
    json result{{"name", "toy"}};
    for (const DeviceFigure& figure : device_figures()) {
        result[std::string(figure.key)] = {
            {"value", figure.is_share ? 0.5 : 8}, {"basis", "assumed"}, {"source", "a test"}};
    }
    return result;
}

template <typename Load>
std::string error_of(const std::string& text, Load load) {
    const TempFolder folder;
    write_file(folder / "a.json", text);
    try {
        (void)load(folder / "a.json");
    } catch (const InputFileError& error) {
        return error.what();
    }
    return "read";
}
std::string model_error(const json& config) {
    return error_of(config.dump(), load_model);
}
std::string device_error(const json& spec) {
    return error_of(spec.dump(), load_device);
}

TEST(LoadModel, ReadsALlamaConfig) {
    const TempFolder folder;
    write_file(folder / "my-llama.json", llama().dump());
    const PlannedModel model = load_model(folder / "my-llama.json");
    EXPECT_EQ(model.name, "my-llama");
    const ModelConfig& config = model.config;
    EXPECT_EQ(config.num_layers, 4);
    EXPECT_EQ(config.head_size(), 16);
    EXPECT_EQ(config.kv_heads(), 2);
    EXPECT_TRUE(config.gated);
    EXPECT_TRUE(config.tied);
    EXPECT_FALSE(config.qkv_bias);
}

TEST(LoadModel, FillsInWhatAConfigMayLeaveOut) {
    json config = llama();
    config.erase("num_key_value_heads");
    config.erase("tie_word_embeddings");
    config["head_dim"] = 32;
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    const ModelConfig model = load_model(folder / "config.json").config;
    EXPECT_EQ(model.kv_heads(), 4);
    EXPECT_EQ(model.head_size(), 32);
    EXPECT_FALSE(model.tied);
}

TEST(LoadModel, NamesTheKeyThatIsBroken) {
    json config = llama();
    config.erase("hidden_size");
    EXPECT_THAT(model_error(config), HasSubstr("a.json: \"hidden_size\" is missing; add it"));
    config = llama();
    config["num_hidden_layers"] = "four";
    EXPECT_THAT(model_error(config), HasSubstr("num_hidden_layers: must be an integer from 1 to"));
    config = llama();
    config["vocab_size"] = -1;
    EXPECT_THAT(model_error(config), HasSubstr("vocab_size: -1: must be an integer from 1 to"));
    config = llama();
    config["vocab_size"] = UINT64_MAX;
    EXPECT_THAT(model_error(config), HasSubstr("vocab_size: 18446744073709551615: must be"));
    config = llama();
    config["num_key_value_heads"] = 3;
    EXPECT_THAT(model_error(config),
                HasSubstr("num_key_value_heads is 3, but must divide num_attention_heads 4"));
    config = llama();
    config["hidden_size"] = 66;
    EXPECT_THAT(model_error(config),
                HasSubstr("num_attention_heads: 4: must divide hidden_size 66"));
    config = llama();
    config["model_type"] = "mamba";
    EXPECT_THAT(model_error(config),
                HasSubstr("model_type: \"mamba\" is not supported; use one of gpt2, llama, "));
    config = llama();
    config["tie_word_embeddings"] = 1;
    EXPECT_THAT(model_error(config), HasSubstr("tie_word_embeddings: must be true or false"));
}

TEST(LoadModel, RefusesAnEpsilonThatTrainingWouldRefuse) {
    json config = llama();
    for (const double epsilon : {1e-6, 1e-5}) {
        config["rms_norm_eps"] = epsilon;
        EXPECT_EQ(model_error(config), "read");
    }
    for (const json& epsilon : {json(1e300), json(0), json(-1e-5)}) {
        config["rms_norm_eps"] = epsilon;
        EXPECT_THAT(model_error(config), HasSubstr("a.json: rms_norm_eps: " + epsilon.dump() +
                                                   ": must be a number from 1e-30 to 1e+30"));
    }
    config["rms_norm_eps"] = "small";
    EXPECT_THAT(model_error(config), HasSubstr("rms_norm_eps: must be a number from 1e-30"));
}

TEST(LoadModel, NamesTheLineOfWhatIsNoJson) {
    EXPECT_THAT(error_of("{\n\"a\": 1,\n\"b\" 2}", load_model),
                HasSubstr("a.json: is not valid JSON: parse error at line 3"));
    EXPECT_THAT(error_of("[1]", load_model), HasSubstr("a.json: must be an object"));
    EXPECT_THAT(error_of("", load_model), HasSubstr("a.json: is empty"));
}

TEST(LoadModel, SuggestsTheNearestName) {
    try {
        (void)load_model("gemma2-9b");
        FAIL();
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("did you mean gemma-2-9b?"));
    }
    try {
        (void)load_device("h1000");
        FAIL();
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("did you mean h100?"));
    }
    EXPECT_THROW((void)load_model("no/such/config.json"), InputFileError);
}

TEST(LoadDevice, ReadsEveryFigureWithItsSource) {
    const TempFolder folder;
    write_file(folder / "toy.json", device().dump());
    const DeviceSpec toy = load_device(folder / "toy.json");
    EXPECT_EQ(toy.name, "toy");
    EXPECT_EQ(toy.peak_tflops.value, 8);
    EXPECT_EQ(toy.dense_efficiency.value, 0.5);
    EXPECT_EQ(toy.dense_efficiency.source, "a test");
}

TEST(LoadDevice, NamesTheFigureThatIsBroken) {
    json spec = device();
    spec.erase("peak_tflops");
    EXPECT_THAT(device_error(spec), HasSubstr("a.json: peak_tflops: is missing"));
    spec = device();
    spec["dense_efficiency"]["value"] = 1.5;
    EXPECT_THAT(device_error(spec), HasSubstr("dense_efficiency: 1.5 must be more than 0 and at "
                                              "most 1"));
    spec = device();
    spec["memory_gib"]["value"] = 0;
    EXPECT_THAT(device_error(spec), HasSubstr("memory_gib: 0 must be more than 0"));
    spec = device();
    spec["link_gb_per_s"]["basis"] = "guessed";
    EXPECT_THAT(device_error(spec), HasSubstr("link_gb_per_s: needs a \"basis\""));
    spec = device();
    spec["link_gb_per_s"].erase("source");
    EXPECT_THAT(device_error(spec), HasSubstr("link_gb_per_s: needs a \"source\""));
    spec = device();
    spec["gpus_per_node"]["value"] = 2.5;
    EXPECT_THAT(device_error(spec), HasSubstr("gpus_per_node: 2.5 must be an integer"));
}

TEST(LoadDevice, AsksForAFigureThatIsNoNumber) {
    json spec = device();
    spec["memory_gib"].erase("value");
    EXPECT_THAT(device_error(spec), HasSubstr("a.json: memory_gib: needs a \"value\" that is a "
                                              "number"));
    spec["memory_gib"]["value"] = "80";
    EXPECT_THAT(device_error(spec), HasSubstr("memory_gib: needs a \"value\" that is a number"));
    spec["memory_gib"] = nullptr;
    EXPECT_THAT(device_error(spec), HasSubstr("a.json: memory_gib: is missing; add it"));
    spec["memory_gib"] = 80;
    EXPECT_THAT(device_error(spec), HasSubstr("memory_gib: must be an object in { }"));
}

// Efficiencies are shares of a peak. Only what comes on top of something else may be nothing.
TEST(LoadDevice, FiguresMayBeAsLargeAsTheirLimitAndSomeMayBeZero) {
    const std::set<std::string_view> on_top{"link_latency_us",
                                            "network_latency_us",
                                            "product_startup_terms",
                                            "product_overhead_us",
                                            "layer_launch_us",
                                            "softmax_bytes_per_logit",
                                            "reserve_gib",
                                            "whole_softmax_bytes_per_logit",
                                            "vocabulary_pass_overhead_us"};
    for (const DeviceFigure& figure : device_figures()) {
        SCOPED_TRACE(figure.key);
        const auto error_with = [&](double value) {
            json spec = device();
            spec[std::string(figure.key)]["value"] = value;
            return device_error(spec);
        };
        const bool share = figure.key.ends_with("_efficiency");
        EXPECT_EQ(error_with(share ? 1 : 1e9), "read");
        EXPECT_THAT(error_with(share ? 1.25 : 2e9),
                    HasSubstr(share ? "at most 1 (a share of the peak)" : "at most 1e9"));
        const bool may_be_zero = on_top.contains(figure.key);
        const char* least = may_be_zero ? "must be 0 or more" : "must be more than 0";
        EXPECT_THAT(error_with(0), HasSubstr(may_be_zero ? "read" : least));
        EXPECT_THAT(error_with(-1), HasSubstr(least));
    }
}

TEST(LoadDevice, BuiltInFilesStateASourceForEveryNumber) {
    for (const char* name : {"a100", "h100", "h200"}) {
        const DeviceSpec device = load_device(name);
        for (const DeviceFigure& figure : device_figures()) {
            EXPECT_FALSE((device.*figure.figure).source.empty()) << name << " " << figure.key;
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
