// SPDX-License-Identifier: Apache-2.0
// vocabpipe select page: what is kept of each source, and the page about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/select/files/subset_file.hpp"
#include "src/tool/sample_texts.hpp"
#include "src/tool/selection_page.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "src/train/select/kept_shares.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/tool/run_program.hpp"
#include "tests/train/select/subset_of.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kTokens = 4;  // of a sample

class SelectPage : public ::testing::Test {
protected:
    /// A Megatron file of documents of so many tokens.
    std::string documents(const std::vector<int>& lengths) {
        const std::string prefix = folder_ / "corpus";
        MegatronWriter writer(prefix, 23);
        for (const int length : lengths) {
            writer.append(std::vector<int32_t>(static_cast<size_t>(length), 7));
            writer.end_document();
        }
        (void)writer.finish();
        return prefix;
    }
    std::string subset(const DataOptions& options, const std::vector<int64_t>& chosen) {
        const std::string path = folder_ / "subset";
        write_subset_file(path, training_corpus(TrainingData(options), kTokens), chosen);
        return path;
    }
    [[nodiscard]] Outcome run(const std::string& flags) const {
        return run_shell("cd '" + (folder_ / "") + "' && '" VOCABPIPE_PROGRAM "' " + flags);
    }

    TempFolder folder_;
};

TEST_F(SelectPage, CountsASampleForTheDocumentOfItsFirstToken) {
    // Tokens 0-9, 10-11, 12-12 and 13-28; samples begin at 0, 4, 8 | none | 12 | 16, 20, 24.
    const DataOptions options{.path = {documents({10, 2, 1, 16})}};
    const TrainingData data(options);
    const auto shares = kept_shares(data, SubsetReader(subset(options, {1, 2, 3, 6})));
    ASSERT_EQ(shares.size(), 3U);
    EXPECT_EQ(shares[0].source, "document 0");
    EXPECT_EQ(shares[0].samples, 3);
    EXPECT_EQ(shares[0].chosen, 2);
    EXPECT_EQ(shares[1].source, "document 2");
    EXPECT_EQ(shares[1].samples, 1);
    EXPECT_EQ(shares[1].chosen, 1);
    EXPECT_EQ(shares[2].source, "document 3");
    EXPECT_EQ(shares[2].samples, 3);
    EXPECT_EQ(shares[2].chosen, 1);
}

TEST_F(SelectPage, CountsDataSetsOfABlend) {
    std::vector<std::string> blend;
    for (const int tokens : {17, 9}) {
        const std::string path = folder_ / ("raw" + std::to_string(tokens));
        write_file(path, std::string(static_cast<size_t>(tokens) * 2, '\1'));
        blend.insert(blend.end(), {"0.5", path});
    }
    const DataOptions options{.path = blend, .format = "raw-u16"};
    const TrainingData data(options);
    const auto shares = kept_shares(data, SubsetReader(subset(options, {0, 3, 5})));
    ASSERT_EQ(shares.size(), 2U);
    EXPECT_EQ(shares[0].source, blend[1]);
    EXPECT_EQ(shares[0].samples, 4);
    EXPECT_EQ(shares[0].chosen, 2);
    EXPECT_EQ(shares[1].samples, 2);
    EXPECT_EQ(shares[1].chosen, 1);
}

TEST_F(SelectPage, ShowsBoundingRoundsAndSources) {
    const DataOptions options{.path = {documents({100, 140})}};
    const SelectProblem problem = random_problem(3, 59, 8, 1 << 20, 1 << 20);
    ASSERT_EQ(training_corpus(TrainingData(options), kTokens).samples, problem.size());
    World::threads(1).run([&](Communicator& world) {
        write_graph(world, folder_ / "graph", problem);
        write_utility(world, folder_ / "scores", problem);
    });
    const Outcome chosen =
        run("select run --graph graph --utility scores --subset-size 20 --alpha 2 "
            "--partitions 2 --rounds 3 --output chosen --report report.json");
    ASSERT_EQ(chosen.exit_code, 0) << chosen.error;
    const Outcome plain = run("select page --report report.json --html page.html");
    ASSERT_EQ(plain.exit_code, 0) << plain.error;
    EXPECT_THAT(read_file(folder_ / "page.html"),
                AllOf(HasSubstr("20 of 59 samples chosen"), HasSubstr("Decided by bounding"),
                      HasSubstr("round 3: "), Not(HasSubstr("Share kept"))));
    std::vector<int64_t> some(20);
    for (size_t i = 0; i < some.size(); ++i) some[i] = static_cast<int64_t>(2 * i);
    (void)subset(options, some);
    const Outcome full =
        run("select page --report report.json --html page.html --subset subset --data-path corpus");
    ASSERT_EQ(full.exit_code, 0) << full.error;
    const std::string page = read_file(folder_ / "page.html");
    EXPECT_THAT(page, AllOf(HasSubstr("Share kept of each source"), HasSubstr("document 0"),
                            HasSubstr("document 1"), HasSubstr("No tokenizer is known"),
                            Not(HasSubstr("<script"))));
    EXPECT_EQ(page.find("nan"), std::string::npos);
    // Errors name no flag that this command lacks, such as --seq-length.
    const auto refused = [&](const Corpus& corpus) {
        write_subset_file(folder_ / "subset", corpus, some);
        const Outcome outcome = run(
            "select page --report report.json --html page.html --subset subset --data-path corpus");
        EXPECT_EQ(outcome.exit_code, 3);
        return outcome.error;
    };
    EXPECT_THAT(refused({.data = {}, .seq_length = 0, .samples = 59}),
                HasSubstr("subset: does not say how many tokens its samples have"));
    EXPECT_THAT(refused({.data = {}, .seq_length = 4096, .samples = 59}),
                HasSubstr("--data-path: has no sample of the 4096 tokens that those of subset"));
}

TEST_F(SelectPage, ShowsTextsOfChosenSamplesBesideTextsOfOthers) {
    // Samples of four bytes, from A<&z on. The last one has no label for its last token.
    const std::string prefix = folder_ / "corpus";
    MegatronWriter writer(prefix, 257);
    for (int document = 0; document < 4; ++document) {
        std::vector<int32_t> tokens;
        for (int i = 0; i < 4; ++i) {
            const int sample = 4 * document + i;
            const std::string text = {static_cast<char>('A' + sample), '<', '&', 'z'};
            tokens.insert(tokens.end(), text.begin(), text.end());
        }
        tokens.back() = 256;  // ends the document
        writer.append(tokens);
        writer.end_document();
    }
    (void)writer.finish();
    const DataOptions options{.path = {prefix}};
    const TrainingData data(options);
    const SubsetReader chosen(subset(options, {2, 5, 9, 14}));
    const int64_t samples = chosen.info().corpus.samples;
    ASSERT_EQ(samples, 15);
    const tool::SampleTexts few = tool::sample_texts(data, chosen, "", 2);
    EXPECT_EQ(few.tokenizer, "bytes");
    ASSERT_EQ(few.chosen.size(), 2U);
    EXPECT_EQ(few.chosen[0].sample, 5);  // of 4 the second and the last
    EXPECT_EQ(few.chosen[1].sample, 14);
    EXPECT_EQ(few.chosen[0].text, "F<&z");
    EXPECT_EQ(few.chosen[0].source, "document 1");
    // Numbers 2 and 8 of the eleven 0, 1, 3, 4, 6, 7, 8, 10, ... 13.
    ASSERT_EQ(few.left_out.size(), 2U);
    EXPECT_EQ(few.left_out[0].sample, 3);
    EXPECT_EQ(few.left_out[0].text, "D<&\n\u2014\n");  // the document ends there
    EXPECT_EQ(few.left_out[1].sample, 11);
    const tool::SampleTexts all = tool::sample_texts(data, chosen, "", 100);
    EXPECT_EQ(all.chosen.size(), 4U);
    EXPECT_EQ(all.left_out.size(), 11U);
    std::vector<int64_t> numbers;
    for (const auto* list : {&all.chosen, &all.left_out}) {
        for (const tool::SampleText& one : *list) numbers.push_back(one.sample);
    }
    std::ranges::sort(numbers);
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<int64_t>(i));

    tool::SelectionPage page{.title = "t", .samples = 15, .chosen = 4};
    page.texts = few;
    const std::string html = page.html();
    EXPECT_THAT(html, AllOf(HasSubstr("<h3>chosen</h3><h3>left out</h3>"),
                            HasSubstr("sample 5, document 1</div><pre>F&lt;&amp;z</pre>"),
                            HasSubstr("sample 11, document 2</div>")));
    EXPECT_LT(html.find("sample 5,"), html.find("sample 3,"));  // side by side
    page.texts = tool::SampleTexts{};
    EXPECT_THAT(page.html(), HasSubstr("No tokenizer is known for this data"));
    page.texts.reset();
    EXPECT_THAT(page.html(), Not(HasSubstr("Texts of samples")));
}

TEST_F(SelectPage, RefusesWhatIsNoReportOrOfAnotherRun) {
    write_file(folder_ / "report.json", "{\"ranks\": 1}");
    write_file(folder_ / "mine.html", "<p>mine</p>");
    const auto refused = [&](const std::string& flags, int code) {
        const Outcome outcome = run("select page " + flags);
        EXPECT_EQ(outcome.exit_code, code) << flags << ": " << outcome.error;
        EXPECT_EQ(std::ranges::count(outcome.error, '\n'), 1) << outcome.error;
        return outcome.error;
    };
    EXPECT_THAT(refused("--report report.json --html page.html", 3),
                HasSubstr("report.json: is not a report of vocabpipe select run"));
    EXPECT_THAT(refused("--report report.json --html page.html --subset subset", 2),
                HasSubstr("--subset: needs --data-path"));
    EXPECT_THAT(refused("--report report.json --html page.html --tokenizer-model m.model", 2),
                HasSubstr("--tokenizer-model: needs --subset"));
    EXPECT_THAT(refused("--report none.json --html page.html", 3), HasSubstr("none.json"));
    EXPECT_THAT(refused("--report report.json --html mine.html", 2), HasSubstr("--html mine.html"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "page.html"));
}

}  // namespace
}  // namespace vocabpipe::testing
