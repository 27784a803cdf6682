// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/svg_timeline.hpp"

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

TEST(SvgTimeline, GroupsTheRanksOfAMeshByTheirPlaceInThePipeline) {
    RecordedRun run = run_of("1f1b", "one");
    run.mesh = {.pipeline = 1, .tensor = 3};
    const std::string picture = picture_of({run});
    EXPECT_EQ(count(picture, ">pipeline rank 0</text>"), 1);
    EXPECT_THAT(picture, HasSubstr(">rank 0 t0</text>"));
    EXPECT_THAT(picture, HasSubstr(">rank 2 t2</text>"));
}

TEST(SvgTimeline, IsTheSameForTheSameRuns) {
    EXPECT_EQ(picture_of({run_of("v-half", "a")}), picture_of({run_of("v-half", "a")}));
}

TEST(SvgTimeline, KeepsTitlesFromBeingMarkup) {
    const std::string picture = picture_of({run_of("gpipe", "a<b & \x01\xff")});
    EXPECT_THAT(picture, HasSubstr("a&lt;b &amp; ??"));
}

TEST(SvgTimeline, RefusesRunsInDifferentUnits) {
    std::vector<RecordedRun> runs{run_of("gpipe", "a"), run_of("gpipe", "b")};
    runs[1].ticks_per_unit = 12;
    EXPECT_THROW(write_svg_timeline("/dev/null", runs), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
