// SPDX-License-Identifier: Apache-2.0
// What bash completes with the script of `vocabpipe completion bash`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"

namespace vocabpipe {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using testing::Outcome;
using testing::run_shell;
using testing::TempFolder;

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

class Completion : public ::testing::Test {
protected:
    Completion() {
        const Outcome script =
            run_shell("'" VOCABPIPE_PROGRAM "' completion bash > '" + script_ + "'");
        EXPECT_EQ(script.exit_code, 0) << script.error;
        testing::write_file(folder_ / "run.toml", "");
    }
    /// What is offered for the last of the words of a command line.
    [[nodiscard]] std::vector<std::string> offered(const std::vector<std::string>& words) const {
        std::string line;
        for (const std::string& word : words) line += " '" + word + "'";
        const Outcome outcome = run_shell(
            "cd '" + (folder_ / "") +
            "' && bash -c '. \"$0\"; COMP_WORDS=(\"$@\"); "
            "COMP_CWORD=$(($# - 1)); _vocabpipe; printf \"%s\\n\" \"${COMPREPLY[@]}\"' '" +
            script_ + "'" + line);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        EXPECT_EQ(outcome.error, "");
        std::vector<std::string> all = lines_of(outcome.output);
        if (all == std::vector<std::string>{""}) all.clear();
        return all;
    }

    TempFolder folder_;
    std::string script_ = folder_ / "completion.bash";
};

TEST_F(Completion, OffersSubcommands) {
    EXPECT_THAT(offered({"vocabpipe", ""}), IsSupersetOf({"plan", "schedule", "data", "--help"}));
    EXPECT_THAT(offered({"vocabpipe", "sche"}), ElementsAre("schedule"));
    EXPECT_THAT(offered({"vocabpipe", "schedule", "sh"}), ElementsAre("show"));
    EXPECT_THAT(offered({"/usr/bin/vocabpipe", "completion", ""}), IsSupersetOf({"bash", "zsh"}));
}

TEST_F(Completion, OffersFlagsOfTheCommand) {
    EXPECT_THAT(offered({"train_gpt", "--lr-decay"}),
                ElementsAre("--lr-decay-style", "--lr-decay-iters", "--lr-decay-samples"));
    EXPECT_THAT(offered({"train_gpt", "--bf16", "--no-ch"}),
                ElementsAre("--no-check-for-nan-in-loss-and-grad"));
    EXPECT_THAT(offered({"vocabpipe", "plan", "--global"}), ElementsAre("--global-batch-size"));
    EXPECT_THAT(offered({"vocabpipe", "schedule", "show", "1f1b", "--pp", "4", "--micro"}),
                ElementsAre("--microbatches", "--micro-batch-size",
                            "--microbatch-group-size-per-virtual-pipeline-stage"));
    EXPECT_THAT(offered({"vocabpipe", "schedule", "--micro"}), IsEmpty());
}

TEST_F(Completion, OffersValuesOfFlags) {
    EXPECT_THAT(offered({"train_gpt", "--dtype", ""}), ElementsAre("fp32", "bf16"));
    EXPECT_THAT(offered({"train_gpt", "--dtype", "=", "b"}), ElementsAre("bf16"));
    EXPECT_THAT(offered({"train_gpt", "--vocab-mode", "t"}), ElementsAre("two_barriers"));
    EXPECT_THAT(offered({"train_gpt", "--schedule", "zb-h"}), ElementsAre("zb-h1", "zb-h2"));
    EXPECT_THAT(offered({"vocabpipe", "schedule", "show", "zb-h"}), ElementsAre("zb-h1", "zb-h2"));
    EXPECT_THAT(offered({"vocabpipe", "simulate", "1f1b", "--vocab-mode", "two"}),
                ElementsAre("two_barriers"));
    EXPECT_THAT(offered({"vocabpipe", "schedule", "convert", "--output-dialect", "v"}),
                ElementsAre("vocabpipe"));
    EXPECT_THAT(offered({"vocabpipe", "plan", "--evaluation", "p"}), ElementsAre("pass_times"));
    EXPECT_THAT(offered({"vocabpipe", "profile", "--device", ""}), ElementsAre("host", "cuda"));
}

TEST_F(Completion, OffersFilesWhereTheyMayStandAndNothingForNumbers) {
    EXPECT_THAT(offered({"train_gpt", "--config", "r"}), ElementsAre("run.toml"));
    EXPECT_THAT(offered({"train_gpt", "--schedule", "r"}), ElementsAre("run.toml"));
    EXPECT_THAT(offered({"vocabpipe", "compare", "r"}), ElementsAre("run.toml"));
    EXPECT_THAT(offered({"train_gpt", "--dtype", "r"}), IsEmpty());
    EXPECT_THAT(offered({"train_gpt", "--lr", ""}), IsEmpty());
}

/// The flags that a help text shows.
std::vector<std::string> shown(const std::string& command) {
    const Outcome help = run_shell(command + " --help");
    EXPECT_EQ(help.exit_code, 0);
    std::vector<std::string> flags;
    for (const std::string& line : lines_of(help.output)) {
        if (!line.starts_with("  -")) continue;
        std::istringstream words(line);
        for (std::string word; words >> word;) {
            if (word.ends_with(",")) word.pop_back();
            if (!word.starts_with("--")) {
                if (word != "-h") break;
                continue;
            }
            flags.push_back(word);
        }
    }
    return flags;
}

TEST_F(Completion, KnowsEveryFlagThatHelpShows) {
    const std::vector<std::string> train = shown("'" TRAIN_GPT_PROGRAM "'");
    EXPECT_GT(train.size(), 90U);
    EXPECT_THAT(offered({"train_gpt", "--"}), IsSupersetOf(train));
    const std::vector<std::string> simulate = shown("'" VOCABPIPE_PROGRAM "' simulate");
    EXPECT_GT(simulate.size(), 15U);
    EXPECT_THAT(offered({"vocabpipe", "simulate", "--"}), IsSupersetOf(simulate));
}

TEST_F(Completion, OfZshIsAScriptThatZshReads) {
    const Outcome script =
        run_shell("'" VOCABPIPE_PROGRAM "' completion zsh > '" + (folder_ / "z") + "'");
    ASSERT_EQ(script.exit_code, 0) << script.error;
    EXPECT_THAT(testing::read_file(folder_ / "z"),
                ::testing::EndsWith("compdef _vocabpipe vocabpipe train_gpt\n"));
    if (run_shell("command -v zsh").exit_code != 0) GTEST_SKIP() << "there is no zsh here";
    EXPECT_EQ(run_shell("zsh -n '" + (folder_ / "z") + "'").exit_code, 0);
    // With what zsh calls when it completes.
    const Outcome words = run_shell(
        "zsh -f -c 'compdef() {}; compadd() { shift; print -l -- \"$@\"; }; . \"$0\"; "
        "words=(train_gpt --dtype \"\"); CURRENT=3; _vocabpipe' '" +
        (folder_ / "z") + "'");
    EXPECT_EQ(words.output, "fp32\nbf16\n") << words.error;
}

}  // namespace
}  // namespace vocabpipe
