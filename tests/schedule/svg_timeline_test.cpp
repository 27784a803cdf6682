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
