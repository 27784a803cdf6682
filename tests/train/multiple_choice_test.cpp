// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/multiple_choice.hpp"
#include "tests/model/model_run.hpp"
#include "tests/train/data/choice_file.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/evaluation_run.hpp"

#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <utility>

namespace vocabpipe::testing {
namespace {

/// Examples of all lengths that fit, with as many completions as may be.
std::vector<WrittenChoices> random_examples(int count, int64_t vocab_size, size_t length) {
    std::mt19937 random(5);
    const auto below = [&random](size_t limit) { return random() % limit; };
    const auto text = [&](size_t tokens) {
        std::vector<uint16_t> made(tokens);
        for (uint16_t& token : made) token = static_cast<uint16_t>(below(vocab_size));
        return made;
    };
    std::vector<WrittenChoices> examples;
    for (int i = 0; i < count; ++i) {
        WrittenChoices example;
        example.context = text(1 + below(length - 1));
        const size_t completions = i == 3 ? 2 : 4;
        for (size_t c = 0; c < completions; ++c) {
            example.completions.push_back(text(1 + below(length + 1 - example.context.size())));
        }
        example.label = static_cast<uint16_t>(below(completions));
        examples.push_back(std::move(example));
    }
    return examples;
}

/// Mean cross-entropy of a completion, by a model in double that reads one text at a time.
double mean_loss(const ModelConfig& config, const Tensors& weights,
                 const std::vector<uint16_t>& context, const std::vector<uint16_t>& completion) {
    std::vector<int32_t> text(context.begin(), context.end());
    text.insert(text.end(), completion.begin(), completion.end());
    Batch batch;
    batch.seq_length = config.seq_length;
    batch.tokens.emplace_back(text.begin(), text.end() - 1);
    batch.labels.emplace_back(text.begin() + 1, text.end());
    for (auto* values : {&batch.tokens.front(), &batch.labels.front()}) {
        values->resize(static_cast<size_t>(config.seq_length), 0);
    }
    batch.loss_gradient.emplace_back();
    const size_t first = context.size() - 1;  // whose label is the completion's first token
    for (size_t n = 0; n < batch.labels.front().size(); ++n) {
        const bool counts = n >= first && n < first + completion.size();
        if (!counts) batch.labels.front()[n] = -1;
        batch.loss_gradient.front().push_back(counts ? 1.0F : 0.0F);
    }
    batch.counted_tokens = static_cast<int64_t>(completion.size());
    return fp64_loss(config, batch, weights) / static_cast<double>(completion.size());
}

TEST(MultipleChoice, ChoosesWhatABruteForceLoopChooses) {
    ModelConfig config = tiny_gpt(4, {});
    config.seq_length = config.max_position_embeddings = 12;  // two chunks of two or three ranks
    const std::vector<WrittenChoices> examples =
        random_examples(13, config.vocab_size, static_cast<size_t>(config.seq_length));
    const Tensors weights = initial_weights(config, 7);
    int64_t right = 0;
    for (const WrittenChoices& example : examples) {
        double least = std::numeric_limits<double>::infinity();
        size_t choice = 0;
        for (size_t c = 0; c < example.completions.size(); ++c) {
            const double loss = mean_loss(config, weights, example.context, example.completions[c]);
            if (loss < least) {
                least = loss;
                choice = c;
            }
        }
        if (choice == example.label) ++right;
    }
    ASSERT_GT(right, 0);
    ASSERT_LT(right, 13);
    const TempFolder folder;
    write_file(folder / "set.bin", choice_file(examples));
    const ChoiceSet set(folder / "set.bin",
                        {.vocab_size = config.vocab_size, .seq_length = config.seq_length});
    for (const VocabMode mode : kEveryVocabMode) {
        for (const auto& [ranks, context] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 3}}) {
            const ChoiceAccuracy found = evaluate_on_threads(
                {.config = config, .mode = mode, .ranks = ranks, .context = context},
                [&](SequenceLosses& losses) { return choice_accuracy(losses, set); });
            EXPECT_EQ(found.examples, 13);
            EXPECT_EQ(found.right, right) << to_string(mode) << " p=" << ranks << " C=" << context;
            EXPECT_DOUBLE_EQ(found.accuracy(), static_cast<double>(right) / 13);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
