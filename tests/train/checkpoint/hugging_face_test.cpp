// SPDX-License-Identifier: Apache-2.0
// GPT-2 as Hugging Face keeps it, from files made here byte by byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <functional>
#include <numeric>

#include "src/train/checkpoint/load_checkpoint.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/checkpoint/raw_safetensors.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kHidden = 32;
constexpr int64_t kFfn = 48;
constexpr int64_t kVocab = 61;
constexpr int64_t kPositions = 16;
constexpr int kLayers = 4;

/// Element i of a tensor in the file: a multiple of 1/64 that bf16 and fp16 hold exactly.
float value_of(const std::string& name, int64_t i) {
    const auto first = std::accumulate(name.begin(), name.end(), int64_t{0},
                                       [](int64_t sum, char c) { return sum * 31 % 1009 + c; });
    return static_cast<float>((first + 37 * i) % 101 - 50) / 64;
}

/// All but 0 are normal numbers in fp16.
uint16_t half_of(float value) {
    if (value == 0) return 0;
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t exponent = ((bits >> 23) & 0xffU) - 127 + 15;
    return static_cast<uint16_t>((bits >> 16 & 0x8000U) | exponent << 10 | (bits >> 13 & 0x3ffU));
}

RawTensor tensor(const std::string& name, const std::string& dtype, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    RawTensor t{name, dtype, shape_text(shape), ""};
    for (int64_t i = 0; i < count; ++i) {
        const float value = value_of(name, i);
        const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        const uint16_t half = dtype == "F16" ? half_of(value) : upper;
        if (dtype == "F32") {
            t.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
        } else {
            t.bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
        }
    }
    return t;
}

/// Names and shapes of GPT2LMHeadModel, written down here once more.
std::vector<RawTensor> gpt2_weights(const std::string& dtype, bool tied) {
    std::vector<RawTensor> all;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
        all.push_back(tensor(name, dtype, std::move(shape)));
    };
    add("transformer.wte.weight", {kVocab, kHidden});
    add("transformer.wpe.weight", {kPositions, kHidden});
    for (int i = 0; i < kLayers; ++i) {
        const std::string h = "transformer.h." + std::to_string(i) + ".";
        for (const std::string norm : {"ln_1", "ln_2"}) {
            add(h + norm + ".weight", {kHidden});
            add(h + norm + ".bias", {kHidden});
        }
        add(h + "attn.c_attn.weight", {kHidden, 3 * kHidden});
        add(h + "attn.c_attn.bias", {3 * kHidden});
        add(h + "attn.c_proj.weight", {kHidden, kHidden});
        add(h + "attn.c_proj.bias", {kHidden});
        add(h + "mlp.c_fc.weight", {kHidden, kFfn});
        add(h + "mlp.c_fc.bias", {kFfn});
        add(h + "mlp.c_proj.weight", {kFfn, kHidden});
        add(h + "mlp.c_proj.bias", {kHidden});
    }
    add("transformer.ln_f.weight", {kHidden});
    add("transformer.ln_f.bias", {kHidden});
    if (!tied) add("lm_head.weight", {kVocab, kHidden});
    return all;
}

void write_config(const std::string& folder, bool tied) {
    std::filesystem::create_directories(folder);
    write_file(folder + "/config.json",
               R"({"model_type": "gpt2", "vocab_size": 61, "n_positions": 16, "n_embd": 32, )"
               R"("n_layer": 4, "n_head": 2, "n_inner": 48, "activation_function": "gelu_new", )"
               R"("resid_pdrop": 0.1, "tie_word_embeddings": )" +
                   std::string(tied ? "true}" : "false}"));
}

/// A rank of a world of two that holds what it loaded, and where that must have been in the file.
void expect_loaded(const std::string& folder, bool tied, DType dtype, VocabMode mode) {
    ModelConfig config;
    config.num_layers = kLayers;
    config.hidden_size = kHidden;
    config.ffn_hidden_size = kFfn;
    config.num_attention_heads = 2;
    config.vocab_size = kVocab;
    config.seq_length = config.max_position_embeddings = kPositions;
    config.tied = tied;
    config.dtype = dtype;
    const Schedule schedule =
        generate("1f1b", {.ranks = 2, .microbatches = 2, .vocab_mode = mode, .vocab_size = kVocab});
    const std::unique_ptr<Device> device = make_host_device();
    for (int rank = 0; rank < 2; ++rank) {
        ModelRank model(config, {.layers_per_stage = {2, 2}}, schedule, rank, *device);
        Context ctx({.threads = 1, .poll = {}});
        const Checkpoint checkpoint(find_checkpoint(folder, false));
        EXPECT_FALSE(checkpoint.state());
        checkpoint.fill(model, ctx);
        for (const Parameter& p : model.store().parameters()) {
            const bool conv = p.logical_rows > 1 && p.name.find(".h.") != std::string::npos;
            for (int64_t r = 0; r < p.master.rows; ++r) {
                for (int64_t c = 0; c < p.master.cols; ++c) {
                    const int64_t at =
                        conv ? c * p.logical_rows + r : (p.first_row + r) * p.master.cols + c;
                    const float want = value_of(p.name, at);
                    ASSERT_EQ(p.master.as<float>()[r * p.master.cols + c], want)
                        << p.name << " row " << r << " column " << c;
                    if (dtype == DType::fp32) continue;
                    ASSERT_EQ(p.weight.as<uint16_t>()[r * p.master.cols + c],
                              std::bit_cast<uint32_t>(want) >> 16);
                }
            }
        }
    }
}

TEST(HuggingFaceGpt2, IsLoadedFromEveryTypeWithItsLinearWeightsTransposed) {
    for (const char* dtype : {"F32", "BF16", "F16"}) {
        for (const bool tied : {true, false}) {
            const TempFolder folder;
            write_config(folder / "m", tied);
            write_file(folder / "m/model.safetensors", raw_safetensors(gpt2_weights(dtype, tied)));
            for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
                SCOPED_TRACE(std::string(dtype) + (tied ? " tied" : " untied"));
                expect_loaded(folder / "m", tied, DType::fp32, mode);
                expect_loaded(folder / "m", tied, DType::bf16, mode);
            }
        }
    }
}

TEST(HuggingFaceGpt2, IsLoadedFromShardsAndWithTheNamesOfTheOriginal) {
    const TempFolder folder;
    write_config(folder / "m", true);
    std::vector<RawTensor> all = gpt2_weights("F32", true);
    std::vector<RawTensor> first(all.begin(), all.begin() + 20);
    std::vector<RawTensor> second(all.begin() + 20, all.end());
    write_file(folder / "m/model-00001-of-00002.safetensors", raw_safetensors(first));
    write_file(folder / "m/model-00002-of-00002.safetensors", raw_safetensors(second));
    std::string map;
    for (size_t i = 0; i < all.size(); ++i) {
        map += (i == 0 ? "\"" : ", \"") + all[i].name + "\": \"model-0000" + (i < 20 ? "1" : "2") +
               "-of-00002.safetensors\"";
    }
    write_file(folder / "m/model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
    expect_loaded(folder / "m", true, DType::fp32, VocabMode::one_barrier);

    for (RawTensor& t : all) t.name = t.name.substr(std::string("transformer.").size());
    all.push_back({"h.0.attn.bias", "F32", "[1, 1]", float_bytes({1})});
    all.push_back({"lm_head.weight", "F32", "[1]", float_bytes({1})});  // tied: not looked at
    write_config(folder / "original", true);
    write_file(folder / "original/model.safetensors", raw_safetensors(all));
    expect_loaded(folder / "original", true, DType::fp32, VocabMode::none);
}

TEST(HuggingFaceGpt2, IsSavedAsItWasLoadedByAStepThatLearnsNothing) {
    const CheckpointRun runs;
    for (const std::string dtype : {"F32", "BF16"}) {
        for (const bool tied : {true, false}) {
            const std::string name = dtype + (tied ? "" : "-untied");
            const std::vector<RawTensor> weights = gpt2_weights(dtype, tied);
            write_config(runs.path(name), tied);
            write_file(runs.path(name) + "/model.safetensors", raw_safetensors(weights));
            TrainOptions options = runs.options();
            options.load = runs.path(name);
            options.save = runs.path(name + "-saved");
            options.model.tied = tied;
            options.model.dtype = dtype == "F32" ? DType::fp32 : DType::bf16;
            options.lr = 0;
            options.train_iters = 2;
            EXPECT_EQ(runs.run(tied ? 2 : 3, options).size(), 2U);
            const SafetensorsFile saved(step_folder(options.save, 2) + "/model.safetensors");
            EXPECT_EQ(saved.header().tensors.size(), weights.size());
            EXPECT_EQ(saved.header().metadata.at("format"), "pt");
            for (const RawTensor& want : weights) {
                const StoredTensor* const found = saved.find(want.name);
                ASSERT_NE(found, nullptr) << want.name;
                EXPECT_EQ(name_of(found->type), dtype);
                EXPECT_EQ(shape_text(found->shape), want.shape);
                std::string bytes(found->end - found->begin, '\0');
                saved.read(found->begin, std::as_writable_bytes(std::span(bytes)));
                EXPECT_EQ(bytes, want.bytes) << want.name;
            }
        }
    }
}

TEST(HuggingFaceGpt2, IsRefusedWithFileAndTensorWhereItDoesNotFitItsConfig) {
    const TempFolder folder;
    write_config(folder / "m", true);
    const auto refused = [&](const std::function<void(std::vector<RawTensor>&)>& change) {
        std::vector<RawTensor> weights = gpt2_weights("F32", true);
        change(weights);
        write_file(folder / "m/model.safetensors", raw_safetensors(weights));
        return message_of<InputFileError>(
            [&] { const Checkpoint found(find_checkpoint(folder / "m", false)); });
    };
    const std::string path = folder / "m/model.safetensors";
    EXPECT_THAT(refused([](auto& w) { w.erase(w.begin() + 6); }),
                AllOf(HasSubstr(path + ": tensor transformer.h.0.attn.c_attn.weight: is missing")));
    EXPECT_THAT(refused([](auto& w) { w[6].shape = "[96, 32]"; }),
                HasSubstr("tensor transformer.h.0.attn.c_attn.weight: has shape [96, 32], "
                          "config.json makes it [32, 96]"));
    EXPECT_THAT(refused([](auto& w) { w[6].dtype = "I32"; }),
                HasSubstr("c_attn.weight: is I32, not F32, BF16 or F16; convert it"));
    EXPECT_THAT(refused([](auto& w) { w.push_back(tensor("score.weight", "F32", {2})); }),
                HasSubstr("tensor score.weight: is none of the model"));
    std::filesystem::remove(path);
    write_file(folder / "m/pytorch_model.bin", "");
    EXPECT_THAT(message_of<InputFileError>([&] { (void)find_checkpoint(folder / "m", false); }),
                HasSubstr("pickled weights are never read"));
}

}  // namespace
}  // namespace vocabpipe::testing
