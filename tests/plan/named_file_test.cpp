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
    const TransformerShape shape = load_model(folder / "my-llama.json");
    EXPECT_EQ(shape.name, "my-llama");
    EXPECT_EQ(shape.num_layers, 4);
    EXPECT_EQ(shape.head_size, 16);
    EXPECT_EQ(shape.num_key_value_heads, 2);
    EXPECT_TRUE(shape.gated_mlp);
    EXPECT_TRUE(shape.tied);
    EXPECT_FALSE(shape.qkv_bias);
}

TEST(LoadModel, FillsInWhatAConfigMayLeaveOut) {
    json config = llama();
    config.erase("num_key_value_heads");
    config.erase("tie_word_embeddings");
    config["head_dim"] = 32;
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    const TransformerShape shape = load_model(folder / "config.json");
    EXPECT_EQ(shape.num_key_value_heads, 4);
    EXPECT_EQ(shape.head_size, 32);
    EXPECT_FALSE(shape.tied);
}

TEST(LoadModel, CountsTheNormsOfHeadsOfQwen3) {
    const json config{{"model_type", "qwen3"},       {"vocab_size", 151936},
                      {"hidden_size", 1024},         {"intermediate_size", 3072},
                      {"num_hidden_layers", 28},     {"num_attention_heads", 16},
                      {"num_key_value_heads", 8},    {"tie_word_embeddings", true},
                      {"use_sliding_window", false}, {"sliding_window", nullptr}};
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    TransformerShape shape = load_model(folder / "config.json");
    EXPECT_EQ(shape.head_size, 128);
    EXPECT_EQ(shape.parameters(), 596'049'920);  // Qwen3-0.6B's weight file
    const int64_t saved = shape.saved_bytes();
    shape.qk_norms = false;
    // q, k and v also before the norms, and a statistic per head of q and k.
    EXPECT_EQ(saved - shape.saved_bytes(), 2 * (16 + 2 * 8) * 128 + 4 * (16 + 8));
}

TEST(LoadModel, CountsTheNormsOfOlmo2) {
    const json config{{"model_type", "olmo2"},     {"vocab_size", 100352},
                      {"hidden_size", 4096},       {"intermediate_size", 11008},
                      {"num_hidden_layers", 32},   {"num_attention_heads", 32},
                      {"num_key_value_heads", 32}, {"tie_word_embeddings", false}};
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    const TransformerShape shape = load_model(folder / "config.json");
    EXPECT_EQ(shape.parameters(), 7'298'617'344);  // of OLMo-2-1124-7B's sizes in transformers
    // The residual stream twice and both sublayer outputs; q, k and v before and after their norms,
    // what the heads make; gate, up and their product. A statistic per norm and head.
    EXPECT_EQ(shape.saved_bytes(), 2 * (4 * 4096 + 7 * 4096 + 3 * 11008) + 4 * (2 + 2 + 32));
    EXPECT_EQ(shape.recomputed_bytes(Recompute::selective), 2 * (3 * 4096 + 11008) + 4 * 2);
}

TEST(LoadModel, CountsTheNormsOfGemma3) {
    const json config{{"model_type", "gemma3_text"}, {"vocab_size", 262144},
                      {"hidden_size", 1152},         {"intermediate_size", 6912},
                      {"num_hidden_layers", 26},     {"num_attention_heads", 4},
                      {"num_key_value_heads", 1},    {"sliding_window", 512}};
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    const TransformerShape shape = load_model(folder / "config.json");
    EXPECT_EQ(shape.parameters(), 999'885'952);  // Gemma 3 1B's weight file
    EXPECT_EQ(shape.windowed_layers, 22);
}

TEST(LoadModel, CountsThePartsOfPhi3AsLlamas) {
    const json config{{"model_type", "phi3"},      {"vocab_size", 32064},
                      {"hidden_size", 3072},       {"intermediate_size", 8192},
                      {"num_hidden_layers", 32},   {"num_attention_heads", 32},
                      {"num_key_value_heads", 32}, {"tie_word_embeddings", false},
                      {"rope_scaling", nullptr},   {"sliding_window", 2047}};
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    const TransformerShape shape = load_model(folder / "config.json");
    EXPECT_EQ(shape.parameters(), 3'821'079'552);  // Phi-3-mini's weight file
    EXPECT_EQ(shape.windowed_layers, 32);
}

TEST(LoadModel, CountsTheRotaryPositionsOfSmolLm3) {
    const json config{{"model_type", "smollm3"},  {"vocab_size", 128256},
                      {"hidden_size", 2048},      {"intermediate_size", 11008},
                      {"num_hidden_layers", 36},  {"num_attention_heads", 16},
                      {"num_key_value_heads", 4}, {"tie_word_embeddings", true}};
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    TransformerShape shape = load_model(folder / "config.json");
    EXPECT_EQ(shape.parameters(), 3'075'098'624);  // of SmolLM3-3B's sizes in transformers
    EXPECT_EQ(shape.layers_without_rope, 9);
    const double with_all = [all = shape]() mutable {
        all.layers_without_rope = 0;
        return all.elementwise_forward();
    }();
    EXPECT_EQ(with_all - shape.elementwise_forward(), 2.0 * (16 + 4) * 128 / 4);  // q and k
}

TEST(LoadModel, CountsTheParallelResidualOfPythia) {
    const json config{{"model_type", "gpt_neox"}, {"vocab_size", 50304},
                      {"hidden_size", 2560},      {"intermediate_size", 10240},
                      {"num_hidden_layers", 32},  {"num_attention_heads", 32}};
    const TempFolder folder;
    write_file(folder / "config.json", config.dump());
    TransformerShape shape = load_model(folder / "config.json");
    EXPECT_EQ(shape.parameters(), 2'775'208'960);  // as Pythia-2.8B's model card says
    const TransformerShape parallel = shape;
    shape.parallel_residual = false;
    // Neither what the MLP reads before its norm is kept, nor its gradient.
    EXPECT_EQ(shape.saved_bytes() - parallel.saved_bytes(), 2 * 2560);
    EXPECT_EQ(shape.for_weight_bytes() - parallel.for_weight_bytes(), 2 * 2560);
    shape.rotary_size = 0;
    EXPECT_EQ(shape.elementwise_forward() - parallel.elementwise_forward(),
              2.0 * 2 * 32 * (80 - 20));  // q and k are read and written
}

TEST(LoadModel, CountsTheLayersThatHaveAWindow) {
    const auto load = [](const char* model_type, const json& more) {
        json config = llama();
        config["model_type"] = model_type;
        config.update(more);
        const TempFolder folder;
        write_file(folder / "config.json", config.dump());
        return load_model(folder / "config.json");
    };
    EXPECT_EQ(load("llama", {{"sliding_window", 32}}).windowed_layers, 0);
    const TransformerShape mistral = load("mistral", {{"sliding_window", 32}});
    EXPECT_EQ(mistral.windowed_layers, 4);
    EXPECT_EQ(mistral.sliding_window, 32);
    EXPECT_EQ(load("mistral", {{"sliding_window", nullptr}}).windowed_layers, 0);
    EXPECT_EQ(load("gemma2", {{"head_dim", 16}}).windowed_layers, 2);
    EXPECT_EQ(
        load("qwen2", {{"use_sliding_window", true}, {"max_window_layers", 3}}).windowed_layers, 1);
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
                                            "product_idle_outputs",
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
