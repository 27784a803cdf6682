// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/text_generator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "src/model/check_tensor_parallel.hpp"
#include "tests/model/folded_adapters.hpp"
#include "tests/model/fp64_model.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/support/one_rank_schedule.hpp"
#include "tests/train/generate/generate_on_ranks.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/trained_rank.hpp"

namespace vocabpipe::testing {
namespace {

/// An element of B, which begins as 0: the same in every row, so that any rank knows it.
float of_b(int64_t column) {
    return 0.2F * static_cast<float>(column + 1);
}

/// Sets B, if the parameter is one, in fp32.
void use_adapter(Parameter& p) {
    if (!p.name.ends_with("lora_B.weight")) return;
    for (int64_t i = 0; i < p.weight.size(); ++i) p.weight.as<float>()[i] = of_b(i % p.weight.cols);
}

void generate(const ModelConfig& config, const Mesh& mesh, const OnRank& body, int threads = 1,
              int expert_tensor = 1) {
    generate_on_ranks({.model = config,
                       .ranks = mesh.pipeline,
                       .tensor = mesh.tensor,
                       .expert = mesh.expert,
                       .expert_tensor = expert_tensor,
                       .threads_per_rank = threads},
                      [&](Communicator& world, TextGenerator& generator) {
                          for (Parameter& p : generator.model().parameters()) use_adapter(p);
                          body(world, generator);
                      });
}

/// After each prefix of `tokens` that begins behind the first `read` tokens.
std::vector<std::vector<float>> logits_of_prefixes(const ModelConfig& config, const Mesh& mesh,
                                                   const std::vector<int32_t>& tokens, size_t read,
                                                   int threads = 1, int expert_tensor = 1) {
    std::vector<std::vector<float>> logits;
    generate(
        config, mesh,
        [&](Communicator& world, TextGenerator& generator) {
            for (size_t n = read; n <= tokens.size(); ++n) {
                generator.read(std::span(tokens).first(n));
                std::vector<float> one = all_logits(world, generator.logits());
                if (world.rank() == 0) logits.push_back(std::move(one));
            }
        },
        threads, expert_tensor);
    return logits;
}

TEST(TextGenerator, TakesTheWeightsOfARankThatTrainsAndForgetsTheText) {
    const ModelConfig config = small_family("llama", 4, 23, 29, false);
    const std::vector<int32_t> tokens{3, 1, 4, 1, 5};
    generate(config, {.pipeline = 2}, [&](Communicator& world, TextGenerator& generator) {
        const std::unique_ptr<Device> device = make_host_device();
        const auto trained = [&](VocabMode mode, uint64_t seed) {
            const StepPlan plan =
                plan_step(config, {.ranks = 2}, {.vocab_mode = mode}, {.optimizer = false});
            return std::make_unique<TrainedRank>(world, *device, plan,
                                                 TrainedRankOptions{.seed = seed});
        };
        generator.read(tokens);
        const std::vector<float> own = all_logits(world, generator.logits());
        generator.copy_weights(trained(VocabMode::one_barrier, kSeed + 1)->model());
        generator.read(tokens);
        EXPECT_NE(all_logits(world, generator.logits()), own) << "other weights";
        generator.copy_weights(trained(VocabMode::one_barrier, kSeed)->model());
        generator.read(tokens);
        EXPECT_EQ(all_logits(world, generator.logits()), own) << "the weights of the seed";
        const auto other = trained(VocabMode::none, kSeed);
        EXPECT_THROW(generator.copy_weights(other->model()), UsageError);
    });
}

TEST(TextGenerator, RefusesTheWeightsOfARankThatKeepsAPartOfThem) {
    const ModelConfig config = small_family("llama", 4, 23, 29, false);
    generate(config, {.pipeline = 1}, [&](Communicator&, TextGenerator& generator) {
        const std::unique_ptr<Device> device = make_host_device();
        const Schedule schedule =
            make_schedule("1f1b", {.ranks = 1, .microbatches = 1, .vocab_size = 29});
        for (const int stage : {1, 3}) {
            ModelRank model(config, {.layers_per_stage = {4}, .replicas = 2, .zero_stage = stage},
                            schedule, 0, *device);
            if (stage == 1) {
                generator.copy_weights(model);
            } else {
                EXPECT_THROW(generator.copy_weights(model), UsageError);
            }
        }
    });
}

/// The loss of the batch's one sequence, from the logits after each of its tokens.
double loss_of(const std::vector<std::vector<float>>& logits, const Batch& batch) {
    EXPECT_EQ(logits.size(), batch.tokens[0].size());
    double loss = 0;
    for (size_t n = 0; n < logits.size(); ++n) {
        double sum = 0;
        for (const float z : logits[n]) sum += std::exp(static_cast<double>(z));
        const auto label = static_cast<size_t>(batch.labels[0][n]);
        loss += batch.loss_gradient[0][n] * (std::log(sum) - logits[n][label]);
    }
    return loss;
}

// With a window in all layers but some, so that a sink weighs more than among all tokens.
TEST(TextGenerator, LogitsOfAModelWithSinksGiveTheLossOfTheFp64Model) {
    for (const char* const family : {"llama", "gemma2", "gpt2"}) {
        ModelConfig config = small_family(family, 3, 23, 30, true);
        config.softmax_type = SoftmaxType::learnable;
        const Batch batch = random_batch(config, 1, 1, 5, /*ignored=*/0);
        const double expected = fp64_loss(config, batch, initial_weights(config, kSeed));
        for (const Mesh& mesh : {Mesh{.pipeline = 2}, Mesh{.pipeline = 1, .tensor = 2}}) {
            const auto logits = logits_of_prefixes(config, mesh, batch.tokens[0], 1);
            EXPECT_NEAR(loss_of(logits, batch), expected, 2e-6 * (1 + expected)) << family;
        }
        config.softmax_type = SoftmaxType::vanilla;
        EXPECT_GT(std::abs(fp64_loss(config, batch, initial_weights(config, kSeed)) - expected),
                  1e-4)
            << family << ": sinks matter";
    }
}

class TextGeneratorOfModels : public ::testing::TestWithParam<std::string> {};

TEST_P(TextGeneratorOfModels, LogitsAfterEveryPrefixGiveTheLossOfTheFp64Model) {
    const ModelConfig config = small_family(GetParam(), 3, 23, 29, true);
    const Batch batch = random_batch(config, 1, 1, 5, /*ignored=*/0);
    const double expected = fp64_loss(config, batch, initial_weights(config, kSeed));
    const auto logits = logits_of_prefixes(config, {2}, batch.tokens[0], 1);
    EXPECT_NEAR(loss_of(logits, batch), expected,
                2e-6 * (1 + expected));  // as oracle_test.cpp derives it
}

TEST_P(TextGeneratorOfModels, LogitsContainTheProductsOfAdapters) {
    const ModelConfig config = small_family(GetParam(), 2, 11, 30, true);
    const ModelConfig adapted = with_adapters(config, 2, 3);
    Tensors weights = initial_weights(adapted, kSeed);
    for (auto& [name, values] : weights) {
        if (!name.ends_with("lora_B.weight")) continue;
        for (size_t i = 0; i < values.size(); ++i) values[i] = of_b(static_cast<int64_t>(i % 2));
    }
    const Batch batch = random_batch(config, 1, 1, 5, /*ignored=*/0);
    const double expected = fp64_loss(config, batch, folded(adapted, weights));
    for (const Mesh& mesh : {Mesh{.pipeline = 2}, Mesh{.pipeline = 1, .tensor = 2}}) {
        if (mesh.tensor > 1 && config.moe.experts > 0) continue;
        const auto logits = logits_of_prefixes(adapted, mesh, batch.tokens[0], 1);
        EXPECT_NEAR(loss_of(logits, batch), expected, 2e-6 * (1 + expected)) << mesh.tensor;
    }
}

TEST_P(TextGeneratorOfModels, LogitsAreTheSameForEveryNumberOfRanksAndThreads) {
    ModelConfig config = small_family(GetParam(), 3, 23, 29, false);
    const Batch batch = random_batch(config, 1, 1, 5);
    for (const DType type : {DType::fp32, DType::bf16}) {
        config.dtype = type;
        // Nine tokens at once, then one by one.
        const auto alone = logits_of_prefixes(config, {1}, batch.tokens[0], 9);
        EXPECT_EQ(logits_of_prefixes(config, {1}, batch.tokens[0], 9, 2), alone);
        EXPECT_EQ(logits_of_prefixes(config, {2}, batch.tokens[0], 9), alone);
        EXPECT_EQ(logits_of_prefixes(config, {3}, batch.tokens[0], 9), alone);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, TextGeneratorOfModels, ::testing::ValuesIn(model_families()),
                         [](const auto& info) { return info.param; });

constexpr int64_t kTensorVocabulary = 30;  // every tensor rank of two places has rows

std::vector<std::string> tensor_families() {
    std::vector<std::string> families;
    for (const std::string& name : model_families()) {
        try {
            check_tensor_parallel(small_family(name, 3, 23, kTensorVocabulary, false), 2, 2);
            families.push_back(name);
        } catch (const UsageError&) {  // not this family
        }
    }
    return families;
}

/// Logits of an odd number of tokens at once, then one by one, of the full context at last.
/// `expert_tensor` of the expert ranks share each expert.
void expect_logits_of_one_rank(const ModelConfig& config, const std::vector<Mesh>& meshes,
                               int expert_tensor = 1) {
    const Batch batch = random_batch(config, 1, 1, 5);
    const auto alone = logits_of_prefixes(config, {1}, batch.tokens[0], 5);
    for (const Mesh& mesh : meshes) {
        const auto shared = logits_of_prefixes(config, mesh, batch.tokens[0], 5, 1, expert_tensor);
        ASSERT_EQ(shared.size(), alone.size());
        for (size_t n = 0; n < alone.size(); ++n) {
            ASSERT_EQ(shared[n].size(), alone[n].size());
            for (size_t i = 0; i < alone[n].size(); ++i) {
                EXPECT_NEAR(shared[n][i], alone[n][i], 5e-6 * (1 + std::abs(alone[n][i])))
                    << "p " << mesh.pipeline << " t " << mesh.tensor << " e " << mesh.expert
                    << ", prefix " << n << ", token " << i;
            }
        }
    }
}

class TextGeneratorOfTensorRanks : public ::testing::TestWithParam<std::string> {};

TEST_P(TextGeneratorOfTensorRanks, LogitsAreThoseOfOneRankWithinRounding) {
    expect_logits_of_one_rank(small_family(GetParam(), 3, 11, kTensorVocabulary, false),
                              {{.tensor = 2}, {.pipeline = 2, .tensor = 2}});
}

INSTANTIATE_TEST_SUITE_P(Families, TextGeneratorOfTensorRanks,
                         ::testing::ValuesIn(tensor_families()),
                         [](const auto& info) { return info.param; });

class TextGeneratorOfExpertRanks : public ::testing::TestWithParam<std::string> {};

TEST_P(TextGeneratorOfExpertRanks, LogitsAreThoseOfOneRankWithinRounding) {
    ModelConfig config = small_family(GetParam(), 3, 11, kTensorVocabulary, false);
    config.moe.experts = 4;
    std::vector<Mesh> meshes{{.data = 2, .expert = 2},
                             {.pipeline = 2, .data = 2, .expert = 2},
                             {.data = 4, .expert = 4}};  // some without a row of a token
    const std::vector<std::string> of_tensor_ranks = tensor_families();
    if (std::ranges::find(of_tensor_ranks, config.family) != of_tensor_ranks.end()) {
        meshes.push_back({.tensor = 2, .expert = 2});
        meshes.push_back({.data = 2, .tensor = 2, .expert = 4});
    }
    expect_logits_of_one_rank(config, meshes);
    expect_logits_of_one_rank(config, meshes, 2);
    config.moe.experts = config.moe.correction_bias ? 4 : 2;  // its groups have two each
    expect_logits_of_one_rank(config, {{.data = 4, .expert = 4}}, 2);
}

INSTANTIATE_TEST_SUITE_P(Families, TextGeneratorOfExpertRanks,
                         ::testing::Values("mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "dots1",
                                           "deepseek_v3"),
                         [](const auto& info) { return info.param; });

TEST(TextGeneratorOfFourTensorRanks, ReadsFewerTokensThanThereAreRanks) {
    ModelConfig config = small_family("gpt2", 2, 9, 31, true);
    config.num_attention_heads = 4;
    const std::vector<int32_t> tokens{3, 1, 4, 1, 5, 9};
    for (const size_t first : {1, 2, 3}) {
        const auto alone = logits_of_prefixes(config, {1}, tokens, first);
        const auto shared = logits_of_prefixes(config, {.tensor = 4}, tokens, first);
        for (size_t n = 0; n < alone.size(); ++n) {
            for (size_t i = 0; i < alone[n].size(); ++i) {
                EXPECT_NEAR(shared[n][i], alone[n][i], 5e-6 * (1 + std::abs(alone[n][i])));
            }
        }
    }
}

std::vector<int32_t> tokens_from(int32_t first, int32_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

TEST(TextGenerator, DropsTheOlderHalfOfAFullContext) {
    const ModelConfig config = small_family("llama", 2, 8, 29, true);
    const std::vector<int32_t> tokens = tokens_from(0, 14);
    const auto all = logits_of_prefixes(config, {2}, tokens, 1);
    const auto alone = [&](int32_t first, int32_t count) {
        return logits_of_prefixes(config, {2}, tokens_from(first, count),
                                  static_cast<size_t>(count))
            .front();
    };
    EXPECT_EQ(all[8], alone(5, 4));  // 9 tokens: the last 4 of them
    EXPECT_NE(all[8], alone(4, 5));
    EXPECT_EQ(all[13], alone(10, 4));  // 14 tokens: a second time
}

TEST(TextGenerator, StartsOver) {
    const ModelConfig config = small_family("gpt2", 2, 8, 29, true);
    generate(config, {2}, [](Communicator& world, TextGenerator& generator) {
        const std::vector<int32_t> first = tokens_from(0, 5), second = tokens_from(9, 3);
        generator.read(second);
        const std::vector<float> expected = all_logits(world, generator.logits());
        generator.start_over();
        generator.read(first);
        EXPECT_NE(all_logits(world, generator.logits()), expected);
        generator.start_over();
        generator.read(second);
        EXPECT_EQ(all_logits(world, generator.logits()), expected);
    });
}

TEST(TextGenerator, TakesTheMemoryOfWeightsAndContextAlone) {
    const ModelConfig config = small_family("llama", 4, 64, 29, true);
    const TextGeneratorOptions options{.model = config, .ranks = 2};
    const TextGeneratorBytes bytes = TextGenerator::bytes(options, 0);
    const Schedule alone = one_rank_schedule(config);
    const ModelPartition training{.layers_per_stage = {config.num_layers}};
    const int64_t rotary = 6 * 4;  // of a token, which ModelRank has
    EXPECT_EQ(TextGenerator::bytes({.model = config}, 0).weights,
              static_cast<int64_t>(persistent_bytes(config, training, alone, 0).weights) + rotary);
    const int64_t kept = 2 * 2 * 6 * 64 * 4 * 2;  // k, v of 2 heads of 6, 64 tokens, 2 layers
    EXPECT_GE(bytes.context, kept);
    const TextGeneratorOptions shared{.model = config, .ranks = 1, .tensor = 2};
    EXPECT_NEAR(static_cast<double>(TextGenerator::bytes(shared, 1).context),
                static_cast<double>(bytes.context), 0.3 * static_cast<double>(bytes.context))
        << "heads of one in place of layers";
    ModelConfig mixtral = small_family("mixtral", 2, 64, 29, true);
    mixtral.moe.experts = 4;
    const TextGeneratorBytes all = TextGenerator::bytes({.model = mixtral}, 0);
    const TextGeneratorBytes half = TextGenerator::bytes({.model = mixtral, .expert = 2}, 1);
    const int64_t of_an_expert = 3 * mixtral.hidden_size * mixtral.ffn_hidden_size * 4;
    EXPECT_EQ(all.weights - half.weights, 2 * 2 * of_an_expert) << "two layers, two experts";
    TextGeneratorOptions twice = options;
    twice.model.seq_length = 128;
    const int64_t twice_context = TextGenerator::bytes(twice, 0).context;
    EXPECT_GE(twice_context, bytes.context + kept);
    EXPECT_LE(static_cast<double>(twice_context),
              2.0 * static_cast<double>(bytes.context) + 0.1 * static_cast<double>(kept))
        << "attention works in blocks of one size";
}

}  // namespace
}  // namespace vocabpipe::testing
