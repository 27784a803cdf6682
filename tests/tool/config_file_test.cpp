// SPDX-License-Identifier: Apache-2.0
// --config: what a file says, what the command line says, and what is wrong with a file.
#include "src/tool/support/config_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/tool/support/flag_parser.hpp"
#include "src/tool/support/toml_reader.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::TempFolder;
using testing::write_file;

/// A program with one flag of each kind.
class Config : public ::testing::Test {
protected:
    void parse(const std::string& file, std::vector<std::string> arguments = {}) {
        write_file(path_, file);
        arguments.insert(arguments.end(), {"--config", path_});
        read(arguments);
    }
    void read(const std::vector<std::string>& arguments) {
        const Command program{.name = "program",
                              .flags = {rows(), config_.own_flags()},
                              .version = "1",
                              .config = &config_};
        given_ = read_command_line(program, arguments).given;
    }
    FlagGroup rows() {
        return {.flags = {{.names = "--lr", .value = &lr_},
                          {.names = "--micro-batch-size,-b", .value = &batch_},
                          {.names = "--layout,--pipeline-layout", .value = &layout_},
                          {.names = "--bf16", .value = &bf16_},
                          {.names = "--data-path", .value = &data_}}};
    }
    /// The message without what names the file.
    std::string refusal(const std::string& file) {
        try {
            parse(file);
        } catch (const UsageError& error) {
            const std::string text = error.what();
            const std::string head = "--config " + path_ + ":";
            return text.starts_with(head) ? text.substr(head.size()) : text;
        }
        return "";
    }

    TempFolder folder_;
    std::string path_ = folder_ / "run.toml";
    double lr_ = 1;
    int batch_ = 1;
    std::string layout_;
    bool bf16_ = false;
    std::vector<std::string> data_;
    ConfigFile config_{{rows()}};
    GivenFlags given_;
};

TEST_F(Config, SetsFlagsByTheirNames) {
    parse(
        "# a run\n"
        "lr = 3e-4   # after the warm-up\n"
        "micro-batch-size=1_024\r\n"
        "\n"
        "  layout = \"Et*3|(tt|)*2,t#|L\"\n"
        "bf16 = true\n"
        "data-path = [\n  '0.3', 'C:\\set', # two\n  \"b \\\"c\\\"\",\n]\n");
    EXPECT_EQ(lr_, 3e-4);
    EXPECT_EQ(batch_, 1024);
    EXPECT_EQ(layout_, "Et*3|(tt|)*2,t#|L");
    EXPECT_TRUE(bf16_);
    EXPECT_THAT(data_, ElementsAre("0.3", "C:\\set", "b \"c\""));
}

TEST_F(Config, LosesToTheCommandLine) {
    parse("lr = 3e-4\nbf16 = true\ndata-path = ['a', 'b']\nmicro-batch-size = 2\n",
          {"--lr", "0.5", "--bf16=false", "--data-path", "c"});
    EXPECT_EQ(lr_, 0.5);
    EXPECT_FALSE(bf16_);
    EXPECT_THAT(data_, ElementsAre("c"));
    EXPECT_EQ(batch_, 2);
    EXPECT_EQ(config_.source_of("--lr: wrong"), "") << "not the file's";
    EXPECT_EQ(config_.source_of("--micro-batch-size: wrong"), " (" + path_ + ":4)");
    EXPECT_EQ(config_.source_of("--micro-batch-size-of-another: wrong"), "");
}

TEST_F(Config, ThatSaysNothingIsFine) {
    parse("");
    EXPECT_EQ(lr_, 1);
    EXPECT_THAT(data_, IsEmpty());
}

TEST_F(Config, IsRefusedWithLineAndRemedyWhereItIsWrong) {
    EXPECT_EQ(refusal("lr = 1\nmicro_batch_size = 2\n"),
              "2: unknown flag --micro_batch_size; did you mean micro-batch-size?");
    EXPECT_EQ(refusal("nothing-like-it = 2\n"), "1: unknown flag --nothing-like-it");
    EXPECT_EQ(refusal("config = 'x'\n"), "1: --config is valid only on the command line");
    EXPECT_EQ(refusal("version = true\n"), "1: --version is valid only on the command line");
    EXPECT_EQ(refusal("layout = 'a'\npipeline-layout = 'b'\n"),
              "2: --pipeline-layout is already set on line 1");
    EXPECT_EQ(refusal("bf16 = 1\n"), "1: --bf16 is a switch; use true or false");
    EXPECT_EQ(refusal("lr = [1, 2]\n"), "1: --lr expects one value, got 2");
    EXPECT_THAT(refusal("data-path = []\n"), HasSubstr("got 0"));
    EXPECT_EQ(refusal("lr = 2026-11-28\n"),
              "1: lr: must be a number, true, false, a [list] of those or text in quotes");
    EXPECT_THAT(refusal("data-path = [\n'a', ['b']]\n"), StartsWith("2: data-path: must be a "));
    EXPECT_THAT(refusal("[[data-path]]\nlr = 1\n"), HasSubstr(": data-path: must be a number"));
    EXPECT_EQ(refusal(std::string("\xff\xfe") + "l"), "1: the file is UTF-16; save it as UTF-8");
}

TEST_F(Config, ThatIsNoTomlIsRefusedWithLineAndForm) {
    const std::string form = "; write NAME = VALUE, text in quotes and lists as [a, b]";
    for (const auto& [text, line] :
         {std::pair("bf16\n", "1: "), std::pair("lr =\n", "1: "),
          std::pair("layout = Ett|L\n", "1: "), std::pair("lr = 1 2\n", "1: "),
          std::pair("\nlayout = \"a\n", "2: "), std::pair("lr = 1\nlayout = \"\\x\"\n", "2: "),
          std::pair("data-path = ['a',\n", ""), std::pair("data-path = ['a' 'b']\n", "1: "),
          std::pair("= 1\n", "1: "),
          std::pair("gr\xc3\xb6\xc3\x9f"
                    "e = 1\n",
                    "1: "),
          std::pair("lr = 1\nlr = 2\n", "2: "), std::pair("layout = 'a\xff'\n", "1: ")}) {
        EXPECT_THAT(refusal(text), AllOf(StartsWith(line), EndsWith(form))) << text;
    }
}

TEST_F(Config, MayHaveItsFlagsInTables) {
    parse("lr = 1e-3\n[sizes]\nmicro-batch-size = 0x10\n[parallel.pipeline]\nlayout = 'a'\n");
    EXPECT_EQ(lr_, 1e-3);
    EXPECT_EQ(batch_, 16);
    EXPECT_EQ(layout_, "a");
    EXPECT_EQ(config_.source_of("--layout: wrong"), " (" + path_ + ":5)");
    EXPECT_EQ(refusal("[a]\nlr = 1\n[b]\nlr = 2\n"), "4: --lr is already set on line 2");
    EXPECT_EQ(refusal("[lr]\nno-flag = 2\n"), "2: unknown flag --no-flag");
}

TEST_F(Config, HasNumbersAsTheyAreWritten) {
    parse("data-path = [0.30, 1_000, +5, -2.5e-03, 7]# end\n");
    EXPECT_THAT(data_, ElementsAre("0.30", "1000", "5", "-2.5e-03", "7"));
    parse("data-path = ['\xc3\xa9\xe2\x82\xac', 12, 13]\n");
    EXPECT_THAT(data_, ElementsAre("\xc3\xa9\xe2\x82\xac", "12", "13"));
}

TEST_F(Config, ThatIsNoFileIsAnError) {
    const auto refused = [&](const std::string& path) {
        return testing::message_of<UsageError>([&] { read({"--config", path}); });
    };
    EXPECT_EQ(refused(folder_ / "none.toml"),
              "--config " + (folder_ / "none.toml") + ": does not exist; use a TOML file of flags");
    EXPECT_THAT(refused(folder_ / ""), HasSubstr(": is a folder; use a TOML file"));
}

TEST_F(Config, MayBeginWithAByteOrderMark) {
    parse(
        "\xef\xbb\xbf"
        "lr = 3e-4\n");
    EXPECT_EQ(lr_, 3e-4);
}

TEST_F(Config, HasItsFlagsInTheOrderOfItsLines) {
    const std::vector<TomlAssignment> all =
        read_toml("z = [3, 1]\n[b]\ny = 2.50\n[a]\nx = {w = 7, v = 8}\n");
    std::vector<std::string> text;
    for (const TomlAssignment& one : all) {
        text.push_back(std::to_string(one.line) + one.key + one.values.back());
    }
    EXPECT_THAT(text, ElementsAre("1z1", "3y2.50", "5w7", "5v8"));
}

TEST_F(Config, PrintsControlCharactersAsTomlHasThem) {
    const std::string odd = "a\r\x01\x7f\tb\nc";
    EXPECT_EQ(toml_value(odd), "\"a\\u000d\\u0001\\u007f\\tb\\nc\"");
    EXPECT_THAT(read_toml("x = " + toml_value(odd)).front().values, ElementsAre(odd));
}

TEST_F(Config, PrintedReadsBackTheSame) {
    parse("lr = 3e-4\nlayout = 'a \"b\" \\c'\n",
          {"--data-path", "x", "y", "--bf16", "--micro-batch-size", "4"});
    const std::string printed = config_.text(given_);
    EXPECT_EQ(printed,
              "lr = 3e-4\nmicro-batch-size = 4\nlayout = \"a \\\"b\\\" \\\\c\"\n"
              "bf16 = true\ndata-path = [\"x\", \"y\"]\n");
    lr_ = 0;
    batch_ = 0;
    layout_.clear();
    data_.clear();
    bf16_ = false;
    parse(printed);
    EXPECT_EQ(lr_, 3e-4);
    EXPECT_EQ(batch_, 4);
    EXPECT_EQ(layout_, "a \"b\" \\c");
    EXPECT_TRUE(bf16_);
    EXPECT_THAT(data_, ElementsAre("x", "y"));
}

}  // namespace
}  // namespace vocabpipe::tool
