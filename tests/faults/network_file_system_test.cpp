// SPDX-License-Identifier: Apache-2.0
// Runs on a file system whose answers are those of a network's on a bad day
// (network_file_system.cpp): what was done is done, and what is missing is said once.
#include "tests/faults/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kLimit{60};

class NetworkFileSystem : public ::testing::TestWithParam<const char*> {
protected:
    NetworkFileSystem() { write_dataset(data_, some_tokens(5000)); }

    static Arguments with(const char* kind, const Arguments& command) {
        return Arguments{"env", "LD_PRELOAD=" VOCABPIPE_NETWORK_FILE_SYSTEM,
                         std::string("VOCABPIPE_FILE_SYSTEM=") + kind} +
               command;
    }
    [[nodiscard]] Arguments run_to(const std::string& folder) const {
        return on_threads(
            2, small_model(data_) + Arguments{"--train-iters", "4", "--save-interval", "2",
                                              "--save", folder, "--report", folder + ".json"});
    }
    TempFolder folder_;
    std::string data_ = folder_ / "toy";
};

TEST_P(NetworkFileSystem, EndsNoRunByAnAnswerThatWasLost) {
    Job job(folder_, with(GetParam(), run_to(folder_ / "saved")));
    ASSERT_EQ(job.wait(kLimit), 0) << job.error();
    Job alone(folder_, run_to(folder_ / "alone"));
    ASSERT_EQ(alone.wait(kLimit), 0) << alone.error();
    for (const char* step : {"step-00000002", "step-00000004"}) {
        for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
            const std::string name = std::string("/") + step + "/" + file;
            EXPECT_EQ(read_file(folder_ / "saved" + name), read_file(folder_ / "alone" + name));
        }
    }
    EXPECT_TRUE(std::filesystem::exists(folder_ / "saved.json"));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / ".")) {
        EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("partial")));
    }
}
INSTANTIATE_TEST_SUITE_P(Calls, NetworkFileSystem,
                         ::testing::Values("interrupted-fsync", "rename-answers-ENOENT",
                                           "rename-answers-EIO"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::erase(name, '-');
                             return name;
                         });

TEST_F(NetworkFileSystem, WithoutLocksIsUsedAndSaid) {
    Job train(folder_, with("no-locks", run_to(folder_ / "saved")));
    ASSERT_EQ(train.wait(kLimit), 0) << train.error();
    EXPECT_THAT(train.output() + train.error(),
                HasSubstr("its file system has no locks, so nothing keeps a second run out"));
}

TEST_F(NetworkFileSystem, AnOwnFileThatCannotBeReadIsNotCalledAnother) {
    const Arguments metrics{"--metrics", folder_ / "metrics"};
    const Arguments run = run_to(folder_ / "saved") + metrics;
    Job first(folder_, run);
    ASSERT_EQ(first.wait(kLimit), 0) << first.error();
    std::filesystem::remove_all(folder_ / "saved");
    Job again(folder_, with("read-answers-EIO", run));
    EXPECT_EQ(again.wait(kLimit), 1);
    EXPECT_THAT(lines_with(again.error(), "train_gpt: error: "),
                ::testing::ElementsAre(HasSubstr(
                    "metrics: exists, but what it holds cannot be read: Input/output error")));
}

}  // namespace
}  // namespace vocabpipe::testing
