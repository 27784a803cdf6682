// SPDX-License-Identifier: Apache-2.0
// GRPO (Shao et al. 2024) on two ranks: a model that knows nothing is rewarded for vowels, and
// learns to write them. No rank ever holds all logits of a token.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "vocabpipe/policy_loss.hpp"
#include "vocabpipe/text_generator.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

constexpr int kRanks = 2, kAnswers = 16, kSteps = 30;
constexpr int64_t kLength = 16;

/// The share of vowels.
float reward(std::span<const int32_t> answer) {
    const auto is_vowel = [](int32_t byte) {
        return byte > 0 && std::strchr("aeiouAEIOU", byte) != nullptr;
    };
    return static_cast<float>(std::ranges::count_if(answer, is_vowel)) / kLength;
}

int main() {
    const ModelConfig model{.seq_length = kLength, .max_position_embeddings = kLength};
    StepWork work{.microbatches = kAnswers,
                  .records = {.columns = {TokenRecord::logprob}},
                  .loss = std::make_shared<PolicyLoss>()};
    std::vector<StepPlan> plans{plan_step(model, {.ranks = kRanks}, {}, work)};
    work.evaluation = true;  // a forward-only step, for the log-probabilities of what was sampled
    plans.push_back(plan_step(model, {.ranks = kRanks}, {}, work));
    World::threads(kRanks).run([&](Communicator& world) {
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plans);
        TextGenerator generator(world, *device, {.model = model, .ranks = kRanks});
        std::mt19937 random(1);  // the same numbers on every rank
        for (int step = 1; step <= kSteps; ++step) {
            generator.copy_weights(rank.model());
            std::vector<std::vector<int32_t>> texts;
            std::vector<float> rewards;
            float mean = 0;
            for (int i = 0; i < kAnswers; ++i) {
                std::vector<int32_t>& text = texts.emplace_back(1, '\n');
                for (generator.start_over(); std::ssize(text) <= kLength;) {
                    generator.read(text);
                    text.push_back(generator.next({}, std::generate_canonical<double, 53>(random)));
                }
                mean += rewards.emplace_back(reward(std::span(text).subspan(1))) / kAnswers;
            }
            const std::vector<float> advantages = group_advantages(rewards, kAnswers);
            const std::vector<float> g(kLength, 1.0F / (kAnswers * kLength));
            std::vector<std::vector<float>> columns(kAnswers);
            std::vector<Microbatch> batch;
            for (int i = 0; i < kAnswers; ++i) {
                const std::span<const int32_t> text(texts[i]);
                columns[i].assign(2 * kLength, advantages[i]);
                batch.push_back({.index = i,
                                 .sequences = 1,
                                 .seq_length = kLength,
                                 .tokens = text.first(kLength),
                                 .labels = text.last(kLength),
                                 .loss_gradient = g,
                                 .columns = columns[i]});
            }
            rank.run(batch, 1);
            const std::vector<float> old = rank.records(TokenRecord::logprob);
            for (int i = 0; i < kAnswers; ++i) {
                std::copy_n(old.begin() + i * kLength, kLength, columns[i].begin() + kLength);
            }
            rank.train_step(batch, kAnswers * kLength, 1e-2);
            if (world.rank() != 0 || step % 5 != 0) continue;
            std::printf("step %2d   reward %.3f\n", step, mean);
        }
    });
}
