// SPDX-License-Identifier: Apache-2.0
// Adapters in steps, in PEFT's folders, and merged into the model.
#include "src/model/blocks/adapter.hpp"
#include "src/support/safetensors/reader.hpp"
#include "src/train/checkpoint/adapter_config.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/convert_checkpoint.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/stored_elements.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Curve = std::vector<std::string>;

/// Values of all tensors of a file.
std::map<std::string, std::vector<float>> values_in(const std::string& path) {
    const SafetensorsFile file(path);
    std::map<std::string, std::vector<float>> all;
    for (const StoredTensor& t : file.header().tensors) {
        std::vector<std::byte> bytes(t.end - t.begin);
        file.open().read(t.begin, bytes);
        std::vector<float>& values = all[t.name];
        values.resize(bytes.size() / item_size(t.type));
        with_elements(t.type, bytes.data(), [&](const auto& element) {
            for (size_t i = 0; i < values.size(); ++i) values[i] = element(static_cast<int64_t>(i));
        });
    }
    return all;
}

class AdaptersInCheckpoints : public ::testing::Test {
protected:
    /// Six steps in two pipelines of a model that was trained for two; saves after every third.
    [[nodiscard]] TrainOptions options(DType dtype, const std::string& folder) const {
        TrainOptions o = runs_.options();
        o.model.dtype = dtype;
        o.vocab_mode = VocabMode::one_barrier;
        o.pipeline_model_parallel_size = 2;
        o.schedule = "zb-h1";
        o.load = model(dtype);
        o.finetune = true;
        o.model.lora = {.rank = 3, .alpha = 4.5F, .target_modules = {"c_attn", "mlp.c_proj"}};
        o.save = runs_.path(folder);
        o.save_interval = 3;
        return o;
    }
    /// The folder of the model.
    [[nodiscard]] std::string model(DType dtype) const {
        const std::string folder = runs_.path(dtype == DType::fp32 ? "model32" : "model16");
        if (std::filesystem::exists(folder)) return folder;
        TrainOptions o = runs_.options();
        o.model.dtype = dtype;
        o.train_iters = 2;
        o.save = folder;
        (void)runs_.run(1, o);
        return folder;
    }
    [[nodiscard]] std::string step(const std::string& folder, int step) const {
        return step_folder(runs_.path(folder), step);
    }
    [[nodiscard]] std::map<std::string, std::vector<float>> weights(const std::string& folder,
                                                                    int number) const {
        return values_in(step(folder, number) + "/model.safetensors");
    }

    CheckpointRun runs_;
};

TEST_F(AdaptersInCheckpoints, ResumeWithTheBitsOfNeverHavingStopped) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const std::string folder = dtype == DType::fp32 ? "fp32" : "bf16";
        TrainOptions o = options(dtype, folder);
        const Curve whole = runs_.run(4, o);
        const auto before = values_in(step_folder(o.load, 2) + "/model.safetensors");
        const auto after = weights(folder, 6);
        for (const auto& [name, values] : before) EXPECT_EQ(after.at(name), values) << name;
        EXPECT_EQ(after.size(), before.size() + 2 * 2 * 4U);  // A and B of two layers' products
        std::filesystem::remove_all(step(folder, 6));
        o.load = runs_.path(folder);
        o.finetune = false;
        o.save = runs_.path(folder + " again");
        EXPECT_EQ(runs_.run(4, o), (Curve{whole.end() - 3, whole.end()}));
        EXPECT_EQ(weights(folder + " again", 6), after);
        EXPECT_NE(weights(folder, 3), after);
        const SafetensorsFile state(step(folder, 3) + "/optimizer.safetensors");
        for (const StoredTensor& t : state.header().tensors) {
            EXPECT_THAT(t.name, HasSubstr(kAdapterPrefix));
        }
        // Another number of ranks, of which two share each stage.
        o.save = runs_.path(folder + " in two");
        o.tensor_model_parallel_size = 2;
        const std::vector<double> two = CheckpointRun::losses(runs_.run(4, o));
        const std::vector<double> one = CheckpointRun::losses(whole);
        for (int i = 0; i < 3; ++i)
            EXPECT_NEAR(two[i], one[i + 3], dtype == DType::fp32 ? 3e-6 : 0.05);
    }
}

TEST_F(AdaptersInCheckpoints, OfAnotherKindAreRefused) {
    TrainOptions o = options(DType::fp32, "saved");
    (void)runs_.run(2, o);
    o.load = runs_.path("saved");
    o.finetune = false;
    o.train_iters = 12;
    o.save.clear();
    o.save_interval = 0;
    const auto refusal = [&](const LoraConfig& lora) {
        o.model.lora = lora;
        return message_of<Error>([&] { (void)runs_.run(2, o); });
    };
    const std::string theirs =
        R"(its adapters are {"r":3,"lora_alpha":4.5,"target_modules":["c_attn","mlp.c_proj"]})";
    EXPECT_THAT(refusal({}), HasSubstr(theirs + ", but this run has none; leave out the --lora"));
    EXPECT_THAT(refusal({.rank = 4, .alpha = 4.5F, .target_modules = {"c_attn", "mlp.c_proj"}}),
                HasSubstr(theirs));
    EXPECT_THAT(refusal({.rank = 3, .alpha = 4.5F}), HasSubstr(theirs));
}

TEST_F(AdaptersInCheckpoints, AreWrittenForPeftAndReadAgain) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const std::string name = dtype == DType::fp32 ? "32" : "16";
        TrainOptions o = options(dtype, "saved" + name);
        o.tensor_model_parallel_size = 2;
        const Curve whole = runs_.run(4, o);
        const std::string peft = runs_.path("peft" + name);
        convert_checkpoint(o.save, peft, {.adapter_only = true});
        const nlohmann::json config =
            nlohmann::json::parse(read_file(peft + "/adapter_config.json"));
        EXPECT_EQ(config["peft_type"], "LORA");
        EXPECT_EQ(config["r"], 3);
        EXPECT_EQ(config["lora_alpha"], 4.5);
        EXPECT_EQ(config["target_modules"], (std::vector<std::string>{"c_attn", "mlp.c_proj"}));
        EXPECT_EQ(config["fan_in_fan_out"], true);
        const auto adapters = values_in(peft + "/adapter_model.safetensors");
        EXPECT_EQ(adapters.size(), 2 * 2 * 4U);
        const auto all = weights("saved" + name, 6);
        for (const auto& [tensor, values] : adapters) EXPECT_EQ(all.at(tensor), values);
        EXPECT_EQ(adapters.at("base_model.model.transformer.h.3.attn.c_attn.lora_A.weight").size(),
                  3U * static_cast<size_t>(o.model.hidden_size));
        // A run that begins with the model and these adapters, and the one that trained them.
        o.model.lora = load_adapter_config(peft);
        o.load_adapter = peft;
        o.save.clear();
        o.save_interval = 0;
        const double loaded = CheckpointRun::losses(runs_.run(4, o))[0];
        o.load_adapter.clear();
        o.load = runs_.path("saved" + name);
        EXPECT_EQ(loaded, CheckpointRun::losses(runs_.run(4, o))[0]);
    }
}

TEST_F(AdaptersInCheckpoints, AreMergedWithOneRounding) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const std::string name = dtype == DType::fp32 ? "32" : "16";
        TrainOptions o = options(dtype, "saved" + name);
        (void)runs_.run(2, o);
        const auto step = weights("saved" + name, 6);
        convert_checkpoint(o.save, runs_.path("merged" + name), {.dtype = DType::fp32});
        const auto merged = values_in(runs_.path("merged" + name) + "/model.safetensors");
        EXPECT_EQ(load_model_config(runs_.path("merged" + name)).lora, LoraConfig());
        EXPECT_EQ(merged.size(), values_in(step_folder(o.load, 2) + "/model.safetensors").size());
        size_t changed = 0;
        for (const auto& [tensor, values] : merged) {
            const std::string module = tensor.substr(0, tensor.rfind('.'));
            const auto a = step.find(lora_a_name(module));
            if (a == step.end() || !tensor.ends_with(".weight")) {
                EXPECT_EQ(values, step.at(tensor)) << tensor;
                continue;
            }
            ++changed;
            const std::vector<float>& b = step.at(lora_b_name(module));
            const size_t in = a->second.size() / 3, out = b.size() / 3;
            for (size_t i = 0; i < in; ++i) {  // GPT-2's files have [in, out]
                for (size_t j = 0; j < out; ++j) {
                    double sum = 0;
                    for (size_t k = 0; k < 3; ++k) {
                        sum += double{b[j * 3 + k]} * double{a->second[k * in + i]};
                    }
                    const double want = double{step.at(tensor)[i * out + j]} + 1.5 * sum;
                    ASSERT_NEAR(values[i * out + j], want, std::abs(want) * 1.2e-7 + 1e-12);
                }
            }
        }
        EXPECT_EQ(changed, 2 * 4U);
        // The merged model computes what the model and its adapters compute.
        TrainOptions evaluate = runs_.options();
        evaluate.load = runs_.path("merged" + name);
        const double of_merged = CheckpointRun::losses(runs_.run(1, evaluate))[0];
        o.load = o.save;
        o.save.clear();
        o.save_interval = 0;
        EXPECT_NEAR(CheckpointRun::losses(runs_.run(1,
                                                    [&] {
                                                        o.pipeline_model_parallel_size = 1;
                                                        o.schedule = "1f1b";
                                                        return o;
                                                    }()))[0],
                    of_merged, dtype == DType::fp32 ? 1e-5 : 0.05);
    }
}

TEST_F(AdaptersInCheckpoints, ThatPeftComputesOtherwiseAreRefused) {
    const std::string folder = runs_.path("peft");
    std::filesystem::create_directories(folder);
    const nlohmann::json good = {{"peft_type", "LORA"},
                                 {"r", 3},
                                 {"lora_alpha", 6},
                                 {"target_modules", {"c_attn"}},
                                 {"bias", "none"},
                                 {"use_dora", false},
                                 {"rank_pattern", nlohmann::json::object()},
                                 {"lora_dropout", 0.05},
                                 {"modules_to_save", nullptr}};
    const auto read = [&](const nlohmann::json& json) {
        write_file(folder + "/adapter_config.json", json.dump());
        return load_adapter_config(folder);
    };
    const LoraConfig lora = read(good);
    EXPECT_EQ(lora.rank, 3);
    EXPECT_EQ(lora.scale(), 2);
    EXPECT_THAT(lora.target_modules, ElementsAre("c_attn"));
    const auto refusal = [&](const char* key, const nlohmann::json& value) {
        nlohmann::json json = good;
        json[key] = value;
        return message_of<InputFileError>([&] { (void)read(json); });
    };
    for (const auto& [key, value] : std::vector<std::pair<const char*, nlohmann::json>>{
             {"peft_type", "IA3"},
             {"r", 0},
             {"lora_alpha", 0},
             {"target_modules", ".*proj"},
             {"target_modules", nlohmann::json::array()},
             {"bias", "all"},
             {"use_dora", true},
             {"use_rslora", true},
             {"init_lora_weights", "pissa_niter_16"},
             {"rank_pattern", {{"c_attn", 8}}},
             {"modules_to_save", {"lm_head"}},
             {"something_new", 1}}) {
        EXPECT_THAT(refusal(key, value),
                    StartsWith(folder + "/adapter_config.json: " + std::string(key)))
            << key;
    }
    EXPECT_THAT(refusal("use_dora", true), HasSubstr("merge the adapters with PEFT"));
}

TEST_F(AdaptersInCheckpoints, ThatDoNotFitTheModelAreRefused) {
    TrainOptions o = options(DType::fp32, "saved");
    (void)runs_.run(2, o);
    const std::string peft = runs_.path("peft");
    convert_checkpoint(o.save, peft, {.adapter_only = true});
    const auto refusal = [&](const std::string& model) {
        return message_of<InputFileError>(
            [&] { Checkpoint(CheckpointSource{.folder = model, .adapter = peft}); });
    };
    const std::string model = step_folder(o.load, 2);
    EXPECT_NO_THROW(Checkpoint(CheckpointSource{.folder = model, .adapter = peft}));
    EXPECT_THAT(refusal(step("saved", 6)), HasSubstr("the step has adapters of its own"));
    EXPECT_THAT(message_of<InputFileError>([&] { (void)find_checkpoint(peft, false); }),
                HasSubstr("holds adapters without their model; load the model"));
    const std::string config = peft + "/adapter_config.json";
    const auto change = [&](const char* key, const nlohmann::json& value) {
        nlohmann::json json = nlohmann::json::parse(read_file(config));
        json[key] = value;
        write_file(config, json.dump());
    };
    change("target_modules", {"c_attn"});
    EXPECT_THAT(refusal(model), HasSubstr("lora_A.weight: belongs to no adapter of this model"));
    change("target_modules", {"c_attn", "c_proj"});
    EXPECT_THAT(refusal(model), HasSubstr("is missing; use the model that the adapters were"));
    change("target_modules", {"q_proj"});
    EXPECT_THAT(refusal(model), HasSubstr("no linear layer has this name"));
    EXPECT_THAT(message_of<UsageError>(
                    [&] { convert_checkpoint(o.load, runs_.path("to"), {.adapter_only = true}); }),
                HasSubstr("has no adapters; leave out the flag"));
    EXPECT_FALSE(std::filesystem::exists(runs_.path("to")));
}

}  // namespace
}  // namespace vocabpipe::testing
