// SPDX-License-Identifier: Apache-2.0
// Steps that meshes with tensor ranks and expert ranks save and load, without a step of training:
// every element is told by its number. Files are those of one rank, byte for byte.
#include "kernels/bf16.hpp"
#include "src/model/model_rank_internals.hpp"
#include "src/train/checkpoint/convert_checkpoint.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "tests/model/tensor_models.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/checkpoint/hugging_face_models.hpp"
#include "tests/train/data/temp_folder.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kStep = 3;
constexpr uint64_t kMaxShardBytes = 20'000;  // several files of weights

enum class Kind : uint8_t { weight, mean, square };

/// The number of an element of the logical tensor. Not exact in bf16: masters tell more than
/// weights.
float number(int id, Kind kind, int64_t element) {
    const int64_t mixed =
        (element * 7919 + id * 104'729 + static_cast<int64_t>(kind) * 1'299'709) % 1'000'003;
    return static_cast<float>(mixed - 500'000) / 4096.0F;
}

/// As the run's type holds it.
float rounded(float value, DType dtype) {
    return dtype == DType::bf16 ? kernels::to_float(kernels::to_bf16(value)) : value;
}

float element_of(const Tensor& tensor, int64_t i) {
    return tensor.dtype == DType::bf16
               ? kernels::to_float(kernels::Bf16{tensor.as<const uint16_t>()[i]})
               : tensor.as<const float>()[i];
}

/// Calls `work` with every tensor of the rank, its kind, and the logical numbers of its elements.
template <typename Work>
void for_each_tensor(ModelRank& model, const Work& work) {
    ParameterStore& store = ModelRankInternals::store(model);
    for (size_t i = 0; i < store.parameters().size(); ++i) {
        const Parameter& p = store.parameters()[i];
        if (store.shares_weight(i)) continue;
        const std::vector<int64_t> held = held_elements(p);
        const auto owned = held.begin() + p.owned.first;
        const std::vector<int64_t> mine(owned,
                                        p.owned.count < 0 ? held.end() : owned + p.owned.count);
        work(p, store.ids()[i], Kind::weight, p.weight, held);
        if (p.correction_bias) continue;  // which every rank updates: no state of an optimizer
        work(p, store.ids()[i], Kind::weight, p.master, mine);
        work(p, store.ids()[i], Kind::mean, p.exp_avg, mine);
        work(p, store.ids()[i], Kind::square, p.exp_avg_sq, mine);
    }
}

void fill_with_numbers(ModelRank& model) {
    for_each_tensor(model, [](const Parameter&, int id, Kind kind, Tensor tensor,
                              const std::vector<int64_t>& elements) {
        for (size_t i = 0; i < elements.size(); ++i) {
            const float value = number(id, kind, elements[i]);
            if (tensor.dtype == DType::bf16) {
                tensor.as<kernels::Bf16>()[i] = kernels::to_bf16(value);
            } else {
                tensor.as<float>()[i] = value;
            }
        }
    });
}

/// Every element of a tensor that `expected` is asked for.
template <typename Expected>
void expect_elements(ModelRank& model, const Expected& expected) {
    for_each_tensor(model, [&](const Parameter& p, int id, Kind kind, Tensor tensor,
                               const std::vector<int64_t>& elements) {
        ASSERT_EQ(tensor.size(), static_cast<int64_t>(elements.size())) << p.name;
        for (size_t i = 0; i < elements.size(); ++i) {
            const std::optional<float> want = expected(p, id, kind, elements[i]);
            if (!want) continue;
            ASSERT_EQ(element_of(tensor, static_cast<int64_t>(i)), rounded(*want, tensor.dtype))
                << p.name << " kind " << static_cast<int>(kind) << " element " << elements[i];
        }
    });
}

/// Runs `work` on every rank of a mesh, as threads, with a model of its own.
template <typename Work>
void on_mesh(const ModelConfig& config, const Mesh& mesh, const Work& work) {
    const Schedule schedule = tensor_schedule(config, mesh, VocabMode::one_barrier);
    const ModelPartition partition = tensor_partition(config, mesh);
    World::threads(mesh.size(), {.timeout_seconds = 60}).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        ModelRank model(config, partition, schedule, communicator.rank(), *device);
        work(communicator, model, stored_bytes(config, partition, schedule, communicator.rank()));
    });
}

void save(const ModelConfig& config, const Mesh& mesh, const std::string& root, bool async) {
    on_mesh(config, mesh, [&](Communicator& communicator, ModelRank& model, uint64_t stored) {
        std::optional<SaveFolder> folder;
        if (communicator.rank() == 0) folder.emplace(root, 0, "");
        CheckpointSaver saver(communicator, model, folder ? &*folder : nullptr,
                              {.root = root, .max_shard_bytes = kMaxShardBytes, .async = async});
        if (async) {
            EXPECT_EQ(saver.snapshot_bytes(), stored);
        }
        fill_with_numbers(model);
        saver.begin({.step = kStep,
                     .consumed_samples = 6,
                     .seq_length = config.seq_length,
                     .seed = 1,
                     .dtype = config.dtype == DType::bf16 ? "bf16" : "fp32",
                     .flags = {},
                     .files = {}});
        EXPECT_TRUE(saver.finish());
    });
}

void expect_loaded_numbers(const ModelConfig& config, const Mesh& mesh, const std::string& root) {
    const Checkpoint checkpoint(find_checkpoint(root, false));
    on_mesh(config, mesh, [&](Communicator& communicator, ModelRank& model, uint64_t) {
        checkpoint.verify(communicator);
        Context ctx({.threads = 1, .poll = {}});
        checkpoint.fill(model, ctx);
        expect_elements(model, [](const Parameter&, int id, Kind kind, int64_t element) {
            return std::optional(number(id, kind, element));
        });
    });
}

const std::vector<Mesh> kMeshes{{1, 1, 1},    {2, 1, 2},    {1, 1, 4},    {1, 2, 2}, {2, 2, 1, 2},
                                {1, 4, 1, 4}, {1, 4, 1, 2}, {2, 2, 2, 2}, {2, 2, 2}};

std::string text_of(const ModelConfig& config, const Mesh& mesh) {
    return config.family + (config.tied ? " tied" : "") +
           (config.dtype == DType::bf16 ? " bf16" : "") + " p=" + std::to_string(mesh.pipeline) +
           " d=" + std::to_string(mesh.data) + " t=" + std::to_string(mesh.tensor) +
           " e=" + std::to_string(mesh.expert);
}

TEST(TensorRanksCheckpoint, IsThatOfOneRankAndIsLoadedByAnyMesh) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (ModelConfig config : tensor_and_expert_models()) {
            config.dtype = dtype;
            const TempFolder folder;
            const std::vector<Mesh> meshes = that_share(config, kMeshes);
            ASSERT_GT(meshes.size(), 3U);
            std::map<std::string, std::string> expected;
            for (size_t i = 0; i < meshes.size(); ++i) {
                SCOPED_TRACE(text_of(config, meshes[i]));
                const std::string root = folder / std::to_string(i);
                save(config, meshes[i], root, /*async=*/i % 2 == 1);
                const std::map<std::string, std::string> files = contents(root);
                if (i == 0) {
                    expected = files;
                    EXPECT_GT(files.size(), 6U) << "several files of weights";
                }
                EXPECT_TRUE(files == expected);
            }
            for (const Mesh& mesh : meshes) {
                SCOPED_TRACE(text_of(config, mesh));
                expect_loaded_numbers(config, mesh, folder / std::to_string(meshes.size() - 1));
            }
        }
    }
}

TEST(TensorRanksCheckpoint, HasMatricesOfSeveralBlocks) {
    for (const char* family : {"gpt2", "llama"}) {
        ModelConfig config = tensor_model(family, false);
        config.num_layers = 1;
        config.hidden_size = 512;
        config.ffn_hidden_size = 1024;
        const TempFolder folder;
        save(config, {}, folder / "one", false);
        save(config, {1, 2, 2}, folder / "four", false);
        EXPECT_TRUE(contents(folder / "one") == contents(folder / "four"));
        expect_loaded_numbers(config, {1, 1, 2}, folder / "four");
    }
}

TEST(TensorRanksCheckpoint, OfBf16IsLoadedByAnyMesh) {
    // bf16 weights without masters, which a run in fp32 or another mesh in bf16 takes over.
    for (const ModelConfig& of_files : tensor_and_expert_models()) {
        const TempFolder folder;
        const std::vector<Mesh> meshes = that_share(of_files, kMeshes);
        save(of_files, meshes[1], folder / "run", false);
        (void)convert_checkpoint(folder / "run", folder / "model",
                                 {.dtype = DType::bf16, .max_shard_bytes = kMaxShardBytes});
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            ModelConfig config = of_files;
            config.dtype = dtype;
            for (const Mesh& mesh : meshes) {
                SCOPED_TRACE(text_of(config, mesh));
                const Checkpoint checkpoint(find_checkpoint(folder / "model", false));
                EXPECT_FALSE(checkpoint.state());
                on_mesh(config, mesh, [&](Communicator&, ModelRank& model, uint64_t) {
                    Context ctx({.threads = 1, .poll = {}});
                    checkpoint.fill(model, ctx);
                    expect_elements(model,
                                    [](const Parameter& p, int id, Kind kind,
                                       int64_t element) -> std::optional<float> {
                                        if (kind != Kind::weight) return std::nullopt;
                                        // Correction biases are fp32 in every model.
                                        const float value = number(id, kind, element);
                                        return p.correction_bias ? value
                                                                 : rounded(value, DType::bf16);
                                    });
                });
            }
        }
    }
}

/// The weights of a whole model, by tensor.
std::map<std::string, std::vector<float>> whole_weights(const ModelConfig& config,
                                                        const Checkpoint& checkpoint) {
    std::map<std::string, std::vector<float>> weights;
    on_mesh(config, {}, [&](Communicator&, ModelRank& model, uint64_t) {
        Context ctx({.threads = 1, .poll = {}});
        checkpoint.fill(model, ctx);
        for (const Parameter& p : model.parameters()) {
            std::vector<float>& of = weights[p.name];
            of.clear();
            for (int64_t i = 0; i < p.weight.size(); ++i) of.push_back(element_of(p.weight, i));
        }
    });
    return weights;
}

TEST(TensorRanksCheckpoint, OfTransformersIsLoadedAsByOneRank) {
    // What one rank loads is compared with the files in hugging_face_test.cpp.
    int loaded = 0;
    for (const TransformersFiles& model : transformers_files()) {
        const ModelConfig config = config_of(model);
        const std::vector<Mesh> meshes =
            that_share(config, {{2, 2, 2}, {2, 2, 1, 2}, {1, 2, 2, 4}});
        if (meshes.empty()) continue;
        ++loaded;
        for (const char* dtype : {"F32", "BF16", "F16"}) {
            SCOPED_TRACE(std::string(dtype) + " " + label(model));
            const TempFolder folder;
            write_model(folder / "m", model.config, weights_of(model, dtype));
            const Checkpoint checkpoint(find_checkpoint(folder / "m", false));
            const auto expected = whole_weights(config, checkpoint);
            for (const Mesh& mesh : meshes) {
                on_mesh(config, mesh, [&](Communicator&, ModelRank& of_rank, uint64_t) {
                    Context ctx({.threads = 1, .poll = {}});
                    checkpoint.fill(of_rank, ctx);
                    expect_elements(of_rank,
                                    [&](const Parameter& p, int, Kind kind,
                                        int64_t element) -> std::optional<float> {
                                        if (kind != Kind::weight) return std::nullopt;
                                        return expected.at(p.name).at(static_cast<size_t>(element));
                                    });
                });
            }
        }
    }
    EXPECT_GT(loaded, 10);
}

}  // namespace
}  // namespace vocabpipe::testing
