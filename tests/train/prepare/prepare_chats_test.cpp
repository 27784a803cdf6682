// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "src/train/prepare/prepare_tokens.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "tests/train/data/read_all.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using testing::read_file;
using testing::TempFolder;
using testing::write_file;

/// Chats of bytes, of which every other part is learnt, and a state after every chunk.
class PrepareChats : public ::testing::Test {
protected:
    PrepareChats() {
        std::string lines = "{\"text\": \"no ranges\"}\n";
        for (int chat = 0; chat < 30'000; ++chat) {
            std::string text;
            std::string learn;
            for (int part = 0; part < 1 + chat % 5; ++part) {
                const std::string word(1 + static_cast<size_t>((chat * 7 + part * 3) % 40), 'a');
                if (part % 2 == 1) {
                    learn += (learn.empty() ? "[" : ", [") + std::to_string(text.size()) + ", " +
                             std::to_string(text.size() + word.size()) + "]";
                }
                text += word;
                weights_.insert(weights_.end(), word.size(), part % 2 == 1 ? 1.0F : 0.0F);
            }
            weights_.push_back(weights_.back());  // the end of the document
            lines += "{\"text\": \"" + text + "\", \"learn\": [" + learn + "]}\n";
        }
        write_file(folder_ / "chats.jsonl", lines);
    }

    [[nodiscard]] PreparationOptions options(const std::string& output, int workers) const {
        return {.inputs = {{.path = folder_ / "chats.jsonl", .json_key = "text", .chats = true}},
                .output = folder_ / output,
                .max_bad_lines = 1,
                .workers = workers,
                .arguments = "of this test",
                .state_every = std::chrono::milliseconds(0)};
    }
    [[nodiscard]] std::vector<float> weights_of(const std::string& output) const {
        return testing::read_all_weights(*open_tokens(folder_ / output));
    }

    TempFolder folder_;
    std::vector<float> weights_;
};

TEST_F(PrepareChats, WritesTheSameWeightsWithAnyNumberOfWorkers) {
    for (const int workers : {1, 3}) {
        const Prepared made = prepare_tokens(options("set", workers), ByteTokenizer());
        EXPECT_EQ(made.bad_lines, 1);
        EXPECT_EQ(made.totals.documents, 30'000);
        EXPECT_TRUE(weights_of("set") == weights_) << workers;
    }
}

TEST_F(PrepareChats, GoOnAfterAKillWithTheSameBytes) {
    const ByteTokenizer tokenizer;
    (void)prepare_tokens(options("whole", 2), tokenizer);
    const auto child = ::fork();
    if (child == 0) {
        // Ends as by a kill, behind the second state at the earliest.
        PreparationOptions killed = options("set", 1);
        killed.progress = [states = 0](int64_t, int64_t) mutable {
            if (++states == 3) ::_exit(0);
        };
        (void)prepare_tokens(killed, tokenizer);
        ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it ended before the kill";
    FoundState found = find_preparation_state(folder_ / "set", "of this test", 1);
    ASSERT_TRUE(found.state) << found.why_anew;
    EXPECT_EQ(found.state->position.weights.count, found.state->position.tokens);
    PreparationOptions on = options("set", 2);
    on.from = found.state;
    (void)prepare_tokens(on, tokenizer);
    for (const char* suffix : {".bin", ".idx", ".weights"}) {
        EXPECT_TRUE(read_file(folder_ / ("set" + std::string(suffix))) ==
                    read_file(folder_ / ("whole" + std::string(suffix))))
            << suffix;
    }
    EXPECT_EQ(folder_.names(),
              (std::set<std::string>{"chats.jsonl", "set.bin", "set.idx", "set.weights",
                                     "whole.bin", "whole.idx", "whole.weights"}));
}

}  // namespace
}  // namespace vocabpipe
