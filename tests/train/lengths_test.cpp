// SPDX-License-Identifier: Apache-2.0
// Training with microbatches of several lengths: whatever the mesh and the schedule, the loss of a
// step is that of its texts in a model in double, and neither padding nor programs that are made
// again change it.
#include "tests/model/model_cases.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/expert_setup.hpp"
#include "tests/train/samples_of_lengths.hpp"
#include "tests/train/text_losses.hpp"
#include "tests/train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kSamples = 8;  // of a step
constexpr int kLayers = 5;       // one more than the most stages of a place

struct Place {
    std::string schedule;
    VocabMode mode;
    Mesh mesh;
    int64_t sequences = 1;  ///< of a microbatch
    Recompute recompute = Recompute::none;
    ContextForm form = ContextForm::allgather;
};

std::string text_of(const Place& p) {
    return p.schedule + " " + std::string(to_string(p.mode)) +
           " p=" + std::to_string(p.mesh.pipeline) + " d=" + std::to_string(p.mesh.data) +
           " t=" + std::to_string(p.mesh.tensor) + " C=" + std::to_string(p.mesh.context) + " " +
           std::to_string(p.sequences) + " sequences";
}

/// Places on each axis alone, and on some together; every vocabulary mode.
std::vector<Place> places() {
    std::vector<Place> all;
    for (const int64_t sequences : {1, 2}) {
        all.push_back({"1f1b", VocabMode::none, {}, sequences});
        all.push_back({"zb-h1", VocabMode::one_barrier, {.pipeline = 2, .data = 2}, sequences});
    }
    all.push_back({"1f1b", VocabMode::two_barriers, {.pipeline = 3}, 1, Recompute::full});
    all.push_back({"interleaved", VocabMode::one_barrier, {.pipeline = 2}});
    all.push_back({"v-half", VocabMode::one_barrier, {.pipeline = 2}, 1, Recompute::selective});
    all.push_back({"zb-v", VocabMode::interlaced, {.pipeline = 2}});
    all.push_back({"gpipe", VocabMode::redistributed, {.pipeline = 2, .data = 2}});
    all.push_back({"1f1b", VocabMode::none, {.tensor = 2}, 2});
    all.push_back({"zb-h1", VocabMode::two_barriers, {.pipeline = 2, .tensor = 2}});
    all.push_back({"1f1b", VocabMode::none, {.context = 2}, 2});
    all.push_back({"1f1b", VocabMode::none, {.context = 3}});
    all.push_back({.schedule = "1f1b",
                   .mode = VocabMode::one_barrier,
                   .mesh = {.context = 2},
                   .sequences = 2,
                   .form = ContextForm::a2a});
    all.push_back({"zb-h1", VocabMode::one_barrier, {.pipeline = 2, .context = 2}});
    return all;
}

/// Lengths that the ranks of a mesh can share, the longest first.
std::vector<int64_t> lengths_for(const Mesh& mesh) {
    if (mesh.context == 3) return {kContextLength, 12, 6};
    if (mesh.context == 2) return {kContextLength, 16, 4};
    if (mesh.tensor == 2) return {kContextLength, 14, 8};
    return {kContextLength, 13, 7};
}

SamplesOfLengths samples_of(const std::vector<int64_t>& lengths, bool padded = false) {
    const int64_t longest = lengths[0];
    return SamplesOfLengths({.lengths = {lengths[1], longest, lengths[2], lengths[2], lengths[1]},
                             .ids = kContextVocabulary,
                             .seq_length = longest,
                             .padded = padded});
}

TrainingSetup setup_for(const Place& place, const std::string& family,
                        const SampleSource& samples) {
    TrainingSetup setup =
        context_setup(place.schedule, place.mode, place.mesh, family, DType::fp32, 1);
    setup.config = small_family(family, kLayers, kContextLength, kContextVocabulary, false);
    setup.config.ffn_hidden_size = 32;
    setup.config.num_attention_heads = 8;
    if (setup.config.num_query_groups != 0) setup.config.num_query_groups = 4;
    setup.context_exchange.form = place.form;
    setup.recompute = place.recompute;
    setup.sequences = place.sequences;
    setup.microbatches = static_cast<int>(kSamples / place.sequences / place.mesh.data);
    setup.samples = &samples;
    const std::vector<int64_t> lengths = lengths_for(place.mesh);
    setup.shorter_lengths.assign(lengths.begin() + 1, lengths.end());
    return setup;
}

class LengthsOfMicrobatches : public ::testing::TestWithParam<std::string> {};

TEST_P(LengthsOfMicrobatches, LeaveTheLossesThatTheirTextsHaveInDouble) {
    for (const Place& place : places()) {
        SCOPED_TRACE(text_of(place));
        const SamplesOfLengths samples = samples_of(lengths_for(place.mesh));
        std::vector<Text> texts;
        for (int64_t i = 0; i < kSamples; ++i) {
            Sample sample(samples.length(i));
            samples.sample(i, sample);
            texts.push_back({sample.tokens, sample.labels, sample.loss_weights});
        }
        const TrainingSetup setup = setup_for(place, GetParam(), samples);
        const WeightedLoss expected = fp64_loss_of(setup.config, texts, setup.seed);
        expect_loss(train_on_threads(setup), expected);
    }
}

// Learned positions, rotary ones, and those with windows.
INSTANTIATE_TEST_SUITE_P(Models, LengthsOfMicrobatches,
                         ::testing::Values("gpt2", "llama", "mistral"),
                         [](const auto& info) { return info.param; });

TEST(LengthsOfMicrobatches, TrainAsSamplesDoThatArePaddedToTheLongest) {
    for (const Place& place : places()) {
        SCOPED_TRACE(text_of(place));
        const SamplesOfLengths samples = samples_of(lengths_for(place.mesh));
        const SamplesOfLengths padded = samples_of(lengths_for(place.mesh), true);
        TrainingSetup setup = setup_for(place, "llama", samples);
        setup.steps = 4;
        const Training by_lengths = train_on_threads(setup);
        setup.samples = &padded;
        setup.shorter_lengths.clear();
        const Training whole = train_on_threads(setup);
        for (size_t step = 0; step < whole.losses.size(); ++step) {
            EXPECT_NEAR(by_lengths.losses[step], whole.losses[step], 2e-5) << step;
        }
    }
}

TEST(LengthsOfMicrobatches, HaveTheSameBitsWhereReplicasShareLayers) {
    const Place place{"interleaved", VocabMode::one_barrier, {.pipeline = 2, .data = 2}};
    const SamplesOfLengths samples = samples_of(lengths_for(place.mesh));
    TrainingSetup setup = setup_for(place, "llama", samples);
    setup.steps = 3;
    const Training expected = train_on_threads(setup);
    setup.zero = {.stage = 3, .reshard_after = ReshardAfter::step};
    EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "");
    setup.zero.reshard_after = ReshardAfter::use;
    const Training each_use = train_on_threads(setup);
    EXPECT_EQ(each_use.losses.front(), expected.losses.front());
    for (size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(each_use.losses[step], expected.losses[step], 1e-5) << step;
    }
}

// With whole layers ranks add up nothing, so a pipeline has the bits of one rank.
TEST(LengthsOfMicrobatches, HaveTheBitsOfOneRankOnEveryPipelineOfWholeLayers) {
    const SamplesOfLengths samples = samples_of(lengths_for({}));
    const auto run = [&](const std::string& schedule, int ranks) {
        TrainingSetup setup =
            setup_for({schedule, VocabMode::none, {.pipeline = ranks}}, "llama", samples);
        setup.steps = 3;
        return train_on_threads(setup);
    };
    const Training alone = run("1f1b", 1);
    for (const char* schedule : {"1f1b", "interleaved", "zb-h1", "v-half"}) {
        EXPECT_EQ(first_difference(alone, run(schedule, 2)), "") << schedule;
    }
    EXPECT_EQ(first_difference(alone, run("1f1b", 4)), "");
}

TEST(LengthsOfMicrobatches, HaveTheSameBitsWhereTheirRowsStream) {
    const std::vector<int64_t> lengths{256, 128, 40};
    const SamplesOfLengths samples = samples_of(lengths);
    const auto run = [&](int pieces) {
        TrainingSetup setup =
            setup_for({"zb-h1", VocabMode::two_barriers, {.pipeline = 3}}, "llama", samples);
        setup.config = small_family("llama", kLayers, lengths[0], kContextVocabulary, false);
        setup.shorter_lengths = {lengths[1], lengths[2]};
        setup.pieces = pieces;
        setup.steps = 2;
        return train_on_threads(setup);
    };
    const Training whole = run(1);
    for (const int pieces : {2, 5}) EXPECT_EQ(first_difference(whole, run(pieces)), "") << pieces;
}

TEST(LengthsOfMicrobatches, DoNotChangeWhatExpertsLearnOnRanksThatShareThem) {
    const SamplesOfLengths samples(
        {.lengths = {4, 4, 8, 8, 6, 6, 6, 6}, .ids = kExpertVocabulary, .seq_length = 8});
    const auto setup_on = [&](const Mesh& mesh) {
        TrainingSetup setup =
            expert_setup("1f1b", VocabMode::none, mesh, "mixtral", DType::fp32, 2);
        setup.config = expert_model("mixtral", 3, DType::fp32);
        setup.samples = &samples;
        setup.sequences = 2;
        setup.microbatches = 4 / mesh.data;
        setup.shorter_lengths = {6, 4};
        return setup;
    };
    const Training alone = train_on_threads(setup_on({}));
    expect_follows(train_on_threads(setup_on({.tensor = 2, .expert = 2})), alone, 2e-5);
    expect_follows(train_on_threads(setup_on({.pipeline = 2})), alone, 2e-5);
}

// Which program runs does not follow from what else is kept.
TEST(LengthsOfMicrobatches, HaveTheSameBitsWhetherProgramsAreKeptOrMadeAgain) {
    const SamplesOfLengths samples = samples_of(lengths_for({}));
    TrainingSetup setup =
        setup_for({"zb-h1", VocabMode::one_barrier, {.pipeline = 2}}, "gpt2", samples);
    setup.steps = 12;  // of five orders of lengths
    const Training kept = train_on_threads(setup);
    setup.length_programs = 1;
    EXPECT_EQ(first_difference(kept, train_on_threads(setup)), "");
}

}  // namespace
}  // namespace vocabpipe::testing
