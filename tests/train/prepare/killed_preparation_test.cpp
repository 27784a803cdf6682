// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "src/train/prepare/prepare_tokens.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/prepare/texts.hpp"
#include "tests/train/text/compress.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using testing::read_file;
using testing::TempFolder;
using testing::write_file;
using Names = std::set<std::string>;

constexpr const char* kArguments = "of this test";

/// A preparation of all kinds of inputs that makes a state after every chunk.
class KilledPreparation : public ::testing::Test {
protected:
    KilledPreparation() {
        const std::vector<std::string> documents = testing::documents(40'000, 500);
        const std::string lines = testing::json_lines(documents);
        write_file(folder_ / "a.jsonl", lines + "no JSON\n");
        write_file(folder_ / "b.jsonl.gz", testing::gzip(lines, 1));
        std::string plain;
        for (const std::string& document : documents) plain += document + "\n";
        write_file(folder_ / "c.txt.zst", testing::zstd(plain + "caf\xe9"));
        before_ = folder_.names();
        before_.insert({"whole.bin", "whole.idx", "whole.model"});
        whole_ = prepare_tokens(options("whole", 2), ByteTokenizer());
    }

    PreparationOptions options(const std::string& output, int workers) const {
        return {.inputs = {{folder_ / "a.jsonl", "text"},
                           {folder_ / "b.jsonl.gz", "text"},
                           {folder_ / "c.txt.zst"}},
                .output = folder_ / output,
                .max_bad_lines = 1,
                .workers = workers,
                .trained_model = "a model",
                .arguments = kArguments,
                .state_every = std::chrono::milliseconds(0),
                .publish_beside = [this, output] {
                    write_file(folder_ / (output + ".model"), "a model");
                }};
    }
    [[nodiscard]] FoundState found() const {
        return find_preparation_state(folder_ / "set", kArguments, 3);
    }
    Prepared go_on(int workers) const {
        PreparationOptions o = options("set", workers);
        o.from = found().state;
        return prepare_tokens(o, ByteTokenizer());
    }
    /// Runs go_on() in a process that is killed `time` after it has saved a state with more tokens
    /// than `tokens`; false if it ended before.
    bool killed_behind(int64_t tokens, std::chrono::microseconds time, int workers) const {
        const pid_t child = ::fork();
        if (child == 0) {
            (void)go_on(workers);
            ::_exit(0);
        }
        int status = 0;
        for (;;) {
            if (::waitpid(child, &status, WNOHANG) == child) return false;
            const FoundState now = found();
            if (now.state && now.state->position.tokens > tokens) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::this_thread::sleep_for(time);
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
        return WIFSIGNALED(status);
    }
    void expect_whole(const Prepared& made) const {
        for (const std::string suffix : {".bin", ".idx", ".model"}) {
            EXPECT_TRUE(read_file(folder_ / ("set" + suffix)) ==
                        read_file(folder_ / ("whole" + suffix)))
                << suffix;
        }
        EXPECT_EQ(made.totals.documents, whole_.totals.documents);
        EXPECT_EQ(made.totals.tokens, whole_.totals.tokens);
        EXPECT_EQ(made.bad_lines, 1);
        EXPECT_EQ(made.text.bytes, whole_.text.bytes);
        EXPECT_EQ(made.text.invalid, 1);
        EXPECT_EQ(made.text.first, whole_.text.first);
        Names all = before_;
        all.insert({"set.bin", "set.idx", "set.model"});
        EXPECT_EQ(folder_.names(), all) << "partial files are left";
    }

    TempFolder folder_;
    Names before_;
    Prepared whole_;
};

TEST_F(KilledPreparation, GoesOnAndWritesTheSameBytes) {
    std::mt19937 random(7);
    int64_t written = 0;
    int kills = 0;
    // Not in the second half, so that a kill does not meet the files as they get their names.
    for (; kills < 12 && written < whole_.totals.tokens / 2; ++kills) {
        const auto time = std::chrono::microseconds(random() % 5'000);
        ASSERT_TRUE(killed_behind(written, time, 1 + kills % 3));
        Names partial = before_;
        partial.insert({"set.bin.partial", "set.idx.partial", "set.model.partial",
                        "set.prepare.partial", "set.model"});
        for (const std::string& name : folder_.names()) {
            EXPECT_TRUE(partial.contains(name) ||
                        name.starts_with("set.prepare.partial.partial-") ||
                        name.starts_with("set.idx.partial-"))
                << name;
        }
        const FoundState state = found();
        ASSERT_TRUE(state.state);
        EXPECT_GT(state.state->position.tokens, written);
        written = state.state->position.tokens;
    }
    EXPECT_GE(kills, 2);
    expect_whole(go_on(3));
}

TEST_F(KilledPreparation, BeginsAnewIfAnythingIsDifferentAndSaysWhat) {
    ASSERT_TRUE(killed_behind(0, std::chrono::milliseconds(0), 2));
    EXPECT_THAT(find_preparation_state(folder_ / "set", "others", 3).why_anew,
                HasSubstr("set.prepare.partial: is of other flags, or an input has changed"));
    EXPECT_EQ(find_preparation_state(folder_ / "none", kArguments, 3).why_anew, "");

    const std::string model = folder_ / "set.model.partial";
    write_file(model, "another");
    EXPECT_THAT(found().why_anew, HasSubstr("partial files beside it are missing or shorter"));
    write_file(model, "a model");
    ASSERT_TRUE(found().state);
    std::filesystem::resize_file(folder_ / "set.bin.partial", 1);
    EXPECT_THAT(found().why_anew, HasSubstr("partial files beside it are missing or shorter"));
    std::filesystem::remove(folder_ / "set.bin.partial");
    EXPECT_FALSE(found().state);
    expect_whole(go_on(2));
}

TEST_F(KilledPreparation, TakesNoStateWithADamagedByte) {
    ASSERT_TRUE(killed_behind(0, std::chrono::milliseconds(0), 2));
    const std::string path = folder_ / "set.prepare.partial";
    const std::string state = read_file(path);
    for (size_t at = 0; at < state.size(); ++at) {
        std::string damaged = state;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
        write_file(path, damaged);
        EXPECT_THAT(found().why_anew, HasSubstr("set.prepare.partial: is damaged")) << at;
        write_file(path, state.substr(0, at));
        EXPECT_FALSE(found().state) << at;
    }
    expect_whole(go_on(1));
}

TEST_F(KilledPreparation, RefusesAPrefixToWhichAnotherProcessWrites) {
    const MegatronWriter other(folder_ / "set", 257);
    EXPECT_THAT(testing::message_of<UsageError>([&] { (void)go_on(1); }),
                HasSubstr("set.bin.partial: another process is writing it"));
    EXPECT_TRUE(folder_.names().contains("set.bin.partial"));
}

}  // namespace
}  // namespace vocabpipe
