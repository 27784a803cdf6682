// SPDX-License-Identifier: Apache-2.0
// Models as Hugging Face keeps them, from files made here byte by byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "src/model/families/families.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/checkpoint/hugging_face_models.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// The same for latent attention: files keep rotary positions behind the others, pair by pair, and
/// keys and values head by head.
std::pair<std::string, int64_t> stored_row_of_latents(const ModelConfig& c, std::string name,
                                                      int64_t row) {
    const LatentConfig& latent = c.latent;
    const int64_t size = c.head_size(), rope = latent.rope_size, key = latent.key_size;
    const auto rename = [&](const std::string& part, const char* to) {
        const size_t at = name.find(part);
        if (at == std::string::npos) return false;
        name.replace(at, part.size(), to);
        return true;
    };
    const auto rotary = [&](int64_t i) {
        return !latent.interleaved ? i : i < rope / 2 ? 2 * i : 2 * (i - rope / 2) + 1;
    };
    const auto query = [&](int64_t of) {
        const int64_t i = of % size;
        return of / size * size + (i < rope ? key + rotary(i) : i - rope);
    };
    const int64_t q = latent.q_rank > 0 ? latent.q_rank : c.num_attention_heads * size;
    if (name.find("qkv_a_proj") != std::string::npos) {
        if (row < q) {
            rename("qkv_a_proj", latent.q_rank > 0 ? "q_a_proj" : "q_proj");
            return {name, latent.q_rank > 0 ? row : query(row)};
        }
        rename("qkv_a_proj", "kv_a_proj_with_mqa");
        row -= q;
        return {name, row < latent.kv_rank ? row : latent.kv_rank + rotary(row - latent.kv_rank)};
    }
    if (name.find("q_b_proj") != std::string::npos) return {name, query(row)};
    if (name.find("kv_b_proj") == std::string::npos) return {name, row};
    const int64_t keys = c.num_attention_heads * key, value = latent.value_size;
    const bool of_key = row < keys;
    const int64_t head = of_key ? row / key : (row - keys) / value;
    return {name, head * (key + value) + (of_key ? row % key : key + (row - keys) % value)};
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
    if (c.family == "phi3") return {name, row};
    if (name.find("_a_proj") != std::string::npos || name.find("_b_proj") != std::string::npos) {
        return stored_row_of_latents(c, name, row);
    }
    const auto split_experts = [&](const std::string& whole, std::vector<const char*> parts,
                                   int64_t rows) {
        const size_t at = name.find(whole);
        if (at == std::string::npos) return;
        const auto of_expert = static_cast<int64_t>(parts.size()) * rows;
        name.replace(at, whole.size(),
                     std::to_string(row / of_expert) + "." +
                         parts[static_cast<size_t>(row % of_expert / rows)]);
        row %= rows;
    };
    if (name.find("shared_expert.") != std::string::npos) {
        split("gate_up",
              {{"gate_proj", c.shared_ffn_hidden_size()}, {"up_proj", c.shared_ffn_hidden_size()}});
        split("down.weight", {{"down_proj.weight", c.hidden_size}});
        return {name, row};
    }
    if (name.find("shared_experts.") != std::string::npos) {
        const int64_t shared = c.shared_ffn_hidden_size();
        split("gate_up_proj", {{"gate_proj", shared}, {"up_proj", shared}});
        return {name, row};
    }
    const bool mixtral = c.family == "mixtral";
    split_experts("gate_up.weight",
                  mixtral ? std::vector{"w1.weight", "w3.weight"}
                          : std::vector{"gate_proj.weight", "up_proj.weight"},
                  c.expert_ffn_hidden_size());
    split_experts("down.weight", {mixtral ? "w2.weight" : "down_proj.weight"}, c.hidden_size);
    const int64_t kv = c.kv_heads() * c.head_size();
    split("qkv_proj", {{"q_proj", c.query_columns()}, {"k_proj", kv}, {"v_proj", kv}});
    if (name.find("query_key_value") != std::string::npos) {  // q, k and v of a head together
        const int64_t which = row / c.query_columns();
        const int64_t head = row % c.query_columns() / c.head_size();
        row = (3 * head + which) * c.head_size() + row % c.head_size();
    }
    split("gate_up_proj", {{"gate_proj", c.ffn_hidden_size}, {"up_proj", c.ffn_hidden_size}});
    return {name, row};
}

/// A rank of a world of two that holds what it loaded, and where that must have been in the file.
void expect_loaded(const std::string& folder, ModelConfig config, DType dtype, VocabMode mode) {
    config.dtype = dtype;
    const Schedule schedule = make_schedule(
        "1f1b",
        {.ranks = 2, .microbatches = 2, .vocab_mode = mode, .vocab_size = config.vocab_size});
    const std::unique_ptr<Device> device = make_host_device();
    for (int rank = 0; rank < 2; ++rank) {
        ModelRank model(config, {.layers_per_stage = {1, 1}}, schedule, rank, *device);
        Context ctx({.threads = 1, .poll = {}});
        const Checkpoint checkpoint(find_checkpoint(folder, false));
        EXPECT_FALSE(checkpoint.state());
        checkpoint.fill(model, ctx);
        for (const Parameter& p : model.parameters()) {
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
                if (p.weight.dtype == DType::fp32) continue;
                ASSERT_EQ(p.weight.as<uint16_t>()[i], std::bit_cast<uint32_t>(want) >> 16);
            }
        }
    }
}

TEST(HuggingFace, HasTheNamesAndShapesThatTransformersSaves) {
    for (const TransformersFiles& model : transformers_files()) {
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
    for (const TransformersFiles& model : transformers_files()) {
        const ModelConfig config = config_of(model);
        EXPECT_EQ(config.family, model.model_type);
        EXPECT_NO_THROW(check_same_model(parse_model_config(print_model_config(config), "printed"),
                                         "printed", config));
    }
}

// transformers drops the layers of depths, and keeps their number.
TEST(HuggingFace, WithoutTensorsOfTheDepthsThatItNamesIsAModelWithoutThem) {
    for (const TransformersFiles& model : transformers_files()) {
        if (model.model_type != "deepseek_v3") continue;
        nlohmann::json named = nlohmann::json::parse(model.config);
        named["num_nextn_predict_layers"] = 1;
        const TempFolder folder;
        write_model(folder / "m", named.dump(), weights_of(model, "F32"));
        EXPECT_EQ(load_model_config(folder / "m").mtp_num_layers, 0);
        EXPECT_EQ(load_model_config(folder / "m/config.json").mtp_num_layers, 1);
        EXPECT_EQ(Checkpoint(find_checkpoint(folder / "m", false)).config().mtp_num_layers, 0);
        // A folder with some of them must have all.
        std::vector<RawTensor> some = weights_of(model, "F32");
        some.push_back(some.front());
        some.back().name = "model.layers.2.eh_proj.weight";
        write_model(folder / "some", named.dump(), some);
        EXPECT_EQ(load_model_config(folder / "some").mtp_num_layers, 1);
        EXPECT_THROW(Checkpoint(find_checkpoint(folder / "some", false)), InputFileError);
    }
}

TEST(HuggingFace, IsLoadedFromEveryType) {
    for (const TransformersFiles& model : transformers_files()) {
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
    for (const TransformersFiles& model : transformers_files()) {
        SCOPED_TRACE(label(model));
        const ModelConfig config = config_of(model);
        const TempFolder folder;
        std::vector<RawTensor> all = weights_of(model, "F32");
        const size_t half = all.size() / 2;
        const std::vector<RawTensor> first(all.begin(), all.begin() + static_cast<int>(half));
        const std::vector<RawTensor> second(all.begin() + static_cast<int>(half), all.end());
        std::filesystem::create_directories(folder / "m");
        write_file(folder / "m/config.json", model.config);
        write_file(folder / "m/model-00001-of-00002.safetensors", raw_safetensors(first));
        write_file(folder / "m/model-00002-of-00002.safetensors", raw_safetensors(second));
        std::string map;
        for (size_t i = 0; i < all.size(); ++i) {
            map += (i == 0 ? "\"" : ", \"") + all[i].name + "\": \"model-0000" +
                   (i < half ? "1" : "2") + "-of-00002.safetensors\"";
        }
        write_file(folder / "m/model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
        expect_loaded(folder / "m", config, DType::fp32, VocabMode::one_barrier);

        const std::string body(body_prefix(config));
        for (RawTensor& t : all) {
            if (t.name.starts_with(body)) t.name = t.name.substr(body.size());
        }
        if (config.family == "gpt2") {
            all.push_back({"h.0.attn.bias", "F32", "[1, 1]", float_bytes({1})});
        } else {
            all.push_back(
                {"layers.0.self_attn.rotary_emb.inv_freq", "F32", "[1]", float_bytes({1})});
        }
        if (config.tied) {  // the same values under its other name
            RawTensor output = *std::ranges::find(
                all, weight_name(config, &TensorNames::embedding).substr(body.size()),
                &RawTensor::name);
            output.name = weight_name(config, &TensorNames::output);
            all.push_back(std::move(output));
        }
        write_model(folder / "original", model.config, all);
        expect_loaded(folder / "original", config, DType::fp32, VocabMode::none);
    }
}

TEST(HuggingFace, IsSavedAsItWasLoadedByAStepThatLearnsNothing) {
    const CheckpointRun runs;
    int count = 0;
    for (const TransformersFiles& model : transformers_files()) {
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
                EXPECT_EQ(name_of(found->type), want.dtype);
                EXPECT_EQ(shape_text(found->shape), want.shape);
                std::string bytes(found->end - found->begin, '\0');
                saved.open().read(found->begin, std::as_writable_bytes(std::span(bytes)));
                EXPECT_EQ(bytes, want.bytes) << want.name;
            }
        }
    }
}

TEST(HuggingFace, IsTrainedOnFromAStepAtAnotherNumberOfRanks) {
    const CheckpointRun runs;
    int count = 0;
    for (const TransformersFiles& model : transformers_files()) {
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

TEST(HuggingFace, IsSavedInShardsThatAreVerifiedResumedAndRemovedLikeOneFile) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.model = config_of(transformers_files().back());
    options.vocab_mode = VocabMode::none;
    options.save = runs.path("one");
    options.save_interval = 4;
    const std::vector<std::string> whole = runs.run(2, options);
    options.save = runs.path("shards");
    options.max_shard_bytes = 12000;
    EXPECT_EQ(runs.run(2, options), whole);
    const std::string step = step_folder(options.save, 4);
    const TensorFolder one(step_folder(runs.path("one"), 4));
    const TensorFolder shards(step);
    EXPECT_GT(shards.files().size(), 3U);
    EXPECT_EQ(shards.path(), step + "/model.safetensors.index.json");
    EXPECT_EQ(shards.tensors().size(), one.tensors().size());
    Checkpoint({step, true}).verify();

    TrainOptions rest = options;
    rest.load = step;
    rest.save.clear();
    rest.save_interval = 0;
    EXPECT_EQ(runs.run(1, rest), std::vector(whole.begin() + 4, whole.end()));

    options.load = options.save;
    options.train_iters = 8;
    options.save_total_limit = 1;
    EXPECT_EQ(runs.run(2, options).size(), 2U);
    EXPECT_FALSE(std::filesystem::exists(step));
    const std::string last = step_folder(options.save, 8);
    const std::string shard = TensorFolder(last).files()[1]->path();
    for (const std::string& path : {shard, last + "/model.safetensors.index.json"}) {
        const std::string bytes = read_file(path);
        std::string damaged = bytes;
        damaged[damaged.size() - 8] ^= 1;  // of a file name in the index, of data in a shard
        write_file(path, damaged);
        EXPECT_THROW(Checkpoint({last, true}).verify(), Error) << path;
        write_file(path, bytes);
    }
    Checkpoint({last, true}).verify();
}

TEST(HuggingFace, WithMoreShardsThanAProcessMayOpenIsSavedAndLoadedByItsRanks) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.train_iters = 2;
    options.save = runs.path("shards");
    options.max_shard_bytes = 1;  // a tensor each
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit few{40, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::string error;
    try {
        for (const bool async : {false, true}) {
            options.async_save = async;
            std::filesystem::remove_all(options.save);
            (void)runs.run(4, options);
        }
        options.load = options.save;
        options.save.clear();
        options.async_save = false;
        options.train_iters = 3;
        EXPECT_EQ(runs.run(3, options).size(), 1U);
    } catch (const Error& failed) {
        error = failed.what();
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(error, "");
    EXPECT_GT(TensorFolder(step_folder(runs.path("shards"), 2)).files().size(), 40U);
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
    const TransformersFiles& gpt2 = transformers_files().front();
    const std::string conv = "transformer.h.0.attn.c_attn.weight";
    EXPECT_THAT(refused(gpt2, conv, [](auto& w, size_t i) { w[i].shape = "[96, 32]"; }),
                HasSubstr(path + ": tensor " + conv +
                          ": has shape [96, 32], but config.json requires [32, 96]"));
    for (const TransformersFiles& model : transformers_files()) {
        if (model.model_type == "gpt2") continue;
        const TensorNames& names = model_family(model.model_type).tensors;
        const std::string down =
            names.layers + "1." +
            (names.experts.empty() ? names.fc_proj : names.experts + "2." + names.expert_down) +
            ".weight";
        EXPECT_THAT(refused(model, down, [](auto& w, size_t i) { w.erase(w.begin() + i); }),
                    HasSubstr(path + ": tensor " + down + ": is missing"));
        EXPECT_THAT(refused(model, down, [](auto& w, size_t i) { w[i].dtype = "I32"; }),
                    HasSubstr(down + ": is I32; expected F32, BF16 or F16; convert it"));
        EXPECT_THAT(
            refused(model, down,
                    [](auto& w, size_t) { w.push_back(tensor("score.weight", "F32", "[2]")); }),
            HasSubstr("tensor score.weight: is not part of the model"));
        // What would clear a terminal is shown as it is written in the file.
        const std::string odd = R"(a\u001b[2J\nb)";
        EXPECT_THAT(
            refused(model, down, [&](auto& w, size_t) { w.push_back(tensor(odd, "F32", "[2]")); }),
            HasSubstr(": tensor \"" + odd + "\": is not part of the model"));
    }
    std::filesystem::remove(path);
    write_file(folder / "m/pytorch_model.bin", "");
    EXPECT_THAT(message_of<InputFileError>([&] { (void)find_checkpoint(folder / "m", false); }),
                HasSubstr("pickled weights are never read"));
}

}  // namespace
}  // namespace vocabpipe::testing
