// SPDX-License-Identifier: Apache-2.0
// Runs whose microbatches have several lengths (--length-buckets): on other ranks, and going on in
// the middle.
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Curve = std::vector<std::string>;

class RunsOfLengths : public ::testing::Test {
protected:
    /// Documents of 3 to 17 tokens, each of which is a sample padded to 4, 8, 12 or 16.
    RunsOfLengths() {
        std::mt19937 random(3);
        std::vector<uint16_t> tokens;
        for (int document = 0; document < 300; ++document) {
            const auto length = 2 + random() % 15;
            for (unsigned i = 0; i < length; ++i) {
                tokens.push_back(static_cast<uint16_t>(1 + random() % 60));
            }
            tokens.push_back(0);
        }
        write_file(runs_.path("documents.bin"),
                   std::string(reinterpret_cast<const char*>(tokens.data()),
                               tokens.size() * sizeof(uint16_t)));
    }

    [[nodiscard]] TrainOptions options() const {
        TrainOptions o = runs_.options();
        o.data.path = {runs_.path("documents.bin")};
        o.data.eod_token_id = 0;
        o.data.packing_strategy = "padded";
        o.data.length_buckets = "4,8,12,16";
        o.micro_batch_size = 2;
        o.global_batch_size = 24;
        return o;
    }

    /// consumed_tokens of every step of a metrics file.
    [[nodiscard]] static std::vector<int64_t> consumed_tokens(const std::string& metrics) {
        std::istringstream lines(read_file(metrics));
        std::vector<int64_t> consumed;
        for (std::string line; std::getline(lines, line);) {
            consumed.push_back(nlohmann::json::parse(line).at("consumed_tokens").get<int64_t>());
        }
        return consumed;
    }

    CheckpointRun runs_;
};

TEST_F(RunsOfLengths, LearnTheSameOnOtherRanksAndSchedules) {
    const std::vector<double> alone = CheckpointRun::losses(runs_.run(1, options()));
    ASSERT_EQ(alone.size(), 6U);
    const auto expect_same = [&](int ranks, const TrainOptions& o) {
        const std::vector<double> losses = CheckpointRun::losses(runs_.run(ranks, o));
        ASSERT_EQ(losses.size(), alone.size());
        for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(losses[i], alone[i], 2e-5) << i;
    };
    expect_same(2, options());
    TrainOptions o = options();
    o.schedule = "zb-h1";
    o.pipeline_model_parallel_size = 2;
    expect_same(4, o);  // two replicas
    o = options();
    o.context_parallel_size = 2;
    expect_same(2, o);
}

TEST_F(RunsOfLengths, GoOnInTheMiddleWithTheSameBits) {
    TrainOptions o = options();
    o.save = runs_.path("steps");
    o.save_interval = 3;
    o.metrics = runs_.path("whole.jsonl");
    const Curve whole = runs_.run(2, o);
    ASSERT_EQ(whole.size(), 6U);
    std::filesystem::remove_all(step_folder(runs_.path("steps"), 6));
    o.load = runs_.path("steps");
    o.save.clear();
    o.save_interval = options().save_interval;
    o.metrics = runs_.path("rest.jsonl");
    EXPECT_EQ(runs_.run(2, o), Curve(whole.begin() + 3, whole.end()));
    const std::vector<int64_t> tokens = consumed_tokens(runs_.path("whole.jsonl"));
    EXPECT_EQ(consumed_tokens(runs_.path("rest.jsonl")),
              std::vector<int64_t>(tokens.begin() + 3, tokens.end()));
    EXPECT_LT(tokens.back(), 6 * 24 * 16) << "not all are padded to --seq-length";
}

TEST_F(RunsOfLengths, GoOnWithTheirLengthsOnly) {
    TrainOptions with = options();
    with.save = runs_.path("with");
    TrainOptions without = options();
    without.data.length_buckets.clear();
    without.save = runs_.path("without");
    (void)runs_.run(1, with);
    (void)runs_.run(1, without);
    const auto go_on = [&](TrainOptions o, const std::string& from) {
        o.load = runs_.path(from);
        o.save.clear();
        o.train_iters = 7;
        return runs_.run(1, o).size();
    };
    EXPECT_EQ(go_on(with, "with"), 1U);
    EXPECT_EQ(go_on(without, "without"), 1U);
    EXPECT_THAT([&] { (void)go_on(without, "with"); },
                ThrowsMessage<AgreedError>(HasSubstr("set --length-buckets 4,8,12,16")));
    EXPECT_THAT([&] { (void)go_on(with, "without"); },
                ThrowsMessage<AgreedError>(HasSubstr("remove --length-buckets")));
}

TEST_F(RunsOfLengths, RefuseWhatTheyCannotDo) {
    TrainOptions o = options();
    o.context_parallel_size = 2;
    o.data.length_buckets = "6,16";
    EXPECT_THAT([&] { (void)runs_.run(2, o); },
                ThrowsMessage<AgreedError>(HasSubstr(
                    "sequences of 6 tokens: --context-parallel-size 2 requires a multiple of 4")));
    o = options();
    o.profile = runs_.path("profile.json");
    EXPECT_THAT([&] { (void)runs_.run(1, o); },
                ThrowsMessage<AgreedError>(HasSubstr("measures passes of microbatches of one")));
}

}  // namespace
}  // namespace vocabpipe::testing
