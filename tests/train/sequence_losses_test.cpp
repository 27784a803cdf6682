// SPDX-License-Identifier: Apache-2.0
// Losses by sequence: against a model in double, and the same bits whatever the schedule.
#include "src/train/evaluate/validation_loss.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/train/evaluation_run.hpp"
#include "tests/train/random_documents.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <random>

namespace vocabpipe::testing {
namespace {

using Losses = std::vector<SequenceLoss>;

/// Random sequences, some labels of which are not counted; one has none that is.
class Sequences {
public:
    Sequences(const ModelConfig& config, int count)
        : batch_(random_batch(config, count, 1, 3, 0.3)) {
        for (int32_t& label : batch_.labels[1]) label = -1;
        for (size_t j = 0; j < batch_.labels.size(); ++j) {
            for (size_t n = 0; n < batch_.labels[j].size(); ++n) {
                batch_.loss_gradient[j][n] = batch_.labels[j][n] < 0 ? 0.0F : 1.0F;
            }
        }
    }
    [[nodiscard]] const Batch& batch() const { return batch_; }
    [[nodiscard]] Losses losses(const EvaluationSetup& setup, int64_t count) const {
        return evaluate_on_threads(setup, [&](SequenceLosses& losses) {
            return losses.of(count, [&](int64_t i, Sample& row) {
                std::ranges::copy(batch_.tokens[static_cast<size_t>(i)], row.tokens.begin());
                std::ranges::copy(batch_.labels[static_cast<size_t>(i)], row.labels.begin());
            });
        });
    }

private:
    Batch batch_;
};

void expect_bits(const Losses& expected, const Losses& actual) {
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(expected[i].sum, actual[i].sum) << "sequence " << i;
        EXPECT_EQ(expected[i].tokens, actual[i].tokens) << "sequence " << i;
    }
}

TEST(SequenceLosses, AreTheCrossEntropiesOfAModelInDoubleWithoutSmoothingAndZLoss) {
    const ModelConfig trained = tiny_gpt(4, {.loss_terms = true});
    const ModelConfig plain = tiny_gpt(4, {});
    const Sequences sequences(plain, 8);
    const std::vector<double> expected =
        fp64_step(plain, sequences.batch(), initial_weights(plain, 7)).losses;
    for (const VocabMode mode : kEveryVocabMode) {
        const Losses found = sequences.losses({.config = trained, .mode = mode, .ranks = 2}, 8);
        ASSERT_EQ(found.size(), 8U);
        for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_NEAR(found[i].sum, expected[i], 1e-5 * std::max(1.0, expected[i]))
                << to_string(mode) << ", sequence " << i;
            EXPECT_EQ(found[i].tokens,
                      std::ranges::count_if(sequences.batch().labels[i],
                                            [](int32_t label) { return label >= 0; }));
        }
        EXPECT_EQ(found[1].tokens, 0);
    }
}

TEST(SequenceLosses, HaveTheSameBitsWhateverScheduleBarriersAndNumberOfMicrobatches) {
    const ModelConfig config = tiny_gpt(6, {.tied = true});
    const Sequences sequences(config, 7);
    for (const int ranks : {2, 3}) {
        const Losses sharded =
            sequences.losses({.config = config, .mode = VocabMode::interlaced, .ranks = ranks}, 7);
        const Losses whole = sequences.losses({.config = config, .ranks = 1}, 7);
        for (const std::string family : {"1f1b", "gpipe", "interleaved", "zb-v", "v-half"}) {
            SCOPED_TRACE(family + " on " + std::to_string(ranks) + " ranks");
            for (const VocabMode mode : kShardedModes) {
                expect_bits(sharded, sequences.losses({.config = config,
                                                       .family = family,
                                                       .mode = mode,
                                                       .ranks = ranks,
                                                       .microbatches = 2},
                                                      7));
            }
            expect_bits(
                whole,
                sequences.losses(
                    {.config = config, .family = family, .ranks = ranks, .microbatches = 5}, 7));
        }
    }
}

TEST(SequenceLosses, OfBadDataEndEveryRankAlike) {
    const ModelConfig config = tiny_gpt(4, {});
    EXPECT_THROW(evaluate_on_threads({.config = config, .ranks = 2},
                                     [](SequenceLosses& losses) {
                                         return losses.of(9, [](int64_t i, Sample&) {
                                             if (i == 8) throw InputFileError("sequence 8");
                                         });
                                     }),
                 AgreedError);
}

/// Samples that are their own number: tokens i, i + 1, ... modulo the vocabulary.
class Counting final : public SampleSource {
public:
    [[nodiscard]] int64_t seq_length() const override { return 6; }
    [[nodiscard]] int64_t samples_per_epoch() const override { return 5; }

private:
    void fill(int64_t index, Sample& out) const override {
        EXPECT_LT(index, 5);  // an evaluation sees a sample once
        for (size_t n = 0; n < out.tokens.size(); ++n) {
            out.tokens[n] = static_cast<int32_t>((static_cast<size_t>(index) * 3 + n) % 53);
            out.labels[n] = static_cast<int32_t>((static_cast<size_t>(index) * 3 + n + 1) % 53);
        }
    }
};

TEST(ValidationLoss, IsTheMeanOverAllCountedTokensAndItsPerplexityTheExponential) {
    const ModelConfig config = tiny_gpt(4, {});
    const Counting source;
    const auto validate = [&](int64_t samples) {
        return evaluate_on_threads(
            {.config = config, .mode = VocabMode::one_barrier, .ranks = 2},
            [&](SequenceLosses& losses) { return validation_loss(losses, source, samples); });
    };
    double sum = 0;
    const Losses all = evaluate_on_threads(
        {.config = config, .mode = VocabMode::one_barrier, .ranks = 2}, [&](SequenceLosses& l) {
            return l.of(5, [&](int64_t i, Sample& to) { source.sample(i, to); });
        });
    for (const SequenceLoss& one : all) sum += one.sum;
    const ValidationLoss found = validate(100);  // more than there are
    EXPECT_EQ(found.tokens, 30);
    EXPECT_EQ(found.loss, sum / 30);
    EXPECT_EQ(found.perplexity(), std::exp(found.loss));
    EXPECT_EQ(validate(2).tokens, 12);
    EXPECT_EQ(validate(2).loss, (all[0].sum + all[1].sum) / 12);
}

TEST(SequenceLosses, OfContextRanksAreThoseOfWholeSequences) {
    for (const char* const family : {"gpt2", "llama", "mixtral"}) {
        for (const bool documents : {false, true}) {
            const RandomDocuments source({.seq_length = 24,
                                          .ids = 41,
                                          .masks = {.end_of_document = 5,
                                                    .ignore_next = true,
                                                    .separate = documents,
                                                    .reset_positions = documents},
                                          .largest_weight = 2,
                                          .samples = 7});
            const EvaluationSetup alone{.config = small_family(family, 4, 24, 41, false),
                                        .mode = VocabMode::one_barrier,
                                        .samples = source.form()};
            const auto losses = [&](const EvaluationSetup& setup) {
                return evaluate_on_threads(setup, [&](SequenceLosses& losses) {
                    return losses.of(7, samples_to_evaluate(source));
                });
            };
            const Losses expected = losses(alone);
            ASSERT_EQ(expected.size(), 7U);
            const auto a2a = ContextForm::a2a;
            for (const Mesh& mesh :
                 {Mesh{.context = 2}, Mesh{.context = 3}, Mesh{.data = 2, .context = 2},
                  Mesh{.pipeline = 2, .tensor = 2, .context = 2}, Mesh{.context = 4}}) {
                for (const ContextForm form : {ContextForm::allgather, a2a}) {
                    const int64_t heads = alone.config.kv_heads() / mesh.tensor;
                    if (form == a2a && heads % mesh.context != 0) continue;
                    EvaluationSetup setup = alone;
                    setup.ranks = mesh.pipeline;
                    setup.data = mesh.data;
                    setup.tensor = mesh.tensor;
                    setup.context = mesh.context;
                    setup.form = form;
                    const Losses found = losses(setup);
                    ASSERT_EQ(found.size(), expected.size());
                    for (size_t i = 0; i < found.size(); ++i) {
                        EXPECT_NEAR(found[i].sum, expected[i].sum, 1e-5 * expected[i].sum)
                            << family << (documents ? " documents" : "") << " C=" << mesh.context
                            << " " << to_string(form) << ", sequence " << i;
                        EXPECT_EQ(found[i].tokens, expected[i].tokens);
                        EXPECT_EQ(found[i].weight, expected[i].weight);
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
