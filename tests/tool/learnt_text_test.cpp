// SPDX-License-Identifier: Apache-2.0
// vocabpipe data inspect: which tokens of a document are learnt, on a terminal, as text and as a
// page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/train/data/megatron_writer.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "tests/tool/run_program.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::TempFolder;

class LearntTextTest : public ::testing::Test {
protected:
    /// Bytes of texts in which learnt ones stand between { and }; those that end in } learn their
    /// end, too.
    void write(const std::vector<std::string>& texts, bool with_weights = true) {
        MegatronWriter writer(
            folder_ / "set", ByteTokenizer::kVocabSize,
            with_weights ? std::optional(LossWeightType::u8) : std::optional<LossWeightType>());
        for (const std::string& text : texts) {
            bool learnt = false;
            for (const char c : text) {
                if (c == '{' || c == '}') {
                    learnt = c == '{';
                } else {
                    append(writer, static_cast<unsigned char>(c), learnt, with_weights);
                }
            }
            append(writer, ByteTokenizer::kEndOfDocument, text.ends_with('}'), with_weights);
            writer.end_document();
        }
        (void)writer.finish();
    }
    [[nodiscard]] Outcome inspect(const std::string& arguments) const {
        return testing::run_in(folder_, "'" VOCABPIPE_PROGRAM "' data inspect " + arguments);
    }

    TempFolder folder_;

private:
    static void append(MegatronWriter& writer, int32_t token, bool learnt, bool with_weights) {
        const float weight = learnt ? 1 : 0;
        if (with_weights) {
            writer.append({&token, 1}, {&weight, 1});
        } else {
            writer.append({&token, 1});
        }
    }
};

TEST_F(LearntTextTest, IsMarkedInPlainText) {
    write({"ask\n{say\nmore}\n{again}", "{x}", "none"});
    const Outcome seen = inspect("set");
    ASSERT_EQ(seen.exit_code, 0) << seen.error;
    EXPECT_THAT(seen.output, HasSubstr("document       0, 14 of 19 tokens learnt ({+so+})\n"
                                       "  ask\n  {+say\n  more+}\n  {+again+}{+[end]+}\n"));
    EXPECT_THAT(
        inspect("set --document 2").output,
        AllOf(HasSubstr("document       2, 0 of 5 tokens learnt"), HasSubstr("  none[end]\n")));
    EXPECT_THAT(inspect("set --document 3").error,
                HasSubstr("--document 3: set has 3 documents, numbered from 0"));
}

TEST_F(LearntTextTest, IsUnderlinedOnATerminalOrIfAsked) {
    write({"ask\n{say\nmore}\n"});
    EXPECT_THAT(inspect("set --color always").output,
                HasSubstr("learnt (underlined)\n  ask\n  \033[4msay\033[24m\n  \033[4mmore\033[24m"
                          "\n  [end]\n"));
    // script(1) runs it on a terminal of its own.
    const std::string on_terminal =
        "script -qec '" VOCABPIPE_PROGRAM " data inspect " + (folder_ / "set");
    const Outcome seen = testing::run_shell("TERM=xterm " + on_terminal + "' /dev/null");
    ASSERT_EQ(seen.exit_code, 0) << seen.error;
    EXPECT_THAT(seen.output, HasSubstr("\033[4msay\033[24m"));
    EXPECT_THAT(testing::run_shell("NO_COLOR=1 TERM=xterm " + on_terminal + "' /dev/null").output,
                HasSubstr("{+say"));
    EXPECT_THAT(
        testing::run_shell("TERM=xterm " + on_terminal + " --color never' /dev/null").output,
        HasSubstr("{+say"));
}

TEST_F(LearntTextTest, ShowsNoControlCharactersAndNoHalfCharacters) {
    // A character belongs to the part of its last byte.
    write({std::string("a\033[31m\r{\xc3}\xa9 \xe2\x82\xac{x\xc3}")});
    const Outcome seen = inspect("set");
    EXPECT_THAT(seen.output, HasSubstr("  a [31m \u00e9 \u20ac{+x?+}{+[end]+}\n"));
}

TEST_F(LearntTextTest, IsAPageOfDocumentsFromAllOverTheData) {
    std::vector<std::string> texts;
    for (int i = 0; i < 32; ++i) texts.push_back("<b>" + std::to_string(i) + "{&" + "yes}");
    write(texts);
    const Outcome seen = inspect("set --html page.html");
    ASSERT_EQ(seen.exit_code, 0) << seen.error;
    const std::string page = testing::read_file(folder_ / "page.html");
    EXPECT_THAT(page, AllOf(HasSubstr("prefers-color-scheme: dark"), HasSubstr("16 documents"),
                            HasSubstr("document 1: 5 of 9 tokens learnt"),
                            HasSubstr("<pre>&lt;b>1<u>&amp;yes</u><u><span class=\"special\">[end]"
                                      "</span></u></pre>"),
                            HasSubstr("document 31: "), Not(HasSubstr("document 2: ")),
                            Not(HasSubstr("http"))));
    EXPECT_THAT(inspect("set --html set.weights").error, HasSubstr("--html set.weights: "));
    EXPECT_THAT(inspect("set --html set.bin").error, HasSubstr("--html set.bin: "));
}

TEST_F(LearntTextTest, CutsLongDocumentsButCountsThemWhole) {
    write({"{" + std::string(3000, 'x') + "}"});
    const Outcome seen = inspect("set");
    EXPECT_THAT(seen.output, AllOf(HasSubstr("3001 of 3001 tokens learnt"), HasSubstr("x+} ...\n"),
                                   Not(HasSubstr(std::string(1025, 'x')))));
}

TEST_F(LearntTextTest, DocumentOfDataWithoutWeightsIsLearntWhole) {
    write({"ab"}, false);
    EXPECT_THAT(inspect("set").output, Not(HasSubstr("learnt")));
    EXPECT_THAT(inspect("set --document 0").output, HasSubstr("3 of 3 tokens learnt"));
}

TEST_F(LearntTextTest, NeedsDocumentsATokenizerAndOneDataSet) {
    write({"ab", "{c}"});
    testing::write_file(folder_ / "raw", std::string("a\0b\0", 4));
    EXPECT_THAT(inspect("raw --data-format raw-u16 --document 0").error,
                HasSubstr("--document 0: raw does not say where documents begin"));
    EXPECT_THAT(inspect("raw --data-format raw-u16 --html x.html").error,
                HasSubstr("--html: raw does not say where documents begin"));
    EXPECT_THAT(inspect("1 set 1 set --document 0").error,
                HasSubstr("--document: shows one data set; name it alone"));
    MegatronWriter writer(folder_ / "other", 5000);
    writer.append(std::vector<int32_t>{4000, 17});
    writer.end_document();
    (void)writer.finish();
    EXPECT_THAT(
        inspect("other --html x.html").error,
        HasSubstr("--html: no tokenizer is known for other; give it with --tokenizer-model"));
}

}  // namespace
}  // namespace vocabpipe
