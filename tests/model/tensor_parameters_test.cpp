// SPDX-License-Identifier: Apache-2.0
// What the ranks of a mesh hold, make and update of a model's parameters, element by element.
#include "tests/model/tensor_models.hpp"

#include "src/model/parameters.hpp"
#include "src/model/router_sums.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// All ranks of a mesh, one after the other.
class Ranks {
public:
    Ranks(ModelConfig config, const Mesh& mesh_, VocabMode mode = VocabMode::one_barrier,
          int expert_tensor = 1)
        : mesh(mesh_),
          config_(std::move(config)),
          schedule_(tensor_schedule(config_, mesh, mode)),
          partition_(tensor_partition(config_, mesh, expert_tensor)) {
        for (int rank = 0; rank < mesh.size(); ++rank) {
            models.push_back(
                std::make_unique<ModelRank>(config_, partition_, schedule_, rank, *device_));
        }
    }
    void initialise(uint64_t seed) {
        Context ctx({.threads = 1, .poll = {}});
        for (const auto& model : models) model->initialise(ctx, seed);
    }
    [[nodiscard]] StepSizes sizes() const { return step_sizes(config_, partition_, schedule_); }
    [[nodiscard]] PersistentBytes planned(int rank) const {
        return persistent_bytes(config_, partition_, schedule_, rank);
    }

    Mesh mesh;
    std::vector<std::unique_ptr<ModelRank>> models;

private:
    ModelConfig config_;
    Schedule schedule_;
    ModelPartition partition_;
    std::unique_ptr<Device> device_ = make_host_device();
};

constexpr Mesh kAlone{};
const std::vector<Mesh> kMeshes{{1, 1, 2},    {2, 1, 2},    {1, 1, 4},    {1, 2, 2},
                                {2, 2, 2},    {1, 3, 2},    {1, 2, 1, 2}, {2, 4, 1, 2},
                                {1, 4, 1, 4}, {2, 2, 2, 2}, {1, 2, 2, 4}, {1, 1, 4, 2}};

/// A mesh that can share the model, and how many of its expert ranks share each expert.
struct SharedBy {
    Mesh mesh;
    int expert_tensor = 1;
};

std::vector<SharedBy> all_that_share(const ModelConfig& config) {
    std::vector<SharedBy> all;
    for (const Mesh& mesh : that_share(config, kMeshes)) {
        for (const int x : {1, 2, 4}) {
            if (mesh.expert % x == 0) all.push_back({mesh, x});
        }
    }
    return all;
}

std::string text_of(const Mesh& mesh, int expert_tensor = 1) {
    return "p=" + std::to_string(mesh.pipeline) + " d=" + std::to_string(mesh.data) +
           " t=" + std::to_string(mesh.tensor) + " e=" + std::to_string(mesh.expert) +
           " x=" + std::to_string(expert_tensor);
}

TEST(TensorParameters, AreInitialisedToTheElementsOfTheWholeModel) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (ModelConfig config : tensor_and_expert_models()) {
            config.dtype = dtype;
            Ranks whole(config, kAlone);
            whole.initialise(7);
            std::map<std::string, const Parameter*> by_name;
            for (const Parameter& p : whole.models.front()->parameters()) {
                by_name.emplace(p.name, &p);
            }
            for (const auto& [mesh, x] : all_that_share(config)) {
                SCOPED_TRACE(config.family + " " + text_of(mesh, x));
                Ranks ranks(config, mesh, VocabMode::one_barrier, x);
                ranks.initialise(7);
                for (const auto& model : ranks.models) {
                    for (const Parameter& p : model->parameters()) {
                        const auto* const of = by_name.at(p.name)->weight.as<const std::byte>();
                        const auto size = static_cast<size_t>(size_of(dtype));
                        const std::vector<int64_t> held = held_elements(p);
                        ASSERT_EQ(static_cast<int64_t>(held.size()), p.weight.size());
                        for (size_t i = 0; i < held.size(); ++i) {
                            ASSERT_EQ(std::memcmp(p.weight.as<const std::byte>() + i * size,
                                                  of + static_cast<size_t>(held[i]) * size, size),
                                      0)
                                << p.name << " element " << held[i];
                        }
                    }
                }
            }
        }
    }
}

/// How often every element is updated, or counted for the norm, by tensor.
using Counts = std::map<std::string, std::vector<int>>;

void count(Counts& counts, const Parameter& p) {
    std::vector<int>& of = counts[p.name];
    of.resize(static_cast<size_t>(p.logical_rows * p.logical_cols));
    const std::vector<int64_t> held = held_elements(p);
    const int64_t owned = p.owned.count < 0 ? p.weight.size() : p.owned.count;
    for (int64_t i = 0; i < owned; ++i) {
        ++of[static_cast<size_t>(held[static_cast<size_t>(p.owned.first + i)])];
    }
}

TEST(TensorParameters, AreUpdatedAndCountedOnce) {
    for (const ModelConfig& config : tensor_and_expert_models()) {
        for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
            for (const auto& [mesh, x] : all_that_share(config)) {
                SCOPED_TRACE(config.family + " " + text_of(mesh, x));
                const Ranks ranks(config, mesh, mode, x);
                Counts counted;
                Counts copies;  // of the tied weight: another rank's, with its own updates
                for (const auto& model : ranks.models) {
                    for (const Parameter& p : model->parameters()) {
                        // Shares a weight, or is the bias that all replicas update alike.
                        if (!p.exp_avg && !p.correction_bias) continue;
                        if (p.exp_avg) {
                            EXPECT_EQ(p.exp_avg.size(), p.owned.count);
                        }
                        count(p.counted_elsewhere ? copies : counted, p);
                    }
                }
                EXPECT_EQ(counted.size(), logical_parameters(config).size());
                for (const Counts* counts : {&counted, &copies}) {
                    for (const auto& [name, of] : *counts) {
                        EXPECT_EQ(of, std::vector<int>(of.size(), 1)) << name;
                    }
                }
            }
        }
    }
}

/// Over which gradients are added up. Ranks that a tensor team cut nothing of have other tokens.
Axis axis_of(TensorCut cut, const Mesh& mesh) {
    if (cut == TensorCut::experts && mesh.expert > 1) return Axis::expert_data;
    const bool whole = cut == TensorCut::repeated || cut == TensorCut::experts;
    return whole && mesh.tensor > 1 ? Axis::data_tensor : Axis::data;
}

/// Where in a bucket a parameter begins, in elements; -1: elsewhere.
int64_t place_in(Bytes memory, const Tensor& tensor) {
    const auto* const data = static_cast<const std::byte*>(tensor.data);
    if (data < memory.data() || data >= memory.data() + memory.size()) return -1;
    return (data - memory.data()) / size_of(tensor.dtype);
}

TEST(TensorParameters, OfABucketAreOneRangeOfMemory) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (ModelConfig config : tensor_and_expert_models()) {
            config.dtype = dtype;
            std::map<std::string, TensorCut> cuts;
            for (const LogicalParameter& p : logical_parameters(config)) cuts[p.name] = p.cut;
            for (const Mesh& mesh : that_share(config, kMeshes)) {
                SCOPED_TRACE(config.family + " " + text_of(mesh));
                const Ranks ranks(config, mesh);
                const StepSizes sizes = ranks.sizes();
                for (int rank = 0; rank < mesh.size(); ++rank) {
                    const Mesh::Place place = mesh.place(rank);
                    ModelRank& model = *ranks.models[static_cast<size_t>(rank)];
                    const auto& buckets = sizes.buckets[static_cast<size_t>(place.pipeline)];
                    std::set<std::string> seen;
                    for (size_t b = 0; b < buckets.size(); ++b) {
                        const GradientBucket& bucket = buckets[b];
                        const std::vector<int> members = mesh.ranks_along(bucket.axis, place);
                        ASSERT_EQ(bucket.first.size(), members.size() + 1);
                        const auto member = static_cast<size_t>(
                            std::find(members.begin(), members.end(), rank) - members.begin());
                        const RankBucket memory = model.bucket(b);
                        EXPECT_EQ(static_cast<int64_t>(memory.gradients.size()),
                                  bucket.first.back() * 4);
                        EXPECT_EQ(static_cast<int64_t>(memory.weights.size()),
                                  bucket.first.back() * size_of(dtype));
                        for (const Parameter& p : model.parameters()) {
                            const int64_t at = place_in(memory.gradients, p.gradient);
                            if (at < 0) continue;
                            // Tied: weight and gradient are the embedding's.
                            if (p.counted_elsewhere && model.input() != nullptr) continue;
                            EXPECT_TRUE(seen.insert(p.name).second) << p.name;
                            EXPECT_EQ(at, place_in(memory.weights, p.weight)) << p.name;
                            EXPECT_LE(at + p.weight.size(), bucket.first.back()) << p.name;
                            const bool vocabulary = p.logical_rows == config.vocab_size;
                            const TensorCut cut = vocabulary ? TensorCut::rows : cuts[p.name];
                            EXPECT_EQ(bucket.axis, axis_of(cut, mesh)) << p.name;
                            if (p.owned.count == 0) continue;
                            EXPECT_GE(at + p.owned.first, bucket.first[member]) << p.name;
                            EXPECT_LE(at + p.owned.first + p.owned.count, bucket.first[member + 1])
                                << p.name;
                        }
                    }
                    for (const Parameter& p : model.parameters()) {
                        EXPECT_EQ(seen.contains(p.name), !p.correction_bias) << p.name;
                    }
                }
            }
        }
    }
}

TEST(TensorParameters, OfALayerAloneAreOneBucket) {
    ModelConfig config = tensor_models().front();
    const StepSizes sizes = Ranks(config, {1, 2, 1}).sizes();
    ASSERT_EQ(sizes.buckets.size(), 1U);
    std::map<int, int> of_axis;
    for (const GradientBucket& bucket : sizes.buckets.front()) {
        ++of_axis[static_cast<int>(bucket.axis)];
    }
    // Layers, positions, final norm, vocabulary.
    EXPECT_EQ(of_axis, (std::map<int, int>{{static_cast<int>(Axis::data), config.num_layers + 3}}));
    EXPECT_TRUE(Ranks(config, kAlone).sizes().buckets.empty());
}

TEST(TensorParameters, OfExpertsAreThoseOfTheRanksOwnOnes) {
    for (const ModelConfig& config : expert_models()) {
        const Mesh mesh{1, 4, 1, 2};
        SCOPED_TRACE(config.family);
        const Ranks ranks(config, mesh);
        std::map<std::string, TensorCut> cuts;
        for (const LogicalParameter& p : logical_parameters(config)) cuts[p.name] = p.cut;
        int of_experts = 0;
        for (int rank = 0; rank < mesh.size(); ++rank) {
            for (const Parameter& p : ranks.models[static_cast<size_t>(rank)]->parameters()) {
                if (cuts[p.name] != TensorCut::experts) continue;
                ++of_experts;
                const int64_t half = p.logical_rows / 2;
                const TensorShard expected{.rows = {{rank % 2 * half, half}},
                                           .columns = {{0, p.logical_cols}}};
                EXPECT_TRUE(p.shard == expected) << p.name << " of rank " << rank;
            }
        }
        const auto sparse = std::ssize(routed_layers(config));
        EXPECT_EQ(of_experts, 4 * 2 * sparse) << "gate and up, and down, of every layer with them";
    }
}

TEST(TensorParameters, OfExpertsOnAllRanksAreReducedByNobody) {
    const ModelConfig config = expert_models().front();
    const StepSizes sizes = Ranks(config, {1, 4, 1, 4}).sizes();
    int alone = 0;
    for (const GradientBucket& bucket : sizes.buckets.front()) {
        if (bucket.axis != Axis::expert_data) continue;
        ++alone;
        EXPECT_EQ(bucket.first.size(), 2U);
    }
    EXPECT_EQ(alone, config.num_layers);
    EXPECT_EQ(sizes.has_experts, std::vector{true});
}

TEST(TensorParameters, NeedAboutHalfOfTheMemoryForTwoRanks) {
    ModelConfig config;  // GPT-2 124M
    config.num_layers = 12;
    config.hidden_size = 768;
    config.ffn_hidden_size = 3072;
    config.num_attention_heads = 12;
    config.seq_length = config.max_position_embeddings = 1024;
    config.vocab_size = 50257;
    const auto bytes = [&](int tensor, int rank) {
        const Mesh mesh{1, 1, tensor};
        return static_cast<double>(persistent_bytes(config, tensor_partition(config, mesh),
                                                    tensor_schedule(config, mesh, VocabMode::none),
                                                    rank)
                                       .total());
    };
    for (const int rank : {0, 1}) EXPECT_LT(bytes(2, rank), 0.51 * bytes(1, 0)) << rank;
}

TEST(TensorParameters, WithFewerRowsOfTheVocabularyThanRanksAreRefused) {
    ModelConfig config = tensor_models().front();
    config.vocab_size = 7;
    EXPECT_NO_THROW(Ranks(config, {2, 1, 2}));
    try {
        const Ranks ranks(config, {2, 1, 4});
        FAIL();
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("--tensor-model-parallel-size 4: pipeline rank 0 has only 3 of the 7 "
                              "rows of the vocabulary"));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
