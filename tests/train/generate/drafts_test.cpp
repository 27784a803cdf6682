// SPDX-License-Identifier: Apache-2.0
// Drafts with the depths of multi-token prediction: the text of greedy generation, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bf16.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "tests/model/fp64_model.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/train/generate/generate_on_ranks.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/text_generator.hpp"
#include "vocabpipe/trained_rank.hpp"

namespace vocabpipe::testing {
namespace {

constexpr int64_t kFewTokens = 5;  // some are guessed

void generate(const ModelConfig& config, int ranks, bool draft, const OnRank& body) {
    generate_on_ranks({.model = config, .ranks = ranks, .draft = draft}, body);
}

/// Depths with random weights guess hardly any token. Here they add what the model has made, so
/// that a token that the model repeats is a right guess.
void guess_repetitions(Parameter& p) {
    if (!p.name.ends_with("eh_proj.weight")) return;
    const int64_t h = p.weight.rows;
    for (int64_t i = 0; i < h; ++i) {
        const int64_t at = i * p.weight.stride + h + i;
        if (p.weight.dtype == DType::fp32) {
            p.weight.as<float>()[at] += 3;
        } else {
            p.weight.as<kernels::Bf16>()[at] = kernels::to_bf16(3);
        }
    }
}

struct Text {
    std::vector<int32_t> tokens;
    /// [token] Logits from which the token after it was chosen; with drafts empty where they were
    /// not the last ones of a forward.
    std::vector<std::vector<float>> logits;
    DraftCounts counts;
};

/// Continues `prompt` to `length` tokens.
Text continued(const ModelConfig& config, int ranks, bool draft, std::vector<int32_t> prompt,
               int64_t length) {
    Text text{.tokens = std::move(prompt), .logits = {}, .counts = {}};
    generate(config, ranks, draft, [&](Communicator& world, TextGenerator& generator) {
        for (Parameter& p : generator.model().parameters()) guess_repetitions(p);
        std::vector<int32_t> ids = text.tokens;
        std::vector<std::vector<float>> logits;
        while (std::ssize(ids) < length) {
            std::vector<int32_t> next;
            if (draft) {
                next = generator.next_drafted(ids, length - std::ssize(ids));
            } else {
                generator.read(ids);
                next = {generator.next({.temperature = 0}, 0)};
            }
            ids.insert(ids.end(), next.begin(), next.end());
            logits.resize(ids.size() - 1);
            logits.push_back(all_logits(world, generator.logits()));
        }
        if (world.rank() > 0) return;
        text = {.tokens = ids, .logits = logits, .counts = generator.draft_counts()};
    });
    return text;
}

std::vector<int32_t> prompt_of(int64_t length) {
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(i * i % 5));
    return prompt;
}

std::vector<std::string> families_with_depths() {
    std::vector<std::string> families;
    for (const std::string& name : model_families()) {
        const ModelConfig config = small_family(name, 3, 11, kFewTokens, true);
        if (config.moe.experts == 0 && !has_embedded_tokens(config)) families.push_back(name);
    }
    return families;
}

class Drafts : public ::testing::TestWithParam<std::string> {
protected:
    static ModelConfig config(int depths, DType type = DType::fp32) {
        ModelConfig of = small_family(GetParam(), 3, 11, kFewTokens, false);
        of.mtp_num_layers = depths;
        of.dtype = type;
        return of;
    }
};

/// Compares texts of 30 tokens, in which the context of 11 overflows several times.
void expect_same_text(const ModelConfig& config, const Text& plain, int ranks, int64_t prompt,
                      DraftCounts& sum) {
    const Text drafted = continued(config, ranks, true, prompt_of(prompt), 30);
    ASSERT_EQ(drafted.tokens, plain.tokens);
    ASSERT_EQ(drafted.logits.size(), plain.logits.size());
    for (size_t i = 0; i < plain.logits.size(); ++i) {
        if (drafted.logits[i].empty()) continue;
        ASSERT_EQ(drafted.logits[i], plain.logits[i]) << "token " << i;
    }
    EXPECT_EQ(drafted.counts.tokens, 30 - prompt);
    EXPECT_EQ(drafted.counts.tokens, drafted.counts.forwards + drafted.counts.accepted);
    sum.drafted += drafted.counts.drafted;
    sum.accepted += drafted.counts.accepted;
}

TEST_P(Drafts, ChangeNeitherATokenNorABitOfTheLogits) {
    for (const DType type : {DType::fp32, DType::bf16}) {
        DraftCounts sum;
        for (const int depths : {1, 2, 3}) {
            for (const int64_t prompt : {1, 2, 4}) {
                const ModelConfig of = config(depths, type);
                const Text plain = continued(of, 1, false, prompt_of(prompt), 30);
                for (const int ranks : {1, 2, 4}) {
                    if (ranks == 4 && (depths != 2 || prompt != 2)) continue;  // slow
                    SCOPED_TRACE(::testing::Message()
                                 << (type == DType::bf16) << ", " << depths << " depths, " << ranks
                                 << " ranks, prompt " << prompt);
                    expect_same_text(of, plain, ranks, prompt, sum);
                }
            }
        }
        EXPECT_GT(sum.accepted, sum.drafted / 10);
        EXPECT_LT(sum.accepted, sum.drafted - sum.drafted / 10);
    }
}

/// The number of the largest.
int32_t likeliest(const std::vector<float>& logits) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

/// - log of the probability of `token`.
double loss_of(const std::vector<float>& logits, int32_t token) {
    double sum = 0;
    for (const float z : logits) sum += std::exp(static_cast<double>(z));
    return std::log(sum) - logits[static_cast<size_t>(token)];
}

/// The loss of depth k in row `row` of one sequence in training, for this label, in fp64.
double trained_loss(ModelConfig config, const Tensors& weights, const std::vector<int32_t>& tokens,
                    int k, int64_t row, int32_t label) {
    config.seq_length = std::ssize(tokens);
    const size_t rows = tokens.size() * static_cast<size_t>(config.predicted_tokens());
    const size_t at = static_cast<size_t>(k) * tokens.size() + static_cast<size_t>(row);
    Batch batch{.sequences = 1, .seq_length = config.seq_length, .tokens = {tokens}};
    batch.labels = {std::vector<int32_t>(rows, -1)};
    batch.loss_gradient = {std::vector<float>(rows, 0.0F)};
    batch.labels[0][at] = label;
    batch.loss_gradient[0][at] = 1;
    batch.counted_tokens = 1;
    return fp64_loss(config, batch, weights);
}

TEST_P(Drafts, ComeFromTheLogitsThatDepthsHaveInTraining) {
    constexpr int kDepths = 3;
    ModelConfig of = config(kDepths);
    of.seq_length = 24;
    const Tensors weights = initial_weights(of, kSeed);
    for (const int64_t length : {1, 2, 5}) {
        int compared = 0;
        generate(of, 2, true, [&](Communicator& world, TextGenerator& generator) {
            std::vector<int32_t> ids = prompt_of(length);
            while (std::ssize(ids) < of.seq_length) {
                const std::vector<int32_t> next =
                    generator.next_drafted(ids, of.seq_length - std::ssize(ids));
                // Row n-1 of every depth has drafted, after n tokens that the model had read.
                const int64_t n = std::ssize(ids) - 1;
                std::vector<int32_t> seen = ids;
                for (int k = 1; k <= kDepths; ++k) {
                    const std::vector<float> logits = all_logits(world, generator.draft_logits(k));
                    if (logits.empty()) break;
                    // One token more, which this depth must not have seen.
                    seen.push_back(likeliest(logits));
                    if (world.rank() > 0) continue;
                    for (const int32_t label : {0, 3}) {
                        const double exact = trained_loss(of, weights, seen, k, n - 1, label);
                        EXPECT_NEAR(loss_of(logits, label), exact, 2e-5 * (1 + exact))
                            << "depth " << k << ", row " << n - 1;
                        ++compared;
                    }
                }
                ids.insert(ids.end(), next.begin(), next.end());
            }
        });
        EXPECT_GT(compared, 20);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, Drafts, ::testing::ValuesIn(families_with_depths()),
                         [](const auto& info) { return info.param; });

ModelConfig llama_with(int depths) {
    ModelConfig config = small_family("llama", 4, 23, 29, false);
    config.mtp_num_layers = depths;
    return config;
}

TEST(DraftsOfAText, FollowTokensOfOthersAndBeginAgain) {
    const ModelConfig config = llama_with(2);
    const std::vector<int32_t> prompt{3, 1, 4};
    std::vector<int32_t> added = continued(config, 1, false, prompt, 6).tokens;
    for (const int32_t id : {7, 8, 9}) added.push_back(id);  // of a caller, several at once
    const Text plain = continued(config, 1, false, added, 16);
    generate(config, 2, true, [&](Communicator&, TextGenerator& generator) {
        for (int again = 0; again < 2; ++again) {
            std::vector<int32_t> ids = prompt;
            while (std::ssize(ids) < 6) {
                for (const int32_t id : generator.next_drafted(ids, 6 - std::ssize(ids))) {
                    ids.push_back(id);
                }
            }
            EXPECT_THROW(static_cast<void>(generator.next_drafted({ids.data(), 5}, 1)), UsageError);
            ids = added;
            while (std::ssize(ids) < 16) {
                for (const int32_t id : generator.next_drafted(ids, 16 - std::ssize(ids))) {
                    ids.push_back(id);
                }
            }
            EXPECT_EQ(ids, plain.tokens);
            generator.start_over();
        }
    });
}

TEST(DraftsOfAText, NeedMemoryForDepthsOnlyWhereTheyDraft) {
    for (const int rank : {0, 1}) {
        const auto bytes = [&](int depths, bool draft) {
            return TextGenerator::bytes({.model = llama_with(depths), .ranks = 2, .draft = draft},
                                        rank);
        };
        // A depth takes a layer from the last stage, as in training.
        ModelConfig config = llama_with(0);
        const TextGeneratorBytes without = bytes(1, false), with = bytes(1, true);
        if (rank == 0) {
            EXPECT_EQ(with.weights, without.weights);
            continue;
        }
        const int64_t h = config.hidden_size;
        EXPECT_GE(with.weights - without.weights, (2 * h * h + 3 * h) * 4);
        EXPECT_GE(with.context - without.context, 23 * h * 4) << "what the depth reads";
        EXPECT_GT(bytes(2, true).context, with.context);
    }
}

TEST(DraftsOfAText, TakeTheWeightsOfARankThatTrains) {
    const ModelConfig config = llama_with(2);
    const std::vector<int32_t> tokens{3, 1, 4, 1, 5};
    const auto drafted = [&](TextGenerator& generator) {
        std::vector<int32_t> ids = tokens;
        while (std::ssize(ids) < 20) {
            for (const int32_t id : generator.next_drafted(ids, 20 - std::ssize(ids))) {
                ids.push_back(id);
            }
        }
        return std::pair(ids, generator.draft_counts().accepted);
    };
    for (const bool draft : {false, true}) {
        generate(config, 2, draft, [&](Communicator& world, TextGenerator& generator) {
            const std::unique_ptr<Device> device = make_host_device();
            const StepPlan plan = plan_step(config, {.ranks = 2}, {}, {.optimizer = false});
            TrainedRank trained(world, *device, plan, TrainedRankOptions{.seed = kSeed});
            generator.read(tokens);
            const std::vector<float> own = all_logits(world, generator.logits());
            generator.model().initialise(generator.context(), kSeed + 1);
            generator.copy_weights(trained.model());
            generator.read(tokens);
            EXPECT_EQ(all_logits(world, generator.logits()), own);
            if (!draft) return;
            generator.start_over();
            const auto copied = drafted(generator);
            generate(config, 1, true, [&](Communicator&, TextGenerator& other) {
                EXPECT_EQ(drafted(other), copied) << "text, and tokens that depths guessed";
            });
        });
    }
}

TEST(DraftsOfAText, AreRefusedWhereDepthsCannotDraft) {
    const auto refuse = [](const TextGeneratorOptions& options, const std::string& what) {
        try {
            static_cast<void>(TextGenerator::bytes(options, 0));
            ADD_FAILURE() << what;
        } catch (const UsageError& error) {
            EXPECT_NE(std::string(error.what()).find("--draft-with-mtp"), std::string::npos);
            EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
        }
    };
    refuse({.model = llama_with(0), .draft = true}, "no depths");
    refuse({.model = llama_with(1), .tensor = 2, .draft = true}, "--tensor-model-parallel-size 2");
    ModelConfig gpt2 = small_family("gpt2", 2, 9, 29, true);
    gpt2.mtp_num_layers = 1;
    refuse({.model = gpt2, .draft = true}, "gpt2");
    ModelConfig mixtral = small_family("mixtral", 2, 9, 29, true);
    mixtral.mtp_num_layers = 1;
    refuse({.model = mixtral, .draft = true}, "experts");
    ModelConfig adapted = llama_with(1);
    adapted.lora.rank = 2;
    refuse({.model = adapted, .draft = true}, "adapters");
    generate(llama_with(1), 1, false, [](Communicator&, TextGenerator& generator) {
        const std::vector<int32_t> ids{1, 2};
        EXPECT_THROW(static_cast<void>(generator.next_drafted(ids, 1)), UsageError);
    });
}

}  // namespace
}  // namespace vocabpipe::testing
