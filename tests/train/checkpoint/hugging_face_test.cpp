// SPDX-License-Identifier: Apache-2.0
// Models as Hugging Face keeps them, from files made here byte by byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>
#include <numeric>
#include <sstream>
#include <utility>

#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/checkpoint/raw_safetensors.hpp"
#include "tests/train/checkpoint/transformers_files.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

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

RawTensor tensor(const std::string& name, const std::string& dtype, const std::string& shape) {
    int64_t count = 1;
    std::istringstream sizes(shape.substr(1));
    for (std::string size; std::getline(sizes, size, ',');) count *= std::stoll(size);
    RawTensor t{name, dtype, shape, ""};
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

/// Names and shapes that transformers gives the model.
std::vector<RawTensor> weights_of(const TransformersFiles& model, const std::string& dtype) {
    std::vector<RawTensor> all;
    std::istringstream lines(model.tensors);
    for (std::string name, shape; lines >> name && std::getline(lines >> std::ws, shape);) {
        all.push_back(tensor(name, dtype, shape));
    }
    return all;
}

void write_model(const std::string& folder, const std::string& config,
                 const std::vector<RawTensor>& weights) {
    std::filesystem::create_directories(folder);
    write_file(folder + "/config.json", config);
    write_file(folder + "/model.safetensors", raw_safetensors(weights));
}

ModelConfig config_of(const TransformersFiles& model) {
    ModelConfig config = parse_model_config(model.config, model.model_type);
    config.seq_length = config.max_position_embeddings;
    return config;
}

/// The file's tensor that has a row of a parameter, and where in it the row is.
std::pair<std::string, int64_t> stored_row(const ModelConfig& c, std::string name, int64_t row) {
    const auto split = [&](const std::string& whole,
                           std::vector<std::pair<const char*, int64_t>> parts) {
        const size_t at = name.find(whole);
        if (at == std::string::npos) return;
        size_t part = 0;
        while (row >= parts[part].second) row -= parts[part++].second;
        name.replace(at, whole.size(), parts[part].first);
    };
    const int64_t kv = c.kv_heads() * c.head_size();
    split("qkv_proj", {{"q_proj", c.query_columns()}, {"k_proj", kv}, {"v_proj", kv}});
    split("gate_up_proj", {{"gate_proj", c.ffn_hidden_size}, {"up_proj", c.ffn_hidden_size}});
    return {name, row};
}

/// A rank of a world of two that holds what it loaded, and where that must have been in the file.
void expect_loaded(const std::string& folder, ModelConfig config, DType dtype, VocabMode mode) {
    config.dtype = dtype;
    const Schedule schedule = generate(
        "1f1b",
        {.ranks = 2, .microbatches = 2, .vocab_mode = mode, .vocab_size = config.vocab_size});
    const std::unique_ptr<Device> device = make_host_device();
    for (int rank = 0; rank < 2; ++rank) {
        ModelRank model(config, {.layers_per_stage = {1, 1}}, schedule, rank, *device);
        Context ctx({.threads = 1, .poll = {}});
        const Checkpoint checkpoint(find_checkpoint(folder, false));
        EXPECT_FALSE(checkpoint.state());
        checkpoint.fill(model, ctx);
        for (const Parameter& p : model.store().parameters()) {
            const bool conv = p.logical_rows > 1 && p.name.find(".h.") != std::string::npos;
            const bool vector = !p.weight_decay;
            for (int64_t i = 0; i < p.master.size(); ++i) {
                const int64_t r = vector ? i : i / p.master.cols;
                const int64_t c = vector ? 0 : i % p.master.cols;
                const auto [name, row] = stored_row(config, p.name, p.first_row + r);
                const int64_t at = conv     ? c * p.logical_rows + row
                                   : vector ? row
                                            : row * p.master.cols + c;
                const float want = value_of(name, at);
                ASSERT_EQ(p.master.as<float>()[i], want)
                    << p.name << " row " << r << " column " << c;
                if (dtype == DType::fp32) continue;
                ASSERT_EQ(p.weight.as<uint16_t>()[i], std::bit_cast<uint32_t>(want) >> 16);
            }
        }
    }
}

/// Of a test whose failure names it.
std::string label(const TransformersFiles& model) {
    return model.model_type + " " + model.config;
}

TEST(HuggingFace, HasTheNamesAndShapesThatTransformersSaves) {
    for (const TransformersFiles& model : kTransformersFiles) {
        std::vector<std::string> lines;
        for (const StoredTensor& t : model_file_tensors(config_of(model))) {
            lines.push_back(t.name + " " + shape_text(t.shape) + "\n");
        }
        std::sort(lines.begin(), lines.end());
        std::string text = "\n";
        for (const std::string& line : lines) text += line;
        EXPECT_EQ(text, model.tensors) << label(model);
    }
}

TEST(HuggingFace, ConfigurationsOfTransformersAreReadAndPrinted) {
    for (const TransformersFiles& model : kTransformersFiles) {
        const ModelConfig config = config_of(model);
        EXPECT_EQ(to_string(config.family), model.model_type);
        EXPECT_NO_THROW(check_same_model(parse_model_config(print_model_config(config), "printed"),
                                         "printed", config));
    }
}

TEST(HuggingFace, IsLoadedFromEveryType) {
    for (const TransformersFiles& model : kTransformersFiles) {
        for (const char* dtype : {"F32", "BF16", "F16"}) {
            const TempFolder folder;
            write_model(folder / "m", model.config, weights_of(model, dtype));
            for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
                SCOPED_TRACE(std::string(dtype) + " " + label(model));
                expect_loaded(folder / "m", config_of(model), DType::fp32, mode);
                expect_loaded(folder / "m", config_of(model), DType::bf16, mode);
            }
        }
    }
}

TEST(HuggingFace, IsLoadedFromShardsAndWithoutTheNameOfTheBody) {
    for (const TransformersFiles& model : kTransformersFiles) {
        SCOPED_TRACE(label(model));
        const ModelConfig config = config_of(model);
        const TempFolder folder;
        std::vector<RawTensor> all = weights_of(model, "F32");
        std::vector<RawTensor> first(all.begin(), all.begin() + 20);
        std::vector<RawTensor> second(all.begin() + 20, all.end());
        std::filesystem::create_directories(folder / "m");
        write_file(folder / "m/config.json", model.config);
        write_file(folder / "m/model-00001-of-00002.safetensors", raw_safetensors(first));
        write_file(folder / "m/model-00002-of-00002.safetensors", raw_safetensors(second));
        std::string map;
        for (size_t i = 0; i < all.size(); ++i) {
            map += (i == 0 ? "\"" : ", \"") + all[i].name + "\": \"model-0000" +
                   (i < 20 ? "1" : "2") + "-of-00002.safetensors\"";
        }
        write_file(folder / "m/model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
        expect_loaded(folder / "m", config, DType::fp32, VocabMode::one_barrier);

        const std::string body(body_prefix(config.family));
        for (RawTensor& t : all) {
            if (t.name.starts_with(body)) t.name = t.name.substr(body.size());
        }
        if (config.family == ModelFamily::gpt2) {
            all.push_back({"h.0.attn.bias", "F32", "[1, 1]", float_bytes({1})});
        } else {
            all.push_back(
                {"layers.0.self_attn.rotary_emb.inv_freq", "F32", "[1]", float_bytes({1})});
        }
        if (config.tied) all.push_back({"lm_head.weight", "F32", "[1]", float_bytes({1})});
        write_model(folder / "original", model.config, all);
        expect_loaded(folder / "original", config, DType::fp32, VocabMode::none);
    }
}

TEST(HuggingFace, IsSavedAsItWasLoadedByAStepThatLearnsNothing) {
    const CheckpointRun runs;
    int count = 0;
    for (const TransformersFiles& model : kTransformersFiles) {
        for (const std::string dtype : {"F32", "BF16"}) {
            SCOPED_TRACE(dtype + " " + label(model));
            const std::string name = std::to_string(++count);
            const std::vector<RawTensor> weights = weights_of(model, dtype);
            write_model(runs.path(name), model.config, weights);
            TrainOptions options = runs.options();
            options.model = config_of(model);
            options.model.dtype = dtype == "F32" ? DType::fp32 : DType::bf16;
            options.load = runs.path(name);
            options.save = runs.path(name + "-saved");
            options.lr = 0;
            options.train_iters = 2;
            EXPECT_EQ(runs.run(2, options).size(), 2U);
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

TEST(HuggingFace, IsTrainedOnFromAStepAtAnotherNumberOfRanks) {
    const CheckpointRun runs;
    int count = 0;
    for (const TransformersFiles& model : kTransformersFiles) {
        SCOPED_TRACE(label(model));
        TrainOptions options = runs.options();
        options.model = config_of(model);
        options.vocab_mode = VocabMode::none;  // the same bits at any number of ranks
        const std::vector<std::string> whole = runs.run(1, options);
        options.save = runs.path(std::to_string(++count));
        options.save_interval = 4;
        EXPECT_EQ(runs.run(2, options).size(), whole.size());
        options.load = step_folder(options.save, 4);
        options.save.clear();
        options.save_interval = 0;
        const std::vector<std::string> rest = runs.run(1, options);
        ASSERT_EQ(rest.size(), 2U);
        EXPECT_EQ(rest[0], whole[4]);
        EXPECT_EQ(rest[1], whole[5]);
    }
}

TEST(HuggingFace, IsRefusedWithFileAndTensorWhereItDoesNotFitItsConfig) {
    const TempFolder folder;
    const auto refused = [&](const TransformersFiles& model, const std::string& name,
                             const std::function<void(std::vector<RawTensor>&, size_t)>& change) {
        std::vector<RawTensor> weights = weights_of(model, "F32");
        const auto found = std::find_if(weights.begin(), weights.end(),
                                        [&](const RawTensor& t) { return t.name == name; });
        EXPECT_NE(found, weights.end()) << name;
        change(weights, static_cast<size_t>(found - weights.begin()));
        write_model(folder / "m", model.config, weights);
        return message_of<InputFileError>(
            [&] { const Checkpoint checkpoint(find_checkpoint(folder / "m", false)); });
    };
    const std::string path = folder / "m/model.safetensors";
    const TransformersFiles& gpt2 = kTransformersFiles.front();
    const std::string conv = "transformer.h.0.attn.c_attn.weight";
    EXPECT_THAT(refused(gpt2, conv, [](auto& w, size_t i) { w[i].shape = "[96, 32]"; }),
                HasSubstr(path + ": tensor " + conv +
                          ": has shape [96, 32], config.json makes it [32, 96]"));
    for (const TransformersFiles& model : kTransformersFiles) {
        if (model.model_type == "gpt2") continue;
        const std::string k = "model.layers.1.self_attn.k_proj.weight";
        EXPECT_THAT(refused(model, k, [](auto& w, size_t i) { w.erase(w.begin() + i); }),
                    HasSubstr(path + ": tensor " + k + ": is missing"));
        EXPECT_THAT(refused(model, k, [](auto& w, size_t i) { w[i].dtype = "I32"; }),
                    HasSubstr(k + ": is I32, not F32, BF16 or F16; convert it"));
        EXPECT_THAT(
            refused(model, k,
                    [](auto& w, size_t) { w.push_back(tensor("score.weight", "F32", "[2]")); }),
            HasSubstr("tensor score.weight: is none of the model"));
        // What would clear a terminal is shown as it is written in the file.
        const std::string odd = R"(a\u001b[2J\nb)";
        EXPECT_THAT(
            refused(model, k, [&](auto& w, size_t) { w.push_back(tensor(odd, "F32", "[2]")); }),
            HasSubstr(": tensor \"" + odd + "\": is none of the model"));
    }
    std::filesystem::remove(path);
    write_file(folder / "m/pytorch_model.bin", "");
    EXPECT_THAT(message_of<InputFileError>([&] { (void)find_checkpoint(folder / "m", false); }),
                HasSubstr("pickled weights are never read"));
}

}  // namespace
}  // namespace vocabpipe::testing
