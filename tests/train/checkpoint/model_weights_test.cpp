// SPDX-License-Identifier: Apache-2.0
// The ways in which files name the weights of a model, and tensors that no model may drop.
#include "src/train/checkpoint/model_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/train/checkpoint/convert_checkpoint.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/checkpoint/hugging_face_models.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A model of a family with a tied weight, whether or not transformers' example has one.
struct TiedModel {
    explicit TiedModel(const TransformersFiles& model, const std::string& dtype = "F32")
        : weights(weights_of(model, dtype)) {
        nlohmann::json json = nlohmann::json::parse(model.config);
        json["tie_word_embeddings"] = true;
        text = json.dump();
        json["tie_word_embeddings"] = false;
        untied_text = json.dump();
        const ModelConfig config = config_of(model);
        embedding = weight_name(config, &TensorNames::embedding);
        output = weight_name(config, &TensorNames::output);
        std::erase_if(weights, [&](const RawTensor& t) { return t.name == output; });
    }
    [[nodiscard]] RawTensor& of(const std::string& name) {
        return *std::ranges::find(weights, name, &RawTensor::name);
    }
    /// The embedding once more, as the output layer's.
    RawTensor& add_output() {
        weights.push_back(of(embedding));
        weights.back().name = output;
        return weights.back();
    }

    std::string text, untied_text, embedding, output;
    std::vector<RawTensor> weights;
};

std::string refused_folder(const std::string& folder) {
    return message_of<Error>([&] { Checkpoint({folder, false}).verify(); });
}

TEST(TiedWeight, ThatIsStoredTwiceWithEqualValuesIsOne) {
    for (const TransformersFiles& model : transformers_files()) {
        SCOPED_TRACE(label(model));
        const TempFolder folder;
        TiedModel tied(model);
        const std::vector<RawTensor> once = tied.weights;
        tied.add_output();
        write_model(folder / "m", tied.text, tied.weights);
        EXPECT_NO_THROW(Checkpoint({folder / "m", false}).verify());
        convert_checkpoint(folder / "m", folder / "to", {});
        expect_weights(folder / "to", once);
    }
}

TEST(TiedWeight, MayBeStoredTwiceInTwoTypesThatHoldItExactly) {
    const TransformersFiles& model = transformers_files().front();
    const TempFolder folder;
    TiedModel tied(model, "BF16");
    const TiedModel wide(model, "F32");
    RawTensor& output = tied.add_output();
    output = *std::ranges::find(wide.weights, tied.embedding, &RawTensor::name);
    output.name = tied.output;
    write_model(folder / "m", tied.text, tied.weights);
    EXPECT_NO_THROW(Checkpoint({folder / "m", false}).verify());
}

TEST(TiedWeight, ThatIsStoredTwiceWithOtherValuesIsRefusedByBothNames) {
    for (const TransformersFiles& model : transformers_files()) {
        SCOPED_TRACE(label(model));
        const TempFolder folder;
        TiedModel tied(model);
        tied.add_output().bytes.back() ^= 1;  // the sign and exponent of the last element
        write_model(folder / "m", tied.text, tied.weights);
        const ModelConfig config = parse_model_config(tied.text, "m");
        const auto says =
            AllOf(HasSubstr(folder /
                            ("m/model.safetensors: tensor " + tied.output + ": differs from " +
                             tied.embedding + " in row " + std::to_string(config.vocab_size - 1))),
                  HasSubstr("set tie_word_embeddings to false there to load both"));
        EXPECT_THAT(refused_folder(folder / "m"), says);
        EXPECT_THAT(message_of<Error>([&] { convert_checkpoint(folder / "m", folder / "to", {}); }),
                    says);
        EXPECT_FALSE(std::filesystem::exists(folder / "to"));

        write_file(folder / "m/config.json", tied.untied_text);
        convert_checkpoint(folder / "m", folder / "to", {});
        expect_weights(folder / "to", tied.weights);
    }
}

TEST(TiedWeight, ThatDiffersEndsARunOfSeveralRanks) {
    const CheckpointRun runs;
    const TransformersFiles& model = transformers_files().front();
    TiedModel tied(model);
    tied.add_output().bytes.front() ^= 1;
    write_model(runs.path("m"), tied.text, tied.weights);
    TrainOptions options = runs.options();
    options.model = parse_model_config(tied.text, "m");
    options.load = runs.path("m");
    EXPECT_THAT(message_of<Error>([&] { (void)runs.run(2, options); }),
                HasSubstr("tensor lm_head.weight: differs from transformer.wte.weight in row 0"));
}

TEST(TiedWeight, MayHaveTheNameOfTheOutputLayerAlone) {
    for (const TransformersFiles& model : transformers_files()) {
        SCOPED_TRACE(label(model));
        const TempFolder folder;
        TiedModel tied(model);
        const std::vector<RawTensor> usual = tied.weights;
        tied.of(tied.embedding).name = tied.output;
        write_model(folder / "m", tied.text, tied.weights);
        convert_checkpoint(folder / "m", folder / "to", {});
        expect_weights(folder / "to", usual);
        tied.of(tied.output).shape = "[1, 2]";
        tied.of(tied.output).bytes.resize(8);
        write_model(folder / "m", tied.text, tied.weights);
        EXPECT_THAT(refused_folder(folder / "m"),
                    HasSubstr("tensor " + tied.output + ": has shape [1, 2]"));

        write_model(folder / "untied", tied.untied_text, tied.weights);
        EXPECT_THAT(refused_folder(folder / "untied"),
                    HasSubstr("tensor " + tied.embedding + ": is missing"));
    }
}

/// The same weights with all experts of a layer together, as transformers 5 keeps them in memory.
std::vector<RawTensor> stacked(const TransformersFiles& model, const std::string& dtype) {
    const ModelConfig config = config_of(model);
    const TensorNames& names = model_family(config.family).tensors;
    std::vector<RawTensor> all = weights_of(model, dtype);
    const auto take = [&](const std::string& name) {
        const auto found = std::ranges::find(all, name, &RawTensor::name);
        RawTensor tensor = *found;
        all.erase(found);
        return tensor;
    };
    for (int layer = 0; layer < config.num_layers; ++layer) {
        if (!config.moe.in_layer(layer)) continue;
        const std::string of_layer = names.layers + std::to_string(layer) + ".";
        RawTensor gate_up{of_layer + "mlp.experts.gate_up_proj", dtype, "", ""};
        RawTensor down{of_layer + "mlp.experts.down_proj", dtype, "", ""};
        for (int64_t expert = 0; expert < config.moe.experts; ++expert) {
            const std::string of_expert = of_layer + names.experts + std::to_string(expert) + ".";
            gate_up.bytes += take(of_expert + names.expert_gate + ".weight").bytes;
            gate_up.bytes += take(of_expert + names.expert_up + ".weight").bytes;
            down.bytes += take(of_expert + names.expert_down + ".weight").bytes;
        }
        const int64_t f = config.expert_ffn_hidden_size();
        gate_up.shape = shape_text({config.moe.experts, 2 * f, config.hidden_size});
        down.shape = shape_text({config.moe.experts, config.hidden_size, f});
        all.push_back(std::move(gate_up));
        all.push_back(std::move(down));
        RawTensor router = take(of_layer + names.router + ".weight");
        router.name = of_layer + "mlp.gate.weight";
        all.push_back(std::move(router));
    }
    return all;
}

TEST(StackedExperts, AreReadInEveryFamilyAndType) {
    int families = 0;
    for (const TransformersFiles& model : transformers_files()) {
        if (config_of(model).moe.experts == 0) continue;
        SCOPED_TRACE(label(model));
        ++families;
        for (const char* const dtype : {"F32", "BF16", "F16"}) {
            const TempFolder folder;
            write_model(folder / "m", model.config, stacked(model, dtype));
            const DType to = std::string(dtype) == "BF16" ? DType::bf16 : DType::fp32;
            convert_checkpoint(folder / "m", folder / "to", {.dtype = to});
            expect_weights(folder / "to", weights_of(model, to == DType::bf16 ? "BF16" : "F32"));
        }
    }
    EXPECT_GE(families, 5);
}

TEST(StackedExperts, OfAnotherShapeOrBesideSingleOnesAreRefusedByName) {
    for (const TransformersFiles& model : transformers_files()) {
        if (config_of(model).moe.experts == 0) continue;
        SCOPED_TRACE(label(model));
        const TempFolder folder;
        std::vector<RawTensor> weights = stacked(model, "F32");
        const auto gate_up = std::ranges::find_if(
            weights, [](const RawTensor& t) { return t.name.ends_with("experts.gate_up_proj"); });
        const RawTensor whole = *gate_up;
        const std::string count = std::to_string(whole.bytes.size() / 4);
        gate_up->shape = "[" + count + "]";
        write_model(folder / "m", model.config, weights);
        EXPECT_THAT(refused_folder(folder / "m"),
                    HasSubstr("tensor " + whole.name + ": has shape [" + count +
                              "], but config.json requires " + whole.shape));

        std::vector<RawTensor> both = weights_of(model, "F32");
        both.push_back(whole);
        write_model(folder / "m", model.config, both);
        EXPECT_THAT(refused_folder(folder / "m"),
                    HasSubstr("tensor " + whole.name + ": has all experts of the layer"));
    }
}

TEST(ModelWeights, HaveTheNewNameOfGptNeoxsOutput) {
    for (const TransformersFiles& model : transformers_files()) {
        if (std::string(model.model_type) != "gpt_neox") continue;
        SCOPED_TRACE(label(model));
        const TempFolder folder;
        TiedModel tied(model);
        const std::vector<RawTensor> once = tied.weights;
        tied.add_output();
        const std::vector<RawTensor> twice = tied.weights;
        tied.of(tied.output).name = "lm_head.weight";
        write_model(folder / "m", tied.untied_text, tied.weights);
        convert_checkpoint(folder / "m", folder / "untied", {});
        expect_weights(folder / "untied", twice);
        write_model(folder / "m", tied.text, tied.weights);
        convert_checkpoint(folder / "m", folder / "tied", {});
        expect_weights(folder / "tied", once);
        tied.weights.back().bytes.back() ^= 1;
        write_model(folder / "m", tied.text, tied.weights);
        EXPECT_THAT(refused_folder(folder / "m"),
                    HasSubstr("tensor lm_head.weight: differs from gpt_neox.embed_in.weight"));
        tied.weights.push_back(twice.back());
        write_model(folder / "m", tied.untied_text, tied.weights);
        EXPECT_THAT(refused_folder(folder / "m"),
                    HasSubstr("tensor lm_head.weight: is not part of the model"));
    }
}

TEST(ModelWeights, NamesAPrefixOfAllTensorsAndWhoAddsIt) {
    for (const TransformersFiles& model : transformers_files()) {
        SCOPED_TRACE(label(model));
        const TempFolder folder;
        const auto refused = [&](const std::string& prefix) {
            std::vector<RawTensor> weights = weights_of(model, "F32");
            for (RawTensor& t : weights) t.name.insert(0, prefix);
            write_model(folder / "m", model.config, weights);
            return refused_folder(folder / "m");
        };
        const std::string path = folder / "m/model.safetensors";
        EXPECT_THAT(refused("_orig_mod."),
                    HasSubstr(path + ": the names of all tensors begin with \"_orig_mod.\", which "
                                     "torch.compile adds; save model._orig_mod instead"));
        EXPECT_THAT(refused("module."),
                    HasSubstr("begin with \"module.\", which DataParallel and "
                              "DistributedDataParallel add; save model.module instead"));
        EXPECT_THAT(refused("base_model.model."), HasSubstr("\"base_model.model.\", which PEFT"));
        EXPECT_THAT(refused("net."), HasSubstr("begin with \"net.\"; remove it from the names"));
    }
}

TEST(ModelWeights, NamesAPrefixAlsoWhereATiedWeightHasTheNameOfTheOutputLayer) {
    const TempFolder folder;
    TiedModel tied(transformers_files().front());
    tied.of(tied.embedding).name = tied.output;
    for (RawTensor& t : tied.weights) t.name.insert(0, "module.");
    write_model(folder / "m", tied.text, tied.weights);
    EXPECT_THAT(refused_folder(folder / "m"), HasSubstr("all tensors begin with \"module.\""));
}

TEST(ModelWeights, RefusesWhatShardsHoldBesideTheirIndex) {
    const TransformersFiles& model = transformers_files().front();
    const std::vector<RawTensor> weights = weights_of(model, "F32");
    const std::string shard = "model-00001-of-00001.safetensors";
    nlohmann::json index;
    for (const RawTensor& t : weights) index["weight_map"][t.name] = shard;
    const auto write = [&](const std::string& folder, const std::vector<RawTensor>& held) {
        std::filesystem::create_directories(folder);
        write_file(folder + "/config.json", model.config);
        write_file(folder + "/" + shard, raw_safetensors(held));
        write_file(folder + "/model.safetensors.index.json", index.dump());
    };
    const TempFolder folder;
    std::vector<RawTensor> more = weights;
    more.push_back({"transformer.h.0.attn.bias", "F32", "[1, 1]", float_bytes({1})});
    write(folder / "buffer", more);
    EXPECT_NO_THROW(Checkpoint({folder / "buffer", false}).verify());
    more.push_back(tensor("extra.weight", "F32", "[2]"));
    write(folder / "weight", more);
    EXPECT_THAT(refused_folder(folder / "weight"),
                HasSubstr(folder / ("weight/" + shard +
                                    ": tensor extra.weight: is in this file, "
                                    "but model.safetensors.index.json does "
                                    "not say so")));
}

TEST(ModelWeights, RefusesOptimizerStateOfNoWeight) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.train_iters = 1;
    options.lr_warmup_iters = 0;
    options.save = runs.path("run");
    ASSERT_EQ(runs.run(1, options).size(), 1U);
    const std::string step = step_folder(options.save, 1);
    const SafetensorsFile file(step + "/optimizer.safetensors");
    std::vector<RawTensor> tensors{tensor("exp_avg/extra.weight", "F32", "[2]")};
    for (const StoredTensor& t : file.header().tensors) {
        RawTensor raw{t.name, std::string(name_of(t.type)), shape_text(t.shape), ""};
        raw.bytes.resize(t.end - t.begin);
        file.open().read(t.begin, std::as_writable_bytes(std::span(raw.bytes)));
        tensors.push_back(std::move(raw));
    }
    write_file(step + "/optimizer.safetensors", raw_safetensors(tensors));
    EXPECT_THAT(message_of<Error>([&] {
                    const Checkpoint checkpoint({step, true});
                }),
                HasSubstr("optimizer.safetensors: tensor exp_avg/extra.weight: belongs to no "
                          "weight of the model"));
}

TEST(ModelWeights, SayThatAFileIsAPointerOfGitLfs) {
    const TransformersFiles& model = transformers_files().front();
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n";
    for (const char* const name : {"model.safetensors", "config.json"}) {
        const TempFolder folder;
        write_model(folder / "m", model.config, weights_of(model, "F32"));
        write_file(folder / ("m/" + std::string(name)), pointer);
        EXPECT_THAT(message_of<Error>([&] {
                        Checkpoint({folder / "m", false}).verify();
                    }),
                    HasSubstr(folder / ("m/" + std::string(name) +
                                        ": is a Git LFS pointer, not the file itself; run git lfs "
                                        "pull in its repository")));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
