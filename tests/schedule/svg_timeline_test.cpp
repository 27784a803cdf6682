// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/svg_timeline.hpp"

#include "src/schedule/pass_colors.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

RecordedRun run_of(const std::string& family, const std::string& title) {
    const Schedule schedule = generated({family, VocabMode::one_barrier, false}, 3, 5);
    const std::vector<Program> programs = lowered(schedule);
    return record(simulate(programs, uneven_costs(schedule)).timeline, programs, title);
}

std::string picture_of(const std::vector<RecordedRun>& runs) {
    const TempFolder folder;
    write_svg_timeline(folder / "picture.svg", runs);
    return read_file(folder / "picture.svg");
}

int64_t count(const std::string& text, const std::string& part) {
    int64_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++found;
    return found;
}

TEST(SvgTimeline, HasABoxForEveryPassThatTakesTimeAndARowForEveryRankOfEveryRun) {
    const std::vector<RecordedRun> runs{run_of("1f1b", "one"), run_of("zb-v", "two")};
    const std::string picture = picture_of(runs);
    int64_t passes = 0;
    for (const RecordedRun& run : runs) {
        passes += std::count_if(run.slices.begin(), run.slices.end(), [](const auto& slice) {
            return slice.lane == Lane::compute && slice.end_ns > slice.begin_ns;
        });
    }
    const int64_t legend = count(picture, "h12v12h-12z");
    EXPECT_EQ(count(picture, "zM") + count(picture, "z\"/>"), passes + legend);
    EXPECT_EQ(count(picture, ">rank "), 6);
    EXPECT_THAT(picture, HasSubstr(">one</text>"));
    EXPECT_THAT(picture, HasSubstr(">two</text>"));
}

TEST(SvgTimeline, HasOtherColorsForLaterStagesOfARankAlone) {
    const std::string one = picture_of({run_of("1f1b", "one")});
    const std::string two = picture_of({run_of("zb-v", "two")});
    for (const std::string_view pass : {"F", "W"}) {
        const PassColor& of = kPassColors[pass_color(pass)];
        const std::string fill = "<path fill=\"" + std::string(of.fill) + "\" d=\"M";
        const std::string later = "<path fill=\"" + std::string(of.later) + "\" d=\"M";
        EXPECT_EQ(count(one, later), 0) << pass;
        EXPECT_GT(count(two, fill), 0) << pass;
        EXPECT_GT(count(two, later), 0) << pass;
    }
}

TEST(SvgTimeline, GroupsTheRanksOfAMeshByTheirPlaceInThePipeline) {
    RecordedRun run = run_of("1f1b", "one");
    run.mesh = {.pipeline = 1, .tensor = 3};
    const std::string picture = picture_of({run});
    EXPECT_EQ(count(picture, ">pipeline rank 0</text>"), 1);
    EXPECT_THAT(picture, HasSubstr(">rank 0 t0</text>"));
    EXPECT_THAT(picture, HasSubstr(">rank 2 t2</text>"));
    run.mesh = {.pipeline = 1, .context = 3};
    EXPECT_THAT(picture_of({run}), HasSubstr(">rank 2 c2</text>"));
}

// 1908 units on 954 pixels behind 92: two units are a pixel. Rows of two ranks of one place in the
// pipeline, each kind of box and label, and what is not drawn: other lanes and what takes no time.
TEST(SvgTimeline, IsWrittenAsDerivedByHand) {
    RecordedRun run;
    run.title = "two";
    run.ranks = 2;
    run.mesh = {.pipeline = 1, .tensor = 2};
    run.memory.resize(2);
    run.ticks_per_unit = 1;
    run.costs = "F 1";
    run.names = {"0F", "1F", "0B", "AdamW"};
    const auto add = [&](uint16_t rank, Lane lane, int64_t begin, int64_t end, uint32_t name,
                         uint32_t number) {
        run.slices.push_back({.begin_ns = begin,
                              .end_ns = end,
                              .cpu_ns = end - begin,
                              .name = name,
                              .number = number,
                              .rank = rank,
                              .lane = lane});
    };
    add(0, Lane::compute, 0, 200, 0, 0);
    add(0, Lane::compute, 200, 220, 0, 12);                    // smaller digits
    add(0, Lane::compute, 220, 224, 2, 3);                     // no room for them
    add(0, Lane::compute, 224, 225, 2, 4);                     // narrower than its gap
    add(0, Lane::compute, 400, 1000, 1, 0);                    // of a later stage
    add(0, Lane::compute, 1000, 1010, 3, RecordedRun::kNone);  // without a number
    add(1, Lane::compute, 0, 0, 2, 7);
    add(1, Lane::compute, 16, 216, 0, 1);
    add(1, Lane::forward, 216, 400, 3, 1);
    add(1, Lane::compute, 1500, 1908, 2, 1);
    const std::string picture = picture_of({run});
    EXPECT_EQ(picture.substr(0, picture.find('\n')),
              R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1048 142" width="1048" )"
              R"(font-family="sans-serif" font-size="11">)");
    EXPECT_EQ(picture.substr(picture.find("<rect")),
              R"(<rect width="100%" height="100%" class="back"/>
<text x="0" y="14" class="b">two</text>
<text x="1046" y="14" class="e">makespan 1908 units, bubble 62.2 %</text>
<path class="line" d="M92 20V74M192 20V74M292 20V74M392 20V74M492 20V74M592 20V74M692 20V74)"
              R"(M792 20V74M892 20V74M992 20V74"/>
<text x="0" y="32" class="soft">pipeline rank 0</text>
<text x="0" y="50">rank 0 t0</text>
<path fill="#4878d0" d="M92 38h99.4v16h-99.4zM192 38h9.4v16h-9.4z"/>
<path fill="#8eabe2" d="M292 38h299.4v16h-299.4z"/>
<path fill="#ee854a" d="M202 38h1.4v16h-1.4zM204 38h0.3v16h-0.3z"/>
<path fill="#8c613c" d="M592 38h4.4v16h-4.4z"/>
<text x="142" y="50" class="w">0</text>
<text x="197" y="49.3" class="w" font-size="8.5">12</text>
<text x="442" y="50" class="k">0</text>
<text x="0" y="68">rank 1 t1</text>
<path fill="#4878d0" d="M100 56h99.4v16h-99.4z"/>
<path fill="#ee854a" d="M842 56h203.4v16h-203.4z"/>
<text x="150" y="68" class="w">1</text>
<text x="944" y="68" class="k">1</text>
<path class="line" d="M92 76h954M92 76v4M192 76v4M292 76v4M392 76v4M492 76v4M592 76v4M692 76v4)"
              R"(M792 76v4M892 76v4M992 76v4"/>
<text x="92" y="91" class="soft m">0</text>
<text x="192" y="91" class="soft m">200</text>
<text x="292" y="91" class="soft m">400</text>
<text x="392" y="91" class="soft m">600</text>
<text x="492" y="91" class="soft m">800</text>
<text x="592" y="91" class="soft m">1000</text>
<text x="692" y="91" class="soft m">1200</text>
<text x="792" y="91" class="soft m">1400</text>
<text x="892" y="91" class="soft m">1600</text>
<text x="992" y="91" class="soft m">1800</text>
<text x="1046" y="91" class="soft e">units</text>
<text x="92" y="112" class="soft">costs in units: F 1</text>
<path fill="#4878d0" d="M92 122h12v12h-12z"/>
<text x="108" y="132">F forward</text>
<path fill="#ee854a" d="M176.4 122h12v12h-12z"/>
<text x="192.4" y="132">B backward</text>
<path fill="#8c613c" d="M266.4 122h12v12h-12z"/>
<text x="282.4" y="132">end of step</text>
</svg>
)");
}

TEST(SvgTimeline, IsTheSameForTheSameRuns) {
    EXPECT_EQ(picture_of({run_of("v-half", "a")}), picture_of({run_of("v-half", "a")}));
}

TEST(SvgTimeline, KeepsTitlesFromBeingMarkup) {
    const std::string picture = picture_of({run_of("gpipe", "a<b & \x01\xff")});
    EXPECT_THAT(picture, HasSubstr("a&lt;b &amp; ??"));
}

/// One rank, F and B of so many microbatches, 12 and 24 units each.
RecordedRun units(uint32_t microbatches) {
    RecordedRun run;
    run.title = "units";
    run.ranks = 1;
    run.memory.resize(1);
    run.ticks_per_unit = 12;
    run.costs = "F 12, B 24, V 0";
    run.names = {"0F", "0B"};
    for (uint32_t i = 0; i < 2 * microbatches; ++i) {
        const int64_t begin = int64_t{12} * 36 * (i / 2) + (i % 2) * int64_t{144};
        const int64_t end = begin + (i % 2 == 0 ? 144 : 288);
        run.slices.push_back({.begin_ns = begin,
                              .end_ns = end,
                              .cpu_ns = end - begin,
                              .name = i % 2,
                              .number = i / 2});
    }
    return run;
}

TEST(SvgTimeline, HasATimeAxisMakespanCostsAndALegendInWords) {
    const std::string picture = picture_of({units(5)});
    // 180 units: a number every 20.
    for (const char* part : {">makespan 180 units, bubble 0.0 %</text>", ">0</text>", ">20</text>",
                             ">160</text>", ">units</text>", ">F forward</text>",
                             ">B backward</text>", ">costs in units: F 12, B 24, V 0</text>"}) {
        EXPECT_THAT(picture, HasSubstr(part));
    }
    EXPECT_EQ(count(picture, ">F</text>"), 0);
    EXPECT_EQ(count(picture, ">180</text>"), 1) << "a number at the very end";
    EXPECT_EQ(count(picture, ">200</text>"), 0) << "and none beyond";
    RecordedRun measured = units(5);
    measured.ticks_per_unit = 0;
    measured.costs.clear();
    for (RecordedRun::Slice& slice : measured.slices) {
        slice.begin_ns *= 1000;
        slice.end_ns *= 1000;
    }
    const std::string times = picture_of({measured});
    EXPECT_THAT(times, HasSubstr(">makespan 2.16 ms, bubble"));
    EXPECT_THAT(times, HasSubstr(">1.8</text>"));
    EXPECT_THAT(times, HasSubstr(">ms</text>"));
    EXPECT_EQ(count(times, "costs"), 0);
}

TEST(SvgTimeline, SaysEqualCostsOnce) {
    EXPECT_EQ(count(picture_of({units(2), units(3)}), ">costs in units"), 1);
    RecordedRun other = units(3);
    other.costs = "F 10, B 20, V 0";
    EXPECT_EQ(count(picture_of({units(2), other}), ">costs in units"), 2);
}

TEST(SvgTimeline, HasTheTitleThatIsGiven) {
    const TempFolder folder;
    const std::vector<RecordedRun> runs{units(2)};
    write_svg_timeline(folder / "picture.svg", runs, {.title = "mine & <yours>"});
    const std::string picture = read_file(folder / "picture.svg");
    EXPECT_THAT(picture, HasSubstr("<title>mine &amp; &lt;yours></title>"));
    EXPECT_THAT(picture, HasSubstr(" font-size=\"14\">mine &amp; &lt;yours></text>"));
    EXPECT_EQ(count(picture_of(runs), "<title>"), 0);
}

/// The only line of the critical path, without the sample in the legend.
std::string path_of(const RecordedRun& run) {
    const TempFolder folder;
    write_svg_timeline(folder / "picture.svg", std::vector<RecordedRun>{run},
                       {.critical_path = true});
    const std::string picture = read_file(folder / "picture.svg");
    const std::string line = "stroke-width=\"2.4\" d=\"";
    EXPECT_EQ(count(picture, line), 2);
    EXPECT_EQ(count(picture, ">critical path</text>"), 1);
    const size_t at = picture.find(line) + line.size();
    return picture.substr(at, picture.find('"', at) - at);
}

TEST(SvgTimeline, DrawsTheCriticalPathFromPassToPass) {
    // 1F1B of two ranks and two microbatches, F = 1, B = 2: down with the first F, up with the last
    // B.
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 2, 2);
    const TableCosts costs = TableCosts::uniform(2, 2, 1000, 2000, 0);
    const std::vector<Program> programs = lowered(schedule);
    const RecordedRun run = record(simulate(programs, costs).timeline, programs, "1f1b");
    ASSERT_EQ(summarize(run).makespan_ns, 9000);
    // 954 pixels of 9 units behind 46 pixels; rank 1 is 18 pixels below rank 0.
    EXPECT_EQ(
        path_of(run),
        "M46 35L152 35L152 53L258 53L258 53L470 53L470 53L576 53L576 53L788 53L788 35L1000 35");
    EXPECT_EQ(count(picture_of({run}), "stroke-width"), 0);
}

TEST(SvgTimeline, IsReadableOnDarkPages) {
    const std::string picture = picture_of({units(2)});
    EXPECT_THAT(picture, HasSubstr("prefers-color-scheme: dark"));
    EXPECT_THAT(picture, HasSubstr("class=\"back\""));
    EXPECT_EQ(count(picture, "opacity"), 0);  // what is behind does not shine through
    EXPECT_EQ(count(picture, "fill=\"#fff\""), 0);
}

TEST(SvgTimeline, NumbersPassesBeyondTheTenthAsTheFirstOnes) {
    // F is 954 / (3 x 40) = 8 pixels wide, a digit of the usual size 6.2.
    const std::string picture = picture_of({units(40)});
    for (const int number : {0, 9, 10, 39}) {
        const auto labels =
            count(picture, "class=\"w\">" + std::to_string(number) + "</text>") +
            count(picture, "class=\"w\" font-size=\"7\">" + std::to_string(number) + "</text>");
        EXPECT_EQ(labels, 1) << number;
    }
}

TEST(SvgTimeline, RefusesRunsInDifferentUnits) {
    std::vector<RecordedRun> runs{run_of("gpipe", "a"), run_of("gpipe", "b")};
    runs[1].ticks_per_unit = 12;
    EXPECT_THROW(write_svg_timeline("/dev/null", runs), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
