// SPDX-License-Identifier: Apache-2.0
// Loss weights and packed documents in training: whatever the mesh and the schedule, the loss of a
// step is that of a model in double.
#include "src/train/data/packed_samples.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/data/vector_source.hpp"
#include "tests/train/expert_setup.hpp"
#include "tests/train/random_documents.hpp"
#include "tests/train/text_losses.hpp"
#include "tests/train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

struct Place {
    std::string schedule;
    VocabMode mode;
    Mesh mesh;
    int64_t sequences = 1;  ///< of a microbatch
    ContextForm form = ContextForm::allgather;
};

std::string text_of(const Place& p) {
    return p.schedule + " " + std::string(to_string(p.mode)) +
           " p=" + std::to_string(p.mesh.pipeline) + " d=" + std::to_string(p.mesh.data) +
           " t=" + std::to_string(p.mesh.tensor) + " C=" + std::to_string(p.mesh.context) + " " +
           std::to_string(p.sequences) + " sequences";
}

/// Places on each axis alone, and on some together.
std::vector<Place> places() {
    std::vector<Place> all;
    for (const int64_t sequences : {1, 2, 4}) {
        all.push_back({"1f1b", VocabMode::none, {}, sequences});
        all.push_back({"zb-h1", VocabMode::one_barrier, {.pipeline = 2, .data = 2}, sequences});
    }
    all.push_back({"1f1b", VocabMode::two_barriers, {.pipeline = 3}});
    all.push_back({"zb-v", VocabMode::interlaced, {.pipeline = 2}});
    all.push_back({"gpipe", VocabMode::redistributed, {.pipeline = 2, .data = 4}});
    all.push_back({"1f1b", VocabMode::none, {.tensor = 2}, 2});
    all.push_back({"zb-h1", VocabMode::one_barrier, {.pipeline = 2, .tensor = 2}});
    all.push_back({"1f1b", VocabMode::none, {.context = 2}, 2});
    all.push_back({"1f1b", VocabMode::none, {.context = 3}});
    all.push_back({"1f1b", VocabMode::one_barrier, {.context = 2}, 2, ContextForm::a2a});
    all.push_back({"zb-h1", VocabMode::one_barrier, {.pipeline = 2, .data = 2, .context = 2}, 2});
    all.push_back({"1f1b", VocabMode::none, {.tensor = 2, .context = 2}, 4});
    return all;
}

constexpr int64_t kSamples = 8;  // of a step
constexpr int kLayers = 5;       // one more than the most stages of a place

/// The model is that of every place: its layers do not follow the number of stages.
TrainingSetup setup_for(const Place& place, const std::string& family,
                        const SampleSource& samples) {
    TrainingSetup setup =
        context_setup(place.schedule, place.mode, place.mesh, family, DType::fp32, 1);
    setup.config = small_family(family, kLayers, samples.seq_length(), kContextVocabulary, false);
    setup.config.ffn_hidden_size = 32;
    setup.config.num_attention_heads = 8;
    if (setup.config.num_query_groups != 0) setup.config.num_query_groups = 4;
    setup.context_exchange.form = place.form;
    setup.sequences = place.sequences;
    setup.microbatches = static_cast<int>(kSamples / place.sequences / place.mesh.data);
    setup.samples = &samples;
    return setup;
}

class SampleLosses : public ::testing::TestWithParam<std::string> {
protected:
    /// Trains a step on `samples` in every place; the loss of `texts` in fp64, which it must be.
    static WeightedLoss expect_on_every_mesh(const SampleSource& samples,
                                             const std::vector<Text>& texts) {
        WeightedLoss expected;
        for (const Place& place : places()) {
            SCOPED_TRACE(text_of(place));
            const TrainingSetup setup = setup_for(place, GetParam(), samples);
            if (expected.gradients.empty()) {
                expected = fp64_loss_of(setup.config, texts, setup.seed);
            }
            expect_loss(train_on_threads(setup), expected);
        }
        return expected;
    }
};

TEST_P(SampleLosses, AreWeighedOverTheWholeStepOnEveryMesh) {
    const RandomDocuments samples(
        {.seq_length = kContextLength, .ids = kContextVocabulary, .largest_weight = 9});
    std::vector<Text> texts;
    for (int64_t i = 0; i < kSamples; ++i) {
        Sample sample(samples.seq_length());
        samples.sample(i, sample);
        texts.push_back({sample.tokens, sample.labels, sample.loss_weights});
    }
    const WeightedLoss expected = expect_on_every_mesh(samples, texts);
    // Weights that were divided by their sum over a microbatch would be found.
    EXPECT_GT(std::abs(expected.mean_of_means - expected.loss), 100 * kLossBound * expected.loss);
}

/// Documents of 1 to 40 tokens, more than a sample has.
std::vector<std::vector<int32_t>> short_and_long_documents() {
    std::mt19937 random(11);
    std::vector<std::vector<int32_t>> documents;
    for (const int length : {40, 3, 17, 9, 2, 25, 8, 11, 5, 1, 20, 13, 7, 2, 18, 6}) {
        std::vector<int32_t>& document = documents.emplace_back();
        for (int i = 1; i < length; ++i) {
            document.push_back(static_cast<int32_t>(1 + random() % (kContextVocabulary - 1)));
        }
        document.push_back(0);
    }
    return documents;
}

TEST_P(SampleLosses, OfPackedDocumentsAreThoseOfEachAlone) {
    std::vector<int32_t> stream;
    std::vector<Text> texts;
    for (const std::vector<int32_t>& document : short_and_long_documents()) {
        stream.insert(stream.end(), document.begin(), document.end());
        for (size_t row = 0; row + 1 < document.size(); row += kContextLength) {
            const size_t end = std::min(row + kContextLength, document.size() - 1);
            Text& text = texts.emplace_back();
            for (size_t i = row; i < end; ++i) {
                text.tokens.push_back(document[i]);
                text.labels.push_back(document[i + 1]);
                text.weights.push_back(1);
            }
        }
    }
    const PackedSamples samples(
        std::make_shared<VectorSource>(stream),
        {.seq_length = kContextLength, .seed = 3, .masks = {.end_of_document = 0}});
    ASSERT_EQ(samples.samples_per_epoch(), kSamples);
    ASSERT_GT(samples.totals().padding(), 0);
    (void)expect_on_every_mesh(samples, texts);
}

// Learned positions, rotary ones, those with windows, and some layers without any.
INSTANTIATE_TEST_SUITE_P(Models, SampleLosses,
                         ::testing::Values("gpt2", "llama", "mistral", "smollm3"),
                         [](const auto& info) { return info.param; });

TEST(WeighedExperts, AreThoseOfOneRankOnRanksThatShareThem) {
    const RandomDocuments samples(
        {.seq_length = 8, .ids = kExpertVocabulary, .largest_weight = 4, .samples = 100});
    const auto setup_on = [&](const Mesh& mesh) {
        TrainingSetup setup =
            expert_setup("1f1b", VocabMode::none, mesh, "mixtral", DType::fp32, 2);
        setup.config = expert_model("mixtral", 3, DType::fp32);
        setup.samples = &samples;
        setup.microbatches = 4 / mesh.data;
        return setup;
    };
    const Training alone = train_on_threads(setup_on({}));
    for (const Mesh& mesh : {Mesh{.data = 2, .expert = 2}, Mesh{.tensor = 2, .expert = 2}}) {
        expect_follows(train_on_threads(setup_on(mesh)), alone, 2e-5);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
