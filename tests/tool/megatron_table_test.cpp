// SPDX-License-Identifier: Apache-2.0
// docs/megatron.md is what the table of flags says, and flags for the number of ranks mean a
// schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/tool/support/flag_parser.hpp"
#include "src/tool/train/train_program.hpp"
#include "src/train/options/choose_schedule.hpp"
#include "src/train/options/megatron_table.hpp"
#include "src/train/options/train_flags.hpp"
#include "tests/tool/megatron_scripts.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {
namespace {

using testing::MegatronScript;
using Words = std::vector<std::string>;

Words words_of(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
}

/// What the page says of a flag that is only read.
std::string without_effect(const AcceptedFlag& flag) {
    const std::string only(flag.only);
    return "read, without effect" + (only.empty() ? "" : " (" + only + " alone)") + ": " +
           std::string(flag.why);
}

/// What becomes of "--flag words", as users of a script for Megatron are told.
std::string what_becomes(const std::string& flag) {
    const Words words = words_of(flag);
    for (const AcceptedFlag& accepted : accepted_flags()) {
        if (accepted.name == words.front()) return without_effect(accepted);
    }
    TrainProgram program;
    const Command command = program.command();
    try {
        (void)read_command_line(command, words);
    } catch (const UsageError& error) {
        const std::string text = error.what();
        const size_t begin = text.find(": ") + 2;
        return "refused: " + text.substr(begin, text.rfind("; see train_gpt") - begin);
    }
    for (const FlagGroup& group : command.flags) {
        for (const Flag& row : group.flags) {
            const Words names = row.spellings();
            if (std::ranges::find(names, words.front()) != names.end()) return "set: " + row.help;
        }
    }
    return "unknown";
}

/// Rows of one flag each, in the order of the scripts; the three runs of one script are one column.
std::string table_of_scripts() {
    const Words columns{"gpt3", "llama3", "mixtral", "zb"};
    Words order;
    std::map<std::string, std::pair<std::string, std::set<std::string>>> rows;
    for (const MegatronScript& script : testing::megatron_scripts()) {
        const std::string column = script.path.ends_with("zero_bubble.sh") ? "zb" : script.name;
        for (const std::string& flag : script.flags) {
            const std::string name = words_of(flag).front();
            if (!rows.contains(name)) {
                order.push_back(name);
                rows[name].first = what_becomes(flag);
            }
            rows[name].second.insert(column);
        }
    }
    std::string text = "| flag | gpt3 | llama3 | mixtral | zb | what becomes of it |\n";
    text += "|---|---|---|---|---|---|\n";
    for (const std::string& name : order) {
        text += "| `" + name + "` |";
        for (const std::string& column : columns) {
            text += rows[name].second.contains(column) ? " x |" : " |";
        }
        text += " " + rows[name].first + " |\n";
    }
    return text;
}

/// Whoever changes a row of the flags puts the text of the failure into the page.
TEST(MegatronPage, HasTheTableOfTheFlagsOfScripts) {
    const std::string page = testing::read_file(VOCABPIPE_DOCS "/megatron.md") + "\n";
    const std::string table = table_of_scripts();
    EXPECT_NE(page.find("\n\n" + table + "\n"), std::string::npos)
        << "docs/megatron.md needs this table:\n"
        << table;
    EXPECT_EQ(table.find("unknown"), std::string::npos);
}

TEST(MegatronPage, NamesTheDefaultsThatDiffer) {
    const std::string page = testing::read_file(VOCABPIPE_DOCS "/megatron.md");
    for (const MegatronDefault& other : megatron_defaults()) {
        const std::string row = "| `" + std::string(other.flag) + "` | " + std::string(other.there);
        EXPECT_NE(page.find(row + " |"), std::string::npos) << row;
    }
}

TEST(MegatronTable, HasEveryFlagOnceAndNoneOfOthers) {
    std::set<std::string_view> names;
    for (const AcceptedFlag& flag : accepted_flags()) {
        EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
        EXPECT_EQ(flag.unit.empty(), flag.takes == Takes::nothing) << flag.name;
        EXPECT_EQ(flag.remedy.empty(), flag.only.empty() && flag.holds == nullptr) << flag.name;
    }
    TrainProgram program;
    for (const FlagGroup& group : program.flags()) {
        for (const Flag& flag : group.flags) {
            EXPECT_EQ(refusal_of(flag.name()), "") << flag.name();
        }
    }
    for (const RefusedFlag& flag : refused_flags()) {
        EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
        EXPECT_EQ(refusal_of(flag.name), flag.why);
    }
    EXPECT_EQ(refusal_of("--lr"), "");
}

TEST(MegatronTable, TakesTheSameNumberInAnyForm) {
    const AcceptedFlag dropout{.name = "--x", .why = "", .only = "0"};
    for (const char* const value : {"0", "0.0", "0.", ".0", "0e5"}) {
        EXPECT_TRUE(may_be(dropout, value)) << value;
    }
    for (const char* const value : {"0.1", "1", "none", "nan", "0,0", ""}) {
        EXPECT_FALSE(may_be(dropout, value)) << value;
    }
    const AcceptedFlag named{.name = "--x", .why = "", .only = "adam"};
    EXPECT_TRUE(may_be(named, "adam"));
    EXPECT_FALSE(may_be(named, "0"));
}

// --- schedules

TEST(ChosenSchedule, FollowsFromTheStagesOfARank) {
    TrainOptions options;
    options.model.num_layers = 8;
    options.layers_per_chunk = 2;
    EXPECT_EQ(with_chosen_schedule(options, 2).schedule, "1f1b") << "given";
    options.schedule_by_stages = true;
    EXPECT_EQ(with_chosen_schedule(options, 2).schedule, "interleaved");
    EXPECT_EQ(with_chosen_schedule(options, 4).schedule, "1f1b");
    options.pipeline_model_parallel_size = 2;
    EXPECT_EQ(with_chosen_schedule(options, 4).schedule, "interleaved") << "with replicas";
    options.layers_per_chunk = 0;
    EXPECT_EQ(with_chosen_schedule(options, 4).schedule, "1f1b");
    options.rule.chunks = 2;
    EXPECT_EQ(with_chosen_schedule(options, 4).schedule, "interleaved");
    options.layout = "Et*4|t*4L";
    EXPECT_EQ(with_chosen_schedule(options, 4).schedule, "1f1b") << "the layout counts";
}

TEST(ChosenSchedule, LeavesWhatIsWrongToTheChecksOfARun) {
    TrainOptions options;
    options.schedule_by_stages = true;
    options.layout = "Ett|no layout";
    EXPECT_EQ(with_chosen_schedule(options, 2).schedule, "1f1b");
    options.layout.clear();
    options.rule.chunks = 2;
    options.tensor_model_parallel_size = 3;
    EXPECT_EQ(with_chosen_schedule(options, 2).schedule, "1f1b");
}

}  // namespace
}  // namespace vocabpipe::tool
