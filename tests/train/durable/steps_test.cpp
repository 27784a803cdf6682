// SPDX-License-Identifier: Apache-2.0
// Saved steps where power is lost while they are written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/convert_checkpoint.hpp"
#include "tests/support/file_calls.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Names = std::set<std::string>;

/// The names that begin so.
Names with(const std::string& begin, const Names& names) {
    Names found;
    for (const std::string& name : names) {
        if (name.starts_with(begin)) found.insert(name);
    }
    return found;
}

/// The calls from a call on, at most so many; none without it.
std::vector<std::string> from_call(const std::vector<std::string>& calls, const std::string& first,
                                   ptrdiff_t most) {
    const auto at = std::ranges::find(calls, first);
    return {at, at + std::min(most, calls.end() - at)};
}

class DurableStep : public ::testing::TestWithParam<bool> {
protected:
    /// Steps 2 and 4 of 4, on two ranks.
    [[nodiscard]] TrainOptions options(const std::string& save) const {
        TrainOptions options = runs_.options();
        options.train_iters = 4;
        options.save = runs_.path(save);
        options.save_interval = 2;
        options.async_save = GetParam();
        return options;
    }
    CheckpointRun runs_;
};

TEST_P(DurableStep, HasDurableFilesBeforeItGetsItsNameAndThenADurableName) {
    TrainOptions options = this->options("saved");
    options.max_shard_bytes = 12000;
    const FileCalls calls(runs_.path("."));
    (void)runs_.run(2, options);
    EXPECT_THAT(calls.torn(), IsEmpty());
    EXPECT_THAT(with("saved", calls.unsynced()), IsEmpty());
    for (const char* step : {"step-00000002", "step-00000004"}) {
        const std::string partial = std::string("saved/.") + step + ".partial";
        const std::string name = std::string("saved/") + step;
        for (const auto& [file, bytes] : contents(runs_.path(name))) {
            EXPECT_GE(calls.count("sync " + partial + "/" + file), 1U) << file;
        }
        EXPECT_THAT(from_call(calls.list(), "sync " + partial, 3),
                    ElementsAre("sync " + partial, "rename " + partial + " " + name, "sync saved"));
    }
}

// A network file system sends what a host has written when that host asks for it.
TEST_P(DurableStep, HasFilesThatAreMadeDurableByEveryRankThatWritesThem) {
    TrainOptions options = this->options("saved");
    options.train_iters = 2;
    options.vocab_mode = VocabMode::none;
    options.max_shard_bytes = 1;  // a tensor each
    const FileCalls calls(runs_.path("."));
    (void)runs_.run(2, options);
    const std::string step = step_folder(options.save, 2);
    const auto index = nlohmann::json::parse(read_file(step + "/model.safetensors.index.json"));
    const auto syncs_of = [&](const std::string& tensor) {
        const auto file = index.at("weight_map").at(tensor).get<std::string>();
        return calls.count("sync saved/.step-00000002.partial/" + file);
    };
    // Layers 0 and 1 are the first rank's, which makes all files and writes their headers.
    EXPECT_EQ(syncs_of("transformer.h.1.mlp.c_fc.weight"), 1U);
    EXPECT_EQ(syncs_of("transformer.h.2.mlp.c_fc.weight"), 2U);
    EXPECT_EQ(calls.count("sync saved/.step-00000002.partial/optimizer.safetensors"), 2U);
}

TEST_P(DurableStep, IsThereForGoodBeforeAnOlderOneGoes) {
    TrainOptions options = this->options("saved");
    options.save_total_limit = 1;
    const FileCalls calls(runs_.path("."));
    (void)runs_.run(2, options);
    const std::string away = "rename saved/step-00000002 saved/.step-00000002.removed";
    EXPECT_THAT(
        from_call(calls.list(), "rename saved/.step-00000004.partial saved/step-00000004", 4),
        ElementsAre("rename saved/.step-00000004.partial saved/step-00000004", "sync saved", away,
                    StartsWith("remove saved/.step-00000002.removed/")))
        << "out of sight before it lacks files";
    EXPECT_EQ(complete_steps(options.save).size(), 1U);
    EXPECT_FALSE(std::filesystem::exists(runs_.path("saved/.step-00000002.removed")));
}

TEST_P(DurableStep, HasTheSameBytesWhereSignalsInterruptReadsAndWrites) {
    (void)runs_.run(2, options("whole"));
    {
        FileCalls calls(runs_.path("."));
        calls.interrupt(1000);
        (void)runs_.run(2, options("parts"));
        TrainOptions rest = options("parts");
        rest.load = rest.save;
        rest.train_iters = 6;
        (void)runs_.run(2, rest);
    }
    TrainOptions rest = options("whole");
    rest.load = rest.save;
    rest.train_iters = 6;
    (void)runs_.run(2, rest);
    EXPECT_TRUE(contents(runs_.path("parts")) == contents(runs_.path("whole")));
}

TEST_P(DurableStep, ThatCannotBeMadeDurableIsNone) {
    FileCalls calls(runs_.path("."));
    std::filesystem::create_directory(runs_.path("saved"));  // which needs no sync
    calls.fail_syncs(EIO);
    EXPECT_THROW((void)runs_.run(2, options("saved")), Error);
    EXPECT_TRUE(std::filesystem::is_empty(runs_.path("saved")));
}

INSTANTIATE_TEST_SUITE_P(Saves, DurableStep, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Beside" : "Between"; });

TEST(DurableSaveFolder, KeepsTheNewNamesOfDamagedSteps) {
    const TempFolder folder;
    for (const char* step : {"/step-00000002", "/step-00000003"}) {
        std::filesystem::create_directories(folder / "saved" + step);
        write_file(folder / "saved" + step + "/training.json", "{}");
    }
    SaveFolder saved(folder / "saved", 1, "", {2, 3});
    const FileCalls calls(folder / ".");
    saved.set_aside();
    EXPECT_THAT(
        calls.list_after_writing(),
        ElementsAre("rename saved/step-00000002 saved/damaged-step-00000002", "sync saved",
                    "rename saved/step-00000003 saved/damaged-step-00000003", "sync saved"));
    saved.set_aside();
    EXPECT_EQ(calls.list().size(), 4U) << "once";
}

TEST(DurableConversion, HasDurableFilesBeforeItGetsItsNameAndThenADurableName) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.train_iters = 2;
    options.save = runs.path("saved");
    (void)runs.run(1, options);
    const std::string step = step_folder(options.save, 2);
    write_file(step + "/tokenizer.json", "{}");
    const FileCalls calls(runs.path("."));
    const ConvertReport report =
        convert_checkpoint(step, runs.path("to"), {.max_shard_bytes = 12000});
    EXPECT_GT(report.weight_files, 2U);
    EXPECT_THAT(calls.torn(), IsEmpty());
    EXPECT_THAT(calls.unsynced(), IsEmpty());
    EXPECT_THAT(from_call(calls.list(), "sync .to.partial", 4),
                ElementsAre("sync .to.partial", "rename .to.partial to", "sync ."));
    for (const auto& [file, bytes] : contents(runs.path("to"))) {
        EXPECT_EQ(calls.count("sync .to.partial/" + file), 1U) << file;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
