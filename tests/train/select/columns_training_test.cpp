// SPDX-License-Identifier: Apache-2.0
// Runs with --loss grpo --columns. With the log-probabilities of the model itself as the old ones,
// every ratio is 1 and every divergence 0 only where a sample has its own row; then the loss is
// minus the mean advantage, and its gradient that of the cross-entropy times the advantage.
#include "src/train/run/trainer.hpp"
#include "src/train/score/score_tokens.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/select/columns_of.hpp"
#include "tests/train/select/subset_of.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 25;
constexpr int64_t kLength = 16;

class ColumnsTraining : public ::testing::Test {
protected:
    /// A model that has learnt a little, so that its samples differ, and its log-probabilities.
    ColumnsTraining() {
        std::string tokens = read_file(runs_.path("tokens.bin"));
        write_file(runs_.path("few.bin"),
                   tokens.substr(0, (kSamples * kLength + 1) * sizeof(uint16_t)));
        write_file(runs_.path("others.bin"), tokens.substr(2000, 402));
        TrainOptions first = runs_.options();
        first.save = runs_.path("model");
        (void)runs_.run(1, first);
        columns_ = score(runs_.options());
    }

    Columns score(TrainOptions data) {
        TokenScoreOptions options;
        options.load = runs_.path("model");
        options.data = data.data;
        options.data.path = paths_;
        options.data.length_buckets.clear();  // rows of files are as long as samples at most are
        options.seq_length = kLength;
        options.threads_per_rank = 1;
        options.records.columns = {TokenRecord::logprob};
        options.output = runs_.path("old.safetensors");
        std::filesystem::remove(options.output);
        World::threads(1, {.timeout_seconds = 60}).run([&](Communicator& world) {
            (void)score_tokens(world, options);
        });
        Columns columns = columns_of_score(options.output);
        columns.values["ref_log_prob"] = columns.values["old_log_probs"];
        columns.fill("advantages", 1);
        return columns;
    }

    /// A run from the model's weights on, after the columns were written; lr: the learning rate.
    TrainOptions options(double lr = 0) {
        columns_.write(runs_.path("columns.safetensors"));
        TrainOptions o = runs_.options();
        o.data.path = paths_;
        o.load = runs_.path("model");
        o.finetune = true;
        o.lr = lr;
        o.vocab_mode = VocabMode::none;  // whose bits do not depend on the number of ranks
        o.loss = {.name = LossName::grpo, .policy = {.kl_coefficient = 1, .kl = KlEstimator::k2}};
        o.data.columns = runs_.path("columns.safetensors");
        return o;
    }
    std::vector<double> losses(int ranks, const TrainOptions& o) {
        return CheckpointRun::losses(runs_.run(ranks, o));
    }
    std::string refusal(const TrainOptions& o, int ranks = 1) {
        return message_of<AgreedError>([&] { (void)runs_.run(ranks, o); });
    }

    CheckpointRun runs_;
    std::vector<std::string> paths_{runs_.path("few.bin")};
    Columns columns_;
};

TEST_F(ColumnsTraining, GivesEverySampleItsRowInAnyEpochAndOnAnyReplica) {
    ASSERT_EQ(columns_.samples, kSamples);
    TrainOptions o = options();
    o.train_iters = 10;  // 60 samples: more than two epochs
    EXPECT_THAT(losses(1, o), Each(DoubleNear(-1, 1e-5)));
    o.pipeline_model_parallel_size = 1;
    EXPECT_THAT(losses(2, o), Each(DoubleNear(-1, 1e-5)));
    std::vector<float>& late = columns_.values["ref_log_prob"];
    std::ranges::rotate(late, late.begin() + kLength);
    for (const double loss : losses(1, options())) EXPECT_GT(loss, -0.999);
}

TEST_F(ColumnsTraining, GivesSamplesOfABlendAndOfASubsetTheirRows) {
    paths_ = {"1", runs_.path("few.bin"), "2", runs_.path("others.bin")};
    columns_ = score(runs_.options());
    ASSERT_GT(columns_.samples, kSamples);
    EXPECT_THAT(losses(1, options()), Each(DoubleNear(-1, 1e-5)));
    TrainOptions o = options();
    write_subset_file(runs_.path("subset"), training_corpus(TrainingData(o.data), kLength),
                      {1, 4, 7, 24, 26, 28, 30});
    o.data.subset = runs_.path("subset");
    EXPECT_THAT(losses(1, o), Each(DoubleNear(-1, 1e-5)));
}

TEST_F(ColumnsTraining, GivesDocumentsThatAreSamplesTheirRows) {
    std::string file;
    for (int document = 0; document < 40; ++document) {
        for (int token = 0; token < 2 + document * document % 23; ++token) {
            file += static_cast<char>(1 + (document + 7 * token) % 60);
            file += '\0';
        }
        file += std::string(2, '\0');  // token 0 ends it
    }
    write_file(runs_.path("documents.bin"), file);
    paths_ = {runs_.path("documents.bin")};
    TrainOptions data = runs_.options();
    data.data.packing_strategy = "padded";
    data.data.eod_token_id = 0;
    columns_ = score(data);
    ASSERT_GT(columns_.samples, 40);  // some have two
    for (const char* const buckets : {"", "16,8", "16,11,4"}) {
        SCOPED_TRACE(buckets);
        TrainOptions o = options();
        o.data.packing_strategy = "padded";
        o.data.eod_token_id = 0;
        o.data.length_buckets = buckets;
        o.train_iters = 12;  // more than an epoch
        EXPECT_THAT(losses(1, o), Each(DoubleNear(-1, 1e-5)));
        o.pipeline_model_parallel_size = 1;
        EXPECT_THAT(losses(2, o), Each(DoubleNear(-1, 1e-5)));
    }
}

TEST_F(ColumnsTraining, SeesTheSamplesInTheOrderOfARunWithoutColumns) {
    // The loss of the first step is minus the mean advantage of its samples: here the mean of -log
    // p, which is the cross-entropy.
    columns_.values["advantages"] = columns_.values["old_log_probs"];
    const std::vector<double> found = losses(1, options());
    TrainOptions plain = options();
    plain.loss = {};
    plain.data.columns.clear();
    const std::vector<double> expected = losses(1, plain);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST_F(ColumnsTraining, HasTheGradientOfTheCrossEntropyWhereAdvantagesAreOne) {
    const auto norm_of_first = [&](const TrainOptions& o) {
        std::istringstream line(runs_.run(1, o).front());
        double step = 0, loss = 0, norm = 0;
        line >> step >> loss >> norm;
        return norm;
    };
    TrainOptions plain = options();
    plain.loss = {};
    plain.data.columns.clear();
    const double expected = norm_of_first(plain);
    EXPECT_NEAR(norm_of_first(options()), expected, 1e-5 * expected);
}

/// Lists whose only entry is the label, of probability `t`; further entries are missing.
Columns labels_as_lists(const std::string& tokens, int64_t entries, double t) {
    Columns columns{.samples = kSamples, .seq_length = kLength, .values = {}};
    for (size_t n = 0; n < static_cast<size_t>(kSamples * kLength); ++n) {
        uint16_t label = 0;
        std::memcpy(&label, tokens.data() + (n + 1) * sizeof label, sizeof label);
        for (int64_t i = 0; i < entries; ++i) {
            // The last one, so that entries before it are missing.
            const bool is_label = i + 1 == entries;
            columns.lists["top_logprobs"].push_back(is_label ? static_cast<float>(std::log(t))
                                                             : -INFINITY);
            columns.ids["top_ids"].push_back(is_label ? label : -1);
        }
    }
    return columns;
}

TEST_F(ColumnsTraining, DistilsFromLabelsAsTheCrossEntropyTrains) {
    TrainOptions plain = options(1e-2);
    plain.loss = {};
    plain.data.columns.clear();
    const std::vector<double> expected = losses(1, plain);
    // t (log t - log p) is half the cross-entropy, minus log(2) / 2.
    columns_ = labels_as_lists(read_file(runs_.path("few.bin")), 3, 0.5);
    TrainOptions o = options(1e-2);
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        o.vocab_mode = mode;
        o.loss = {.name = LossName::distillation, .distillation = {.top_k = 3, .kl_share = 1}};
        for (const int ranks : {1, 2}) {
            SCOPED_TRACE(std::string(to_string(mode)) + " " + std::to_string(ranks));
            const std::vector<double> found = losses(ranks, o);
            ASSERT_EQ(found.size(), expected.size());
            EXPECT_NEAR(found[0], (expected[0] - std::log(2)) / 2, 1e-5);
        }
        o.loss.distillation.kl_share = 0;
        const std::vector<double> found = losses(2, o);
        for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-4) << i;
    }
    columns_ = labels_as_lists(read_file(runs_.path("few.bin")), 3, 1);
    o = options(1e-2);
    o.loss = {.name = LossName::distillation, .distillation = {.top_k = 3}};
    for (const int ranks : {1, 2}) {
        const std::vector<double> found = losses(ranks, o);
        for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-4) << i;
    }
}

TEST_F(ColumnsTraining, CountsLossWeightsOfTheFile) {
    columns_.fill("loss_weights", 1);
    for (size_t n = 0; n < columns_.values["loss_weights"].size(); n += 2) {
        columns_.values["loss_weights"][n] = 0;
        columns_.values["advantages"][n] = 5;
    }
    EXPECT_THAT(losses(1, options()), Each(DoubleNear(-1, 1e-5)));
}

TEST_F(ColumnsTraining, HasTheSameCurveAtAnyNumberOfRanksInBothFormatsAndWhenItGoesOn) {
    TrainOptions o = options(1e-2);
    o.loss.policy = {.kl_coefficient = 0.1F, .entropy_coefficient = 0.01F};
    o.save = runs_.path("saved");
    o.save_interval = 3;
    const std::vector<std::string> curve = runs_.run(2, o);
    ASSERT_EQ(curve.size(), 6U);
    o.save.clear();
    o.save_interval = 0;
    EXPECT_EQ(runs_.run(1, o), curve);
    columns_.write_npy(runs_.path("columns.npy"), {"advantages", "old_log_probs", "ref_log_prob"});
    o.data.columns = runs_.path("columns.npy");
    EXPECT_EQ(runs_.run(4, o), curve);

    std::filesystem::remove_all(runs_.path("saved/step-00000006"));
    o.load = runs_.path("saved");
    o.finetune = false;
    EXPECT_EQ(runs_.run(1, o), std::vector<std::string>(curve.begin() + 3, curve.end()));
    // Another file may follow: new answers have new columns.
    columns_.fill("advantages", -1);
    columns_.write(runs_.path("next.safetensors"));
    o.data.columns = runs_.path("next.safetensors");
    ::testing::internal::CaptureStdout();
    EXPECT_NE(runs_.run(1, o), std::vector<std::string>(curve.begin() + 3, curve.end()));
    EXPECT_THAT(::testing::internal::GetCapturedStdout(),
                ContainsRegex("changed since.*\n  columns 3 columns of 25 samples, checksum "
                              ".*was 3 columns of 25 samples"));
}

TEST_F(ColumnsTraining, AreValidatedByTheCrossEntropy) {
    TrainOptions o = options();
    o.data.path.clear();
    o.data.train_path = paths_;
    o.data.valid_path = paths_;
    o.evaluation.interval = 3;
    o.metrics = runs_.path("validated.jsonl");
    (void)runs_.run(2, o);
    double mean = 0;
    for (const float value : columns_.values["old_log_probs"]) {
        mean -= static_cast<double>(value) / static_cast<double>(kSamples * kLength);
    }
    const std::string metrics = read_file(runs_.path("validated.jsonl"));
    const std::string key = "\"eval_loss\":";
    const size_t at = metrics.find(key);
    ASSERT_NE(at, std::string::npos) << metrics;
    EXPECT_NEAR(std::stod(metrics.substr(at + key.size())), mean, 1e-5);
}

TEST_F(ColumnsTraining, AreRefusedBeforeTheFirstStep) {
    TrainOptions o = options();
    o.data.packing_strategy = "bfd";
    o.data.eod_token_id = 0;
    EXPECT_THAT(refusal(o), HasSubstr("--packing-strategy bfd: cannot be used with --columns"));
    o = options();
    o.model.seq_length = 8;
    EXPECT_THAT(refusal(o), AllOf(HasSubstr("tensor advantages: is F32 [25, 16]"),
                                  HasSubstr("it must be F32 [50, 8]")));
    o = options();
    o.loss.policy.entropy_coefficient = 1;
    o.vocab_mode = VocabMode::one_barrier;
    EXPECT_THAT(refusal(o, 2), HasSubstr("one_barrier"));
    o = options();
    o.report = o.data.columns;
    EXPECT_THAT(refusal(o), HasSubstr("--report"));
    columns_.values["advantages"][7] = std::nanf("");
    EXPECT_THAT(refusal(options(), 2), HasSubstr("advantages of sample 0, token 7 is nan"));
    columns_.values.erase("ref_log_prob");
    EXPECT_THAT(refusal(options()), HasSubstr("tensor ref_log_prob is missing"));
}

TEST_F(ColumnsTraining, EndInOneLineWhenTheFileIsCutShortBetweenSteps) {
    TrainOptions o = options();
    o.train_iters = 100;
    o.stop_requested = [&] {
        std::filesystem::resize_file(o.data.columns, 200);
        return false;
    };
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(message_of<InputFileError>([&] { (void)runs_.run(2, o); }),
                HasSubstr("columns.safetensors"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace vocabpipe::testing
