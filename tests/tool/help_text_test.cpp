// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/help_text.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/tool/support/command.hpp"

namespace vocabpipe::tool {
namespace {

TEST(HelpText, HasAllThatTheTableOfFlagsSays) {
    std::string file, kind = "b", rule, name;
    std::vector<std::string> more;
    int number = 3;
    int64_t absent = -1;
    double share = 0.25;
    bool fast = false;
    uint64_t bytes = 2048;
    Command command{
        .name = "cut",
        .description = "Cut things\n  vocabpipe cut a b",
        .flags = {{.flags = {{.names = "FILE", .value = &file, .help = "What to cut"},
                             {.names = "-n,--number", .value = &number, .help = "How many"},
                             {.names = "--absent",
                              .value = &absent,
                              .help = "Where to begin",
                              .unset = "the middle",
                              .absent = -1},
                             {.names = "--fast", .value = &fast, .help = "Do not wait"},
                             {.names = "MORE", .value = &more, .help = "What else to cut"}}},
                  {.title = "Kinds",
                   .flags = {{.names = "--kind",
                              .value = &kind,
                              .help = "How to cut",
                              .choices = {"a", "b", "c"}},
                             {.names = "--rule",
                              .value = &rule,
                              .help = "first cuts at the first, last at the last",
                              .choices = {"first", "last"}},
                             {.names = "--share", .value = &share, .help = "Part of each"},
                             {.names = "--a-flag-with-a-long-name",
                              .value = &name,
                              .help = "What is cut with",
                              .unit = "NAME|FILE",
                              .required = true},
                             {.names = "--memory", .value = FlagBytes{&bytes}}}}},
        .version = "1"};
    EXPECT_EQ(help_text(command, "vocabpipe cut"),
              "Cut things\n"
              "  vocabpipe cut a b\n"
              "Usage: vocabpipe cut [OPTIONS] FILE MORE...\n"
              "\n"
              "Positionals:\n"
              "  FILE                        What to cut\n"
              "  MORE ...                    What else to cut\n"
              "\n"
              "Options:\n"
              "  -h, --help                  Print this help message and exit\n"
              "  --version                   Print the version and exit\n"
              "  -n, --number N              How many (default: 3)\n"
              "  --absent N                  Where to begin (default: the middle)\n"
              "  --fast                      Do not wait\n"
              "\n"
              "Kinds:\n"
              "  --kind TEXT                 How to cut (a, b or c; default: b)\n"
              "  --rule TEXT                 first cuts at the first, last at the last\n"
              "  --share X                   Part of each (default: 0.25)\n"
              "  --a-flag-with-a-long-name NAME|FILE\n"
              "                              What is cut with (required)\n"
              "  --memory TEXT               (default: 2048)\n");
    command.flags.clear();
    command.version.clear();
    command.commands = {{.name = "straight", .description = "Cut straight\nnot shown"},
                        {.name = "round", .description = "Cut round"}};
    EXPECT_EQ(help_text(command, "vocabpipe cut"),
              "Cut things\n"
              "  vocabpipe cut a b\n"
              "Usage: vocabpipe cut [OPTIONS] SUBCOMMAND\n"
              "\n"
              "Options:\n"
              "  -h, --help                  Print this help message and exit\n"
              "\n"
              "Subcommands:\n"
              "  straight                    Cut straight\n"
              "  round                       Cut round\n");
}

/// The lines of a flag's text.
std::string shown(const std::string& text) {
    std::string value;
    const std::string all = help_text(
        {.flags = {{.title = "T", .flags = {{.names = "--flag", .value = &value, .help = text}}}}},
        "cut");
    return all.substr(all.find("--flag"));
}

// Texts have the columns from 31 to 80.
TEST(HelpText, BreaksLongLinesAtSpacesAndLongListsBehindCommas) {
    const std::string head = "--flag TEXT                 ", next = "\n" + std::string(30, ' ');
    const std::string half(24, 'a');
    EXPECT_EQ(shown(half + " b" + half), head + half + " b" + half + "\n");
    EXPECT_EQ(shown(half + "  bb" + half), head + half + next + "bb" + half + "\n");
    const std::string ten = "ninechars,", fifty = ten + ten + ten + ten + ten;
    EXPECT_EQ(shown(fifty.substr(1) + ten + "x"), head + fifty.substr(1) + next + ten + "x\n");
    EXPECT_EQ(shown(fifty + fifty + "x"), head + fifty + next + fifty + next + "x\n");
    EXPECT_EQ(shown("x" + fifty + ten),
              head + "x" + ten + ten + ten + ten + next + ten + ten + "\n");
    EXPECT_EQ(shown(fifty.substr(0, 49) + "x"), head + fifty.substr(0, 49) + "x\n");
    EXPECT_EQ(shown("a " + std::string(60, 'w')), head + "a" + next + std::string(60, 'w') + "\n");
}

}  // namespace
}  // namespace vocabpipe::tool
