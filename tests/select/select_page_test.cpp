// SPDX-License-Identifier: Apache-2.0
// vocabpipe select page: what is kept of each source, and the page about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/select/files/subset_file.hpp"
#include "src/select/similar_groups.hpp"
#include "src/tool/data/sample_texts.hpp"
#include "src/tool/select/selection_page.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "src/train/select/kept_shares.hpp"
#include "tests/select/select_problem.hpp"
#include "tests/tool/run_program.hpp"
#include "tests/train/select/subset_of.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

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

    // The tokenizer is looked for beside the file, also of a part of it.
    write_file(folder_ / "corpus.tokenizer.json", "{");
    EXPECT_THAT(
        [&] {
            (void)tool::sample_texts(TrainingData({.path = {prefix + ".bin"}, .split = "50,50,0"}),
                                     chosen, "", 2);
        },
        ThrowsMessage<InputFileError>(HasSubstr("corpus.tokenizer.json")));

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

// The picture of bounding goes from 10 to 194 for 10 samples to none, and from 70 to 850.
TEST(SelectionPicture, HasABarForEachStepOfBounding) {
    tool::SelectionPage page{.title = "t", .samples = 10, .chosen = 5};
    page.steps = {{.grow = false, .decided = 4}, {.grow = true, .decided = 1}};
    const std::string html = page.html();
    const auto bar = [](const char* x, const char* y, const char* height, const char* kind) {
        return "<rect x=\"" + std::string(x) + "\" y=\"" + y + "\" width=\"390.0\" height=\"" +
               height + "\" class=\"" + kind + "\"/>";
    };
    EXPECT_THAT(html, HasSubstr(bar("70.0", "194.0", "0.0", "chosen")));
    EXPECT_THAT(html, HasSubstr(bar("70.0", "10.0", "73.6", "out")));
    EXPECT_THAT(html, HasSubstr(bar("460.0", "175.6", "18.4", "chosen")));
    EXPECT_THAT(html, HasSubstr(bar("460.0", "10.0", "73.6", "out")));
    EXPECT_THAT(html, HasSubstr("step 2, Grow selects 1: 1 selected, 4 discarded, 5 open"));
    EXPECT_THAT(html, HasSubstr("y=\"106.0\" text-anchor=\"end\">5</text>"));
}

// The curve goes from 18 for the largest objective to 186 for the smallest; a label's line is 4
// lower.
TEST(SelectionPicture, HasALabelAtBothEndsOfTheObjective) {
    tool::SelectionPage page{.title = "t", .samples = 10, .chosen = 5};
    page.rounds = {{.input = 10, .kept = 8, .partitions = 2, .objective = 1.5},
                   {.input = 8, .kept = 5, .partitions = 1, .objective = 2.5},
                   {.input = 8, .kept = 5, .partitions = 1, .objective = 2}};
    const std::string html = page.html();
    EXPECT_THAT(html, HasSubstr("<polyline points=\"82.0,186.0 460.0,18.0 838.0,102.0 \""));
    EXPECT_THAT(html, HasSubstr("<text x=\"64.0\" y=\"190.0\" text-anchor=\"end\">1.5</text>"));
    EXPECT_THAT(html, HasSubstr("<text x=\"64.0\" y=\"22.0\" text-anchor=\"end\">2.5</text>"));
}

// Rows of 17, in which bars of 520 leave 2 free above and below.
TEST(SelectionPicture, HasABarForEachSourceTheLargestShareFirst) {
    tool::SelectionPage page{.title = "t", .samples = 12, .chosen = 6};
    page.sources = {{.name = "few", .samples = 8, .chosen = 2},
                    {.name = "all", .samples = 4, .chosen = 4}};
    const std::string html = page.html();
    const auto bar = [](const char* y, const char* width, const char* kind, const char* hint) {
        return "<rect x=\"220.0\" y=\"" + std::string(y) + "\" width=\"" + width +
               "\" height=\"13.0\" class=\"" + kind + "\"><title>" + hint + "</title>";
    };
    EXPECT_THAT(html, HasSubstr(bar("2.0", "520.0", "open", "4 of 4")));
    EXPECT_THAT(html, HasSubstr(bar("2.0", "520.0", "chosen", "4 of 4")));
    EXPECT_THAT(html, HasSubstr(bar("19.0", "520.0", "open", "2 of 8")));
    EXPECT_THAT(html, HasSubstr(bar("19.0", "130.0", "chosen", "2 of 8")));
    EXPECT_THAT(html, HasSubstr("<line x1=\"480.0\" y1=\"0.0\" x2=\"480.0\" y2=\"34.0\""));
    const auto words = [](const char* x, const char* y, const char* anchor, const char* text) {
        return "<text x=\"" + std::string(x) + "\" y=\"" + y + "\" text-anchor=\"" + anchor +
               "\">" + text + "</text>\n";
    };
    EXPECT_THAT(html, HasSubstr(words("212.0", "12.0", "end", "all")));
    EXPECT_THAT(html, HasSubstr(words("748.0", "12.0", "start", "100 %  4 of 4")));
    EXPECT_THAT(html, HasSubstr(words("212.0", "29.0", "end", "few")));
    EXPECT_THAT(html, HasSubstr(words("748.0", "29.0", "start", "25 %  2 of 8")));
}

TEST(SelectionPicture, HasTheTwentySourcesMostAndTheTwentyLeastKept) {
    tool::SelectionPage page{.title = "t", .samples = 4200, .chosen = 1000};
    for (int64_t i = 0; i < 40; ++i) {
        page.sources.push_back({.name = "s" + std::to_string(i), .samples = 100, .chosen = i});
    }
    const std::string all = page.html();
    EXPECT_THAT(all, Not(HasSubstr("left out")));
    for (int64_t i = 40; i < 42; ++i) {
        page.sources.push_back({.name = "s" + std::to_string(i), .samples = 100, .chosen = i});
    }
    const std::string some = page.html();
    EXPECT_THAT(some, HasSubstr("The dashed line is the share of all samples. 2 sources between "
                                "the most and the least kept are left out.</p>"));
    for (int64_t i = 0; i < 42; ++i) {
        const std::string name = ">s" + std::to_string(i) + "</text>";
        EXPECT_EQ(all.find(name) != std::string::npos, i < 40) << i;
        EXPECT_EQ(some.find(name) != std::string::npos, i < 20 || i > 21) << i;
    }
}

TEST(SelectionTexts, StandInPairsAsFarAsThereAreSome) {
    tool::SelectionPage page{.title = "t"};
    page.texts = {.chosen = {{.sample = 4, .source = "a", .text = "one"},
                             {.sample = 6, .source = "b&", .text = ""}},
                  .left_out = {{.sample = 5, .source = "c", .text = "<"}},
                  .tokenizer = "bytes"};
    const std::string head = "<h3>chosen</h3><h3>left out</h3>\n";
    const std::string four =
        "<div class=\"text of-chosen\"><div>sample 4, a</div><pre>one</pre></div>\n";
    const std::string six =
        "<div class=\"text of-chosen\"><div>sample 6, b&amp;</div><pre>(no text)</pre></div>\n";
    const std::string five = "<div class=\"text\"><div>sample 5, c</div><pre>&lt;</pre></div>\n";
    const std::string none = "<div></div>\n", end = "</div>\n";
    EXPECT_THAT(page.html(), HasSubstr(head + four + five + six + none + end));
    page.texts->chosen.clear();
    EXPECT_THAT(page.html(), HasSubstr(head + none + five + end));

    page.texts.reset();
    page.about_groups = "1 group";
    page.groups = {{.samples = 3,
                    .chosen = 1,
                    .some_chosen = {{.sample = 4, .source = "a", .text = "one"}},
                    .some_left_out = {{.sample = 5, .source = "c", .text = "<"}}}};
    const std::string counts = "<h3>1 of 3 samples</h3><h3>2</h3>\n";
    EXPECT_THAT(page.html(), HasSubstr(head + counts + four + five + end));
    page.groups[0].some_left_out.clear();
    EXPECT_THAT(page.html(), HasSubstr(head + counts + four + none + end));
    page.groups[0].some_left_out = {{.sample = 5, .source = "c", .text = "<"}};
    page.groups[0].some_chosen.clear();
    EXPECT_THAT(page.html(), HasSubstr(head + counts + none + five + end));
}

TEST_F(SelectPage, GroupsSamplesThatAChainOfSimilaritiesConnects) {
    // Similarities are at most 9: with at least 9, few edges are left, and with at least 0 all.
    const SelectProblem problem = random_problem(21, 300, 3, 9, 9);
    std::vector<int64_t> chosen;
    for (int64_t v = 0; v < problem.size(); v += 3) chosen.push_back(v);
    World::threads(1).run([&](Communicator& world) {
        write_graph(world, folder_ / "graph", problem);
        SubsetWriter writer(world, folder_ / "subset",
                            {.corpus = corpus_of(problem), .count = std::ssize(chosen)});
        writer.write(0, chosen);
        writer.publish();
    });
    const GraphFile graph(folder_ / "graph");
    const SubsetReader subset(folder_ / "subset");
    for (const int32_t similarity : {0, 8, 9, 10}) {
        // Every sample takes the smallest name of its neighbours until nothing changes.
        std::vector<int64_t> name(300);
        for (size_t v = 0; v < name.size(); ++v) name[v] = static_cast<int64_t>(v);
        for (bool changed = true; changed;) {
            changed = false;
            for (const auto& [a, b, weight] : problem.edges) {
                int64_t& of_a = name[static_cast<size_t>(a)];
                int64_t& of_b = name[static_cast<size_t>(b)];
                if (weight < similarity || of_a == of_b) continue;
                of_a = of_b = std::min(of_a, of_b);
                changed = true;
            }
        }
        std::map<int64_t, std::vector<int64_t>> members;
        for (int64_t v = 0; v < 300; ++v) members[name[static_cast<size_t>(v)]].push_back(v);
        std::erase_if(members, [](const auto& group) { return group.second.size() < 2; });
        int64_t samples = 0, taken = 0, without = 0;
        std::vector<std::pair<int64_t, int64_t>> order;
        for (const auto& [first, group] : members) {
            const int64_t of_group =
                std::ranges::count_if(group, [](int64_t v) { return v % 3 == 0; });
            samples += std::ssize(group);
            taken += of_group;
            without += of_group == 0 ? 1 : 0;
            order.emplace_back(-std::ssize(group), first);
        }
        std::ranges::sort(order);
        const SimilarGroups found = similar_groups(graph, subset, similarity, 4, 2);
        EXPECT_EQ(found.groups, std::ssize(members)) << similarity;
        EXPECT_EQ(found.samples, samples);
        EXPECT_EQ(found.chosen, taken);
        EXPECT_EQ(found.without, without);
        ASSERT_EQ(found.largest.size(), std::min<size_t>(order.size(), 4));
        for (size_t i = 0; i < found.largest.size(); ++i) {
            const std::vector<int64_t>& group = members[order[i].second];
            EXPECT_EQ(found.largest[i].samples, std::ssize(group));
            std::vector<int64_t> some_chosen, some_left_out;
            for (const int64_t v : group) {
                std::vector<int64_t>& some = v % 3 == 0 ? some_chosen : some_left_out;
                if (some.size() < 2) some.push_back(v);
            }
            EXPECT_EQ(found.largest[i].some_chosen, some_chosen);
            EXPECT_EQ(found.largest[i].some_left_out, some_left_out);
        }
    }
}

TEST(SelectionPicture, HasTheGroupsWithWhatIsKeptOfThem) {
    tool::SelectionPage page{.title = "t"};
    EXPECT_THAT(page.html(), Not(HasSubstr("Groups of similar samples")));
    page.about_groups = "5 samples are in 1 group";
    page.groups = {{.samples = 5,
                    .chosen = 2,
                    .some_chosen = {{.sample = 4, .source = "document 0", .text = "a<b"}},
                    .some_left_out = {{.sample = 7, .source = "document 1", .text = "c"}}}};
    EXPECT_THAT(page.html(),
                AllOf(HasSubstr("<h2>Groups of similar samples</h2>\n<p>5 samples are in 1 group"),
                      HasSubstr("<h3>2 of 5 samples</h3><h3>3</h3>"),
                      HasSubstr("sample 4, document 0</div><pre>a&lt;b</pre>"),
                      HasSubstr("sample 7, document 1</div><pre>c</pre>")));
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
    EXPECT_THAT(refused("--report report.json --html page.html --subset subset --data-path corpus "
                        "--tokenizer-model m.model",
                        3),
                HasSubstr("report.json: is not a report"));
    EXPECT_THAT(refused("--report report.json --html page.html --similarity 0.5", 2),
                HasSubstr("--similarity: needs --graph"));
    EXPECT_THAT(refused("--report report.json --html page.html --graph graph", 2),
                HasSubstr("--graph: needs --subset and --data-path"));
    EXPECT_THAT(refused("--report none.json --html page.html", 3), HasSubstr("none.json"));
    EXPECT_THAT(refused("--report report.json --html mine.html", 2), HasSubstr("--html mine.html"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "page.html"));
}

}  // namespace
}  // namespace vocabpipe::testing
