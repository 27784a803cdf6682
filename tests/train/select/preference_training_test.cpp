// SPDX-License-Identifier: Apache-2.0
// Runs with --loss dpo. Where the model is its own reference, every pair has the loss log 2, and
// only if each answer finds its row.
#include "src/select/files/npy/header.hpp"
#include "src/train/run/trainer.hpp"
#include "src/train/score/score_tokens.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::HasSubstr;

class PreferenceTraining : public ::testing::Test {
protected:
    /// A model that has learnt a little, and pairs of answers: the better one counts up, the worse
    /// one down.
    PreferenceTraining() {
        write_answers("answers.bin", {});
        TrainOptions first = runs_.options();
        first.save = runs_.path("model");
        (void)runs_.run(1, first);
    }

    /// Answers of 3 to 15 tokens behind a token of the question, 12 pairs, then documents of other
    /// lengths; token 0 ends each.
    void write_answers(const std::string& name, const std::vector<int>& more) {
        std::string file;
        const auto add = [&](int length, int first, int stride) {
            for (int token = 0; token < length; ++token) {
                file += static_cast<char>(1 + (first + stride * token + 600) % 60);
                file += '\0';
            }
            file += std::string(2, '\0');
        };
        for (int answer = 0; answer < 24; ++answer) {
            add(3 + answer * answer % 13, answer / 2, answer % 2 == 0 ? 1 : -1);
        }
        for (const int length : more) add(length, 5, 2);
        write_file(runs_.path(name), file);
    }

    /// From the model's weights on, against its own log-probabilities.
    TrainOptions options(double lr) {
        TrainOptions o = runs_.options();
        o.data.path = paths_;
        o.data.packing_strategy = "padded";
        o.data.eod_token_id = 0;
        o.data.columns = runs_.path("reference.npy");
        std::filesystem::remove(o.data.columns);
        TokenScoreOptions score;
        score.load = runs_.path("model");
        score.data = o.data;
        score.data.columns.clear();
        score.seq_length = o.model.seq_length;
        score.threads_per_rank = 1;
        score.records.columns = {TokenRecord::logprob};
        score.output = o.data.columns;
        World::threads(1, {.timeout_seconds = 60}).run([&](Communicator& world) {
            (void)score_tokens(world, score);
        });
        o.load = runs_.path("model");
        o.finetune = true;
        o.lr = lr;
        o.vocab_mode = VocabMode::none;  // whose bits do not depend on the number of ranks
        o.loss = {.name = LossName::dpo, .dpo_beta = 0.5};
        return o;
    }
    std::vector<double> losses(int ranks, const TrainOptions& o) {
        return CheckpointRun::losses(runs_.run(ranks, o));
    }
    std::string refusal(const TrainOptions& o, int ranks = 1) {
        return message_of<AgreedError>([&] { (void)runs_.run(ranks, o); });
    }

    CheckpointRun runs_;
    std::vector<std::string> paths_{runs_.path("answers.bin")};
};

TEST_F(PreferenceTraining, BeginsWithTheLossOfAModelThatIsItsReference) {
    TrainOptions o = options(0);
    o.train_iters = 10;  // 30 pairs: more than two epochs
    for (const char* const buckets : {"", "16,8"}) {
        SCOPED_TRACE(buckets);
        o.data.length_buckets = buckets;
        o.pipeline_model_parallel_size = 0;
        EXPECT_THAT(losses(1, o), Each(DoubleNear(std::log(2), 1e-5)));
        EXPECT_THAT(losses(2, o), Each(DoubleNear(std::log(2), 1e-5)));
        o.pipeline_model_parallel_size = 1;  // answers of a pair are on two replicas
        EXPECT_THAT(losses(2, o), Each(DoubleNear(std::log(2), 1e-5)));
    }
    std::string rows = read_file(o.data.columns);
    const auto row = static_cast<std::ptrdiff_t>(o.model.seq_length * sizeof(float));
    std::rotate(rows.end() - 24 * row, rows.end() - 23 * row, rows.end());
    write_file(o.data.columns, rows);
    for (const double loss : losses(1, o)) EXPECT_GT(std::abs(loss - std::log(2)), 1e-3);
}

TEST_F(PreferenceTraining, PrefersTheBetterAnswersInTheSameCurveOnAnyNumberOfRanks) {
    TrainOptions o = options(1e-2);
    o.train_iters = 20;
    o.metrics = runs_.path("curve.jsonl");
    const std::vector<std::string> curve = runs_.run(2, o);
    std::istringstream lines(read_file(o.metrics));
    nlohmann::json last;
    for (std::string line; std::getline(lines, line);) last = nlohmann::json::parse(line);
    EXPECT_LT(last.at("loss").get<double>(), 0.1);
    EXPECT_EQ(last.at("rewards/accuracies").get<double>(), 1);
    EXPECT_NEAR(last.at("rewards/margins").get<double>(),
                last.at("rewards/chosen").get<double>() - last.at("rewards/rejected").get<double>(),
                1e-9);
    o.metrics.clear();
    EXPECT_EQ(runs_.run(1, o), curve);
    EXPECT_EQ(runs_.run(4, o), curve);
    o.save = runs_.path("saved");
    o.save_interval = 10;
    (void)runs_.run(1, o);
    std::filesystem::remove_all(runs_.path("saved/step-00000020"));
    o.save.clear();
    o.save_interval = 0;
    o.load = runs_.path("saved");
    o.finetune = false;
    EXPECT_EQ(runs_.run(2, o), std::vector<std::string>(curve.begin() + 10, curve.end()));
}

TEST_F(PreferenceTraining, IsVerifiedReplayedAndValidated) {
    TrainOptions o = options(1e-2);
    o.ramp_up = BatchSizeRampUp{.start = 2, .increment = 2, .samples = 8};
    const std::vector<std::string> curve = runs_.run(2, o);
    o.verify_steps = 2;
    o.replay_interval = 2;
    o.data.train_path = o.data.path;
    o.data.valid_path = o.data.path;
    o.data.path.clear();
    o.evaluation.interval = 3;
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(runs_.run(2, o), curve);
    EXPECT_THAT(::testing::internal::GetCapturedStdout(),
                AllOf(HasSubstr("equal to the bit"), HasSubstr("validation loss"),
                      HasSubstr("rewards/accuracies")));
    const std::vector<double> found = CheckpointRun::losses(curve);
    EXPECT_NEAR(found.front(), std::log(2), 1e-5);
    o.vocab_mode = VocabMode::one_barrier;
    const std::vector<double> sharded = losses(2, o);
    ASSERT_EQ(sharded.size(), found.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(sharded[i], found[i], 1e-3) << i;
}

TEST_F(PreferenceTraining, TakesOneRecordOfAnNpyFileAlone) {
    TrainOptions o = options(0);
    std::string two = npy_header(NpyType::f4, {2, 24, o.model.seq_length});
    const std::string one = npy_header(NpyType::f4, {24, o.model.seq_length});
    const std::string numbers = read_file(o.data.columns).substr(one.size());
    write_file(o.data.columns, two + numbers + numbers);
    EXPECT_THAT(refusal(o), HasSubstr("is <f4 [2, 24, 16]; it must be <f4 [1, 24, 16] of logprob"));
    write_file(o.data.columns, npy_header(NpyType::f4, {1, 24, o.model.seq_length}) + numbers);
    EXPECT_THAT(losses(1, o), Each(DoubleNear(std::log(2), 1e-5)));
}

TEST_F(PreferenceTraining, GoesOnOnlyBetweenTwoPairs) {
    TrainOptions o = options(1e-2);
    TrainOptions first = o;
    first.loss = {};
    first.data.columns.clear();
    first.global_batch_size = 3;
    first.save = runs_.path("odd");
    first.save_interval = 3;
    (void)runs_.run(1, first);
    std::filesystem::remove_all(runs_.path("odd/step-00000006"));
    o.load = first.save;
    o.finetune = false;
    EXPECT_THAT(refusal(o, 2), HasSubstr("goes on after 9 samples, within a pair of --loss dpo"));
    o.finetune = true;
    EXPECT_EQ(losses(2, o).size(), 6U);
}

TEST_F(PreferenceTraining, IsRefusedWherePairsAreNone) {
    TrainOptions o = options(0);
    o.global_batch_size = 5;
    EXPECT_THAT(refusal(o), HasSubstr("--loss dpo: two samples are a pair, but a step has 5; use "
                                      "an even --global-batch-size"));
    o.global_batch_size = 8;
    o.ramp_up = BatchSizeRampUp{.start = 2, .increment = 1, .samples = 100};
    EXPECT_THAT(refusal(o), HasSubstr("has 3; use an even START and INCREMENT of "
                                      "--rampup-batch-size"));
    o = options(0);
    o.data.columns.clear();
    EXPECT_THAT(refusal(o), HasSubstr("--loss dpo: reads logprob of every token; set --columns"));
    o = options(0);
    o.loss.name = LossName::cross_entropy;
    o.data.columns.clear();
    EXPECT_THAT(refusal(o), HasSubstr("--dpo-beta: is a term of --loss dpo"));
    o = options(0);
    o.data.split = "95,5,0";
    EXPECT_THAT(refusal(o), HasSubstr("--split 95,5,0: may cut a pair"));
    o = options(0);
    o.data.packing_strategy = "wrapped";
    o.data.subset = runs_.path("subset");
    EXPECT_THAT(refusal(o), HasSubstr("--data-subset: cannot be used with --loss dpo"));
    paths_ = {"1", paths_.front(), "2", paths_.front()};
    EXPECT_THAT(refusal(options(0)), HasSubstr("--data-path: is a blend, but samples 2 i"));
    paths_ = {runs_.path("odd.bin")};
    write_answers("odd.bin", {7});
    EXPECT_THAT(refusal(options(0), 2), HasSubstr("has 25 samples, but they are pairs"));
    paths_ = {runs_.path("long.bin")};
    write_answers("long.bin", {30, 0});
    EXPECT_THAT(refusal(options(0)),
                HasSubstr("has 1 document of less than two tokens, but every document must be a "
                          "sample; leave out the pairs"));
    write_answers("long.bin", {30, 16});
    EXPECT_THAT(refusal(options(0)), HasSubstr("has 1 document of more than 17 tokens, but every"));
}

}  // namespace
}  // namespace vocabpipe::testing
