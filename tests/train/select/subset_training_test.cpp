// SPDX-License-Identifier: Apache-2.0
// Runs with --data-subset: the same curve at every number of ranks, and when they go on.
#include "src/train/select/chosen_samples.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/select/subset_of.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SubsetTraining : public ::testing::Test {
protected:
    SubsetTraining() {
        const TrainOptions options = runs_.options();
        corpus_ = training_corpus(TrainingData(options.data), options.model.seq_length);
        write({2, 3, 5, 7, 11, 13, 17, 19, 23, 29});
    }
    void write(const std::vector<int64_t>& chosen) {
        write_subset_file(runs_.path("subset"), corpus_, chosen);
    }
    TrainOptions options() {
        TrainOptions o = runs_.options();
        o.data.subset = runs_.path("subset");
        o.vocab_mode = VocabMode::none;  // whose bits do not depend on the number of ranks
        return o;
    }

    CheckpointRun runs_;
    Corpus corpus_;
};

TEST_F(SubsetTraining, HasTheSameCurveAtAnyNumberOfRanksAndAnotherOneThanAllSamples) {
    const std::vector<std::string> curve = runs_.run(1, options());
    ASSERT_EQ(curve.size(), 6U);
    EXPECT_EQ(runs_.run(2, options()), curve);
    EXPECT_EQ(runs_.run(4, options()), curve);
    TrainOptions replicas = options();
    replicas.pipeline_model_parallel_size = 1;
    const auto found = CheckpointRun::losses(runs_.run(2, replicas));
    const auto expected = CheckpointRun::losses(curve);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << i;
    TrainOptions all = options();
    all.data.subset.clear();
    EXPECT_NE(runs_.run(1, all), curve);
}

TEST_F(SubsetTraining, GoesOnWithTheSameSamplesOnly) {
    TrainOptions o = options();
    o.save = runs_.path("saved");
    o.save_interval = 3;
    const std::vector<std::string> curve = runs_.run(2, o);
    std::filesystem::remove_all(runs_.path("saved/step-00000006"));
    const auto resume = [&](const std::function<void(TrainOptions&)>& change) {
        TrainOptions again = options();
        again.load = runs_.path("saved");
        change(again);
        return runs_.run(1, again);
    };
    EXPECT_EQ(resume([](TrainOptions&) {}),
              std::vector<std::string>(curve.begin() + 3, curve.end()));
    // Another file with the same samples is the same.
    write_subset_file(runs_.path("copy"), corpus_, {2, 3, 5, 7, 11, 13, 17, 19, 23, 29});
    EXPECT_EQ(resume([&](TrainOptions& again) { again.data.subset = runs_.path("copy"); }),
              std::vector<std::string>(curve.begin() + 3, curve.end()));

    const auto refused = [&](const std::function<void(TrainOptions&)>& change) {
        return message_of<AgreedError>([&] { (void)resume(change); });
    };
    EXPECT_THAT(refused([](TrainOptions& again) { again.data.subset.clear(); }),
                AllOf(HasSubstr("the run trained on 10 of 249 samples, checksum "),
                      HasSubstr("but this run trains on all samples; set --data-subset")));
    write({2, 3, 5, 7, 11, 13, 17, 19, 23, 31});
    EXPECT_THAT(refused([](TrainOptions&) {}),
                HasSubstr("but this run trains on 10 of 249 samples"));
    EXPECT_EQ(resume([](TrainOptions& again) { again.finetune = true; }).size(), 6U);
}

TEST_F(SubsetTraining, IsNotTakenUpByARunOfAllSamples) {
    TrainOptions o = runs_.options();
    o.save = runs_.path("saved");
    (void)runs_.run(1, o);
    o = options();
    o.train_iters = 8;
    o.load = runs_.path("saved");
    EXPECT_THAT(message_of<AgreedError>([&] { (void)runs_.run(1, o); }),
                HasSubstr("the run trained on all samples, but this run trains on 10 of 249"));
}

TEST_F(SubsetTraining, IsNeverOverwritten) {
    TrainOptions o = options();
    o.report = runs_.path("subset");
    EXPECT_THAT(message_of<AgreedError>([&] { (void)runs_.run(1, o); }), HasSubstr("--report"));
}

}  // namespace
}  // namespace vocabpipe::testing
