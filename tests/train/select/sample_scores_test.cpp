// SPDX-License-Identifier: Apache-2.0
// Margins against a model in double, losses against the evaluation's bits, hidden states against
// what the output layer is given.
#include "src/train/select/sample_scores.hpp"

#include "src/model/sequence_output.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/train/evaluation_run.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int kSamples = 5;  // an odd number: the last microbatch is padded
constexpr int64_t kVocabulary = 19;
constexpr int64_t kLength = 5;

struct ScoredSample {
    SampleSums sums;
    std::vector<float> hidden;   ///< as scored
    std::vector<double> direct;  ///< mean of what the output layer was given
};

/// The layer of the model, which also adds up its input in plain loops.
class WatchedOutput final : public OutputLayer, public SequenceOutput {
public:
    explicit WatchedOutput(OutputLayer& layer)
        : layer_(layer), by_sequence_(*sequence_output(&layer)) {}
    [[nodiscard]] std::span<Parameter> parameters() override { return layer_.parameters(); }
    void evaluate_next_step(int64_t sequences) override {
        by_sequence_.evaluate_next_step(sequences);
    }
    void begin_step(int microbatches) override { layer_.begin_step(microbatches); }
    [[nodiscard]] std::span<const double> losses() const override { return layer_.losses(); }
    [[nodiscard]] ConstTensor records() const override { return layer_.records(); }
    [[nodiscard]] std::span<const float> hidden_sums() const override {
        return by_sequence_.hidden_sums();
    }
    void score(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor exp_logits,
               Tensor statistics, Bytes workspace) override {
        const int64_t length = microbatch.seq_length;
        for (int64_t sequence = 0; sequence < microbatch.sequences; ++sequence) {
            std::vector<double>& mean = means[microbatch.index * microbatch.sequences + sequence];
            mean.assign(static_cast<size_t>(x.cols), 0);
            for (int64_t n = sequence * length; n < (sequence + 1) * length; ++n) {
                for (int64_t i = 0; i < x.cols; ++i) {
                    mean[static_cast<size_t>(i)] +=
                        x.as<float>()[n * x.stride + i] / static_cast<double>(length);
                }
            }
        }
        layer_.score(ctx, microbatch, x, exp_logits, statistics, workspace);
    }
    void input_product(Context& ctx, ConstTensor exp_logits, Tensor u) override {
        layer_.input_product(ctx, exp_logits, u);
    }
    void combine_softmax(Context& ctx, const Microbatch& microbatch, ConstTensor statistics,
                         int member, Tensor factors) override {
        layer_.combine_softmax(ctx, microbatch, statistics, member, factors);
    }
    void finish_input_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor factors,
                               Tensor u) override {
        layer_.finish_input_gradient(ctx, microbatch, factors, u);
    }
    void weight_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                         ConstTensor exp_logits, ConstTensor factors, Bytes workspace,
                         bool accumulate) override {
        layer_.weight_gradient(ctx, microbatch, x, exp_logits, factors, workspace, accumulate);
    }

    std::map<int64_t, std::vector<double>> means;  ///< by row of the step

private:
    OutputLayer& layer_;
    SequenceOutput& by_sequence_;
};

/// kSamples sequences, some labels of which are not counted; the second has none that is.
Batch samples_of(const ModelConfig& config) {
    Batch batch = random_batch(config, kSamples, 1, 3, 0.2);
    for (int32_t& label : batch.labels[1]) label = -1;
    return batch;
}

FillSequence fill_from(const Batch& batch) {
    return [&batch](int64_t i, Sample& row) {
        std::ranges::copy(batch.tokens[static_cast<size_t>(i)], row.tokens.begin());
        std::ranges::copy(batch.labels[static_cast<size_t>(i)], row.labels.begin());
    };
}

struct ScoreSetup {
    ModelConfig config;
    std::string schedule = "1f1b";
    VocabMode mode = VocabMode::one_barrier;
    int ranks = 1;
    int replicas = 1;
    int64_t micro_batch_size = 2;
};

std::vector<ScoredSample> score_on_threads(const ScoreSetup& setup, const Batch& batch) {
    const StepPlan plan =
        plan_step(setup.config, {.ranks = setup.ranks, .replicas = setup.replicas},
                  {.name = setup.schedule, .vocab_mode = setup.mode},
                  {.microbatches = setup.ranks,
                   .micro_batch_size = setup.micro_batch_size,
                   .evaluation = true,
                   .optimizer = false,
                   .training = false,
                   .records = {.columns = {TokenRecord::margin}},
                   .hidden_sums = true});
    std::vector<ScoredSample> found(kSamples);
    std::mutex mutex;
    World::threads(setup.ranks * setup.replicas, {.timeout_seconds = 30})
        .run([&](Communicator& world) {
            const std::unique_ptr<Device> device = make_host_device();
            WatchedOutput* watched = nullptr;
            TrainedRank rank(
                world, *device, plan,
                {.seed = 7, .poison_dead_buffers = true, .change_model = [&](ModelRank& model) {
                     if (model.output() == nullptr) return;
                     auto layer = std::make_unique<WatchedOutput>(*model.output());
                     watched = layer.get();
                     model.replace_output(std::move(layer));
                 }});
            SampleScores scores(rank, {.micro_batch_size = setup.micro_batch_size,
                                       .seq_length = setup.config.seq_length,
                                       .microbatches = plan.microbatches(),
                                       .mesh = plan.mesh(),
                                       .loss_rank = plan.schedule.output.owners().front()});
            const EvaluationShape& shape = scores.shape();
            for (int64_t first = 0; first < shape.microbatches_of(kSamples);
                 first += shape.microbatches_per_step()) {
                scores.load(first, kSamples, fill_from(batch));
                scores.run();
                if (!scores.has_results()) continue;
                const std::lock_guard lock(mutex);
                for (int64_t row = 0; row < shape.sequences_per_replica(); ++row) {
                    if (scores.sample(row) >= kSamples) continue;
                    ScoredSample& one = found[static_cast<size_t>(scores.sample(row))];
                    one.sums = scores.sums(row);
                    one.hidden.resize(static_cast<size_t>(setup.config.hidden_size));
                    scores.hidden_mean(row, one.hidden);
                    one.direct = watched->means.at(row);
                }
            }
        });
    return found;
}

/// P1 - P2, added up over counted tokens, of every sample: by asking the model in double for the
/// loss of every token of the vocabulary at every position.
std::vector<double> margins_in_double(const ModelConfig& config, const Batch& batch) {
    Batch questions{
        .seq_length = config.seq_length, .tokens = {}, .labels = {}, .loss_gradient = {}};
    for (size_t sample = 0; sample < batch.tokens.size(); ++sample) {
        for (int64_t n = 0; n < config.seq_length; ++n) {
            for (int32_t y = 0; y < config.vocab_size; ++y) {
                questions.tokens.push_back(batch.tokens[sample]);
                questions.labels.emplace_back(static_cast<size_t>(config.seq_length), -1);
                questions.labels.back()[static_cast<size_t>(n)] = y;
                questions.loss_gradient.emplace_back(static_cast<size_t>(config.seq_length), 0.0F);
                questions.loss_gradient.back()[static_cast<size_t>(n)] = 1;
            }
        }
    }
    const std::vector<double> losses =
        fp64_step(config, questions, initial_weights(config, 7)).losses;
    std::vector<double> margins(batch.tokens.size());
    auto next = losses.begin();
    for (size_t sample = 0; sample < batch.tokens.size(); ++sample) {
        for (int64_t n = 0; n < config.seq_length; ++n) {
            std::vector<double> least(next, next + config.vocab_size);
            next += config.vocab_size;
            std::ranges::sort(least);
            if (batch.labels[sample][static_cast<size_t>(n)] < 0) continue;
            margins[sample] += std::exp(-least[0]) - std::exp(-least[1]);
        }
    }
    return margins;
}

void expect_scores(const std::vector<double>& margins, const std::vector<ScoredSample>& found) {
    for (size_t i = 0; i < found.size(); ++i) {
        // A margin moves by at most twice what its logits do: 1e-5 for each token, which is also
        // what sequence_losses_test.cpp grants a loss.
        EXPECT_NEAR(found[i].sums.margin, margins[i], 2e-5 * kLength) << "sample " << i;
        for (size_t k = 0; k < found[i].hidden.size(); ++k) {
            // A sum of kLength terms and a division in fp32.
            double size = 0;
            for (const double x : found[i].direct) size = std::max(size, std::abs(x));
            EXPECT_NEAR(found[i].hidden[k], found[i].direct[k],
                        (kLength + 1) * 0x1p-23 * std::max(size * kLength, 1.0))
                << "sample " << i << ", " << k;
        }
    }
    EXPECT_EQ(found[1].sums.weight, 0);
    EXPECT_EQ(found[1].sums.margin, 0);
}

void expect_evaluation_bits(const ScoreSetup& setup, const Batch& batch,
                            const std::vector<ScoredSample>& found) {
    const auto losses = evaluate_on_threads(
        {.config = setup.config,
         .family = setup.schedule,
         .mode = setup.mode,
         .ranks = setup.ranks,
         .microbatches = setup.ranks,
         .micro_batch_size = setup.micro_batch_size},
        [&](SequenceLosses& losses) { return losses.of(kSamples, fill_from(batch)); });
    for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].sums.loss, losses[i].sum) << "sample " << i;
        EXPECT_EQ(found[i].sums.weight, losses[i].tokens) << "sample " << i;
    }
}

class ScoresOfFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(ScoresOfFamilies, AreThoseOfAModelInDoubleAtAnyNumberOfRanks) {
    const ModelConfig config = small_family(GetParam(), 4, kLength, kVocabulary, true);
    const Batch batch = samples_of(config);
    const std::vector<double> margins = margins_in_double(config, batch);
    for (const int ranks : {1, 2, 4}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks");
        const ScoreSetup setup{.config = config, .ranks = ranks};
        const std::vector<ScoredSample> found = score_on_threads(setup, batch);
        expect_scores(margins, found);
        expect_evaluation_bits(setup, batch, found);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, ScoresOfFamilies, ::testing::ValuesIn(model_families()),
                         [](const auto& test) { return test.param; });

TEST(SampleScores, AreTheSameInEveryModeScheduleAndReplica) {
    const ModelConfig config = small_family("llama", 8, kLength, kVocabulary, false);
    const Batch batch = samples_of(config);
    const std::vector<double> margins = margins_in_double(config, batch);
    for (const VocabMode mode : kEveryVocabMode) {
        SCOPED_TRACE(to_string(mode));
        const ScoreSetup setup{.config = config, .mode = mode, .ranks = 2};
        const std::vector<ScoredSample> found = score_on_threads(setup, batch);
        expect_scores(margins, found);
        expect_evaluation_bits(setup, batch, found);
    }
    for (const std::string schedule : {"gpipe", "interleaved", "zb-v", "v-half"}) {
        SCOPED_TRACE(schedule);
        expect_scores(
            margins, score_on_threads({.config = config, .schedule = schedule, .ranks = 2}, batch));
    }
    expect_scores(margins, score_on_threads({.config = config, .ranks = 2, .replicas = 2}, batch));
}

TEST(SampleScores, NeedAPlanForThem) {
    const ModelConfig config = small_family("gpt2", 2, kLength, kVocabulary, true);
    const StepPlan plan =
        plan_step(config, {}, {}, {.evaluation = true, .optimizer = false, .training = false});
    World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plan);
        SampleScores scores(rank, {.seq_length = kLength});
        scores.load(0, 1, [](int64_t, Sample&) {});
        EXPECT_THROW(scores.run(), UsageError);
    });
}

TEST(SampleScores, BecomeUtilitiesInFixedPoint) {
    const SampleSums sums{.loss = 6, .margin = 1, .weight = 4};
    EXPECT_EQ(utility_of(UtilityKind::margin, sums), 3 << 18);
    EXPECT_EQ(utility_of(UtilityKind::loss, sums), 3 << 19);
    EXPECT_EQ(utility_of(UtilityKind::perplexity, sums),
              static_cast<int32_t>(std::lround(std::exp(1.5) * 0x1p20)));
    EXPECT_EQ(utility_of(UtilityKind::perplexity, {.loss = 4000, .weight = 4}),
              std::numeric_limits<int32_t>::max());
    EXPECT_EQ(utility_of(UtilityKind::margin, {.margin = 4.0000001, .weight = 4}), 0);
    EXPECT_EQ(utility_of(UtilityKind::loss, {}), 0);
    EXPECT_EQ(utility_kind_from("loss"), UtilityKind::loss);
    EXPECT_THROW((void)utility_kind_from("lost"), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
