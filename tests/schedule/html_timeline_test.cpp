// SPDX-License-Identifier: Apache-2.0
// What is in the page. What a browser makes of it: tests/browser/timeline_test.cpp.
#include "vocabpipe/html_timeline.hpp"

#include "src/schedule/slice_causes.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

RecordedRun run_of(const std::string& family, VocabMode mode, int ranks, int microbatches,
                   const std::string& title) {
    const Schedule schedule =
        with_recomputation(generated({family, mode, false}, ranks, microbatches));
    const std::vector<Program> programs = lowered(schedule);
    return record(simulate(programs, uneven_costs(schedule)).timeline, programs, title);
}

std::string page_of(const std::vector<RecordedRun>& runs, const std::string& title) {
    const TempFolder folder;
    write_html_timeline(folder / "page.html", runs, title);
    return read_file(folder / "page.html");
}

/// The JSON of every script element of class "run".
std::vector<Json> runs_in(const std::string& page) {
    const std::string open = R"(<script type="application/json" class="run">)";
    std::vector<Json> runs;
    for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at + 1)) {
        const size_t begin = at + open.size();
        runs.push_back(Json::parse(page.substr(begin, page.find("</script>", begin) - begin)));
    }
    return runs;
}

/// Undoes the compact form as data.js does, and compares.
void expect_holds(const Json& json, const RecordedRun& run) {
    ASSERT_EQ(json.at("title"), run.title);
    const std::vector<SliceCause> causes = slice_causes(run);
    size_t i = 0;
    for (const Json& track : json.at("tracks")) {
        int64_t begin = 0;
        for (int64_t left = track.at(2); left > 0; --left, ++i) {
            const RecordedRun::Slice& slice = run.slices.at(i);
            begin += json.at("begin").at(i).get<int64_t>();
            ASSERT_EQ(track.at(0), slice.rank);
            ASSERT_EQ(track.at(1), static_cast<int>(slice.lane));
            ASSERT_EQ(begin, slice.begin_ns);
            ASSERT_EQ(begin + json.at("duration").at(i).get<int64_t>(), slice.end_ns);
            ASSERT_EQ(json.at("names").at(json.at("name").at(i).get<size_t>()),
                      run.names[slice.name]);
            ASSERT_EQ(json.at("number").at(i),
                      slice.number == RecordedRun::kNone ? -1 : static_cast<int64_t>(slice.number));
            const auto back = json.at("cause").at(i).get<int64_t>();
            ASSERT_EQ(back == 0 ? RecordedRun::kNone
                                : static_cast<uint32_t>(static_cast<int64_t>(i) - back),
                      causes[i].slice);
            ASSERT_EQ(static_cast<int64_t>(i) - json.at("member").at(i).get<int64_t>(),
                      causes[i].member);
            ASSERT_EQ(json.at("order").at(i),
                      slice.order == RecordedRun::kNone ? -1 : static_cast<int64_t>(slice.order));
        }
    }
    ASSERT_EQ(i, run.slices.size());
    for (size_t rank = 0; rank < run.memory.size(); ++rank) {
        const Json& changes = json.at("memory").at(rank);
        ASSERT_EQ(changes.size(), 3 * run.memory[rank].size());
        int64_t at = 0;
        for (size_t c = 0; c < run.memory[rank].size(); ++c) {
            const RecordedRun::MemoryChange& change = run.memory[rank][c];
            at += changes.at(3 * c).get<int64_t>();
            ASSERT_EQ(at, change.at_ns);
            ASSERT_EQ(changes.at(3 * c + 1), change.purpose);
            ASSERT_EQ(changes.at(3 * c + 2).get<int64_t>() * json.at("bytes").get<int64_t>(),
                      change.bytes);
        }
    }
}

TEST(HtmlTimeline, HoldsEveryRun) {
    std::vector<RecordedRun> runs;
    for (const Kind& kind : every_kind(false)) {
        runs.push_back(run_of(kind.family, kind.mode, 4, 7, name_of(kind)));
    }
    const std::vector<Json> found = runs_in(page_of(runs, "all"));
    ASSERT_EQ(found.size(), runs.size());
    for (size_t i = 0; i < runs.size(); ++i) {
        SCOPED_TRACE(runs[i].title);
        ASSERT_NO_FATAL_FAILURE(expect_holds(found[i], runs[i]));
        const TimelineSummary summary = summarize(runs[i]);
        EXPECT_EQ(found[i].at("makespan"), summary.makespan_ns);
        EXPECT_EQ(found[i].at("largest_span"), summary.largest_span_ns);
        EXPECT_DOUBLE_EQ(found[i].at("bubble"), summary.bubble);
        EXPECT_EQ(found[i].at("busy").size(), 4U);
    }
}

TEST(HtmlTimeline, ColoursPassesByTheirLetterWhateverTheirStage) {
    const std::vector<Json> found =
        runs_in(page_of({run_of("1f1b", VocabMode::one_barrier, 12, 14, "")}, ""));
    const Json& names = found.at(0).at("names");
    for (size_t i = 0; i < names.size(); ++i) {
        const std::string name = names[i];
        const int kind = found[0].at("kinds").at(i);
        const std::string letter =
            name.substr(std::min(name.find_first_not_of("0123456789"), name.size()));
        const std::map<std::string, int> expected{{"F", 0}, {"B", 1}, {"R", 4}, {"E", 5},
                                                  {"G", 6}, {"S", 7}, {"T", 8}};
        if (const auto it = expected.find(letter); it != expected.end()) {
            EXPECT_EQ(kind, it->second) << name;
        } else {
            EXPECT_GE(kind, 9) << name;
        }
    }
}

TEST(HtmlTimeline, ShowsMeasuredCpuTimeOnly) {
    RecordedRun run = run_of("1f1b", VocabMode::none, 2, 3, "");
    EXPECT_FALSE(runs_in(page_of({run}, "")).at(0).contains("cpu"));
    for (RecordedRun::Slice& slice : run.slices) slice.cpu_ns /= 2;
    const Json measured = runs_in(page_of({run}, "")).at(0);
    EXPECT_EQ(measured.at("cpu").at(0), run.slices.at(0).cpu_ns);
}

TEST(HtmlTimeline, NamesThePlacesOfAMeshAlone) {
    RecordedRun run = run_of("1f1b", VocabMode::none, 4, 3, "");
    EXPECT_FALSE(runs_in(page_of({run}, "")).at(0).contains("places"));
    run.mesh = {.pipeline = 2, .data = 2};
    const Json json = runs_in(page_of({run}, "")).at(0);
    EXPECT_EQ(json.at("headings"), (Json{"pipeline rank 0", "", "pipeline rank 1", ""}));
    EXPECT_EQ(json.at("rows"), (Json{"rank 0 r0", "rank 1 r1", "rank 2 r0", "rank 3 r1"}));
    EXPECT_EQ(json.at("places").at(3), "rank 3 (pipeline rank 1, replica 1)");
}

TEST(HtmlTimeline, LoadsNothing) {
    const std::string page =
        page_of({run_of("gpipe", VocabMode::none, 2, 3, "gpipe")}, "self-contained");
    EXPECT_THAT(page, HasSubstr("default-src 'none'"));
    for (const char* way : {"http:", "https:", "//cdn", "@import", "url(", "fetch(", "import(",
                            "XMLHttpRequest", " src="}) {
        EXPECT_THAT(page, Not(HasSubstr(way)));
    }
    // The one link is an icon that is there.
    EXPECT_EQ(page.find("href="), page.rfind("href="));
    EXPECT_THAT(page, HasSubstr("<link rel=\"icon\" href=\"data:,\">"));
    EXPECT_THAT(page, Not(HasSubstr("/* style */")));
    EXPECT_THAT(page, Not(HasSubstr("/* generators */")));
    EXPECT_THAT(page, Not(HasSubstr("/* script */")));
    EXPECT_THAT(page, Not(HasSubstr("{runs}")));
}

TEST(HtmlTimeline, SaysWhatTimesAreMultiplesOf) {
    RecordedRun run = run_of("1f1b", VocabMode::none, 2, 3, "simulated");
    EXPECT_EQ(runs_in(page_of({run}, "")).at(0).at("costs"), "");
    run.costs = "F 12, B 24, V 4";
    EXPECT_EQ(runs_in(page_of({run}, "")).at(0).at("costs"), "F 12, B 24, V 4");
}

TEST(HtmlTimeline, IsNotBrokenByTitles) {
    const std::string evil = "</script><script>alert(1)</script><!-- & \" \xff {runs}";
    const std::string page = page_of({run_of("gpipe", VocabMode::none, 2, 3, evil)}, evil);
    EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
    const std::vector<Json> found = runs_in(page);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_THAT(found[0].at("title").get<std::string>(), HasSubstr("</script><script>alert(1)"));
    EXPECT_THAT(page, HasSubstr("<title>&lt;/script>"));
}

TEST(HtmlTimeline, IsWrittenWithoutRunsAndWithoutSlices) {
    EXPECT_EQ(runs_in(page_of({}, "no run")).size(), 0U);
    RecordedRun nothing;
    nothing.ranks = 2;
    nothing.memory.resize(2);
    EXPECT_EQ(runs_in(page_of({nothing}, "no slice")).at(0).at("tracks").size(), 0U);
}

TEST(HtmlTimeline, RefusesToPutDifferentUnitsOnOneAxis) {
    std::vector<RecordedRun> runs{run_of("gpipe", VocabMode::none, 2, 3, "measured"),
                                  run_of("gpipe", VocabMode::none, 2, 3, "simulated")};
    runs[1].ticks_per_unit = 12;
    EXPECT_THROW(static_cast<void>(page_of(runs, "")), UsageError);
}

TEST(HtmlTimeline, SaysWhichFileCannotBeWritten) {
    try {
        write_html_timeline("/nonexistent/folder/page.html", {}, "");
        FAIL();
    } catch (const OutputFileError& error) {
        EXPECT_THAT(error.what(), HasSubstr("/nonexistent/folder/page.html"));
    }
}

TEST(HtmlTimeline, TakesLessThanSixtyBytesPerSlice) {
    const RecordedRun run = run_of("1f1b", VocabMode::one_barrier, 8, 256, "");
    const size_t empty = page_of({}, "").size();
    EXPECT_LT(page_of({run}, "").size() - empty, 60 * run.slices.size() + 10000);
    EXPECT_LT(empty, 500000U);  // most of it generators
}

}  // namespace
}  // namespace vocabpipe::testing
