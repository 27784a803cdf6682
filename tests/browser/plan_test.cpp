// SPDX-License-Identifier: Apache-2.0
// The page of vocabpipe plan in a real browser.
#include "tests/browser/browser.hpp"
#include "tests/plan/plan_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class PlanPage : public Browser {
protected:
    Plan plan() {
        PlanOptions options = small_plan();
        options.schedules = {"1f1b", "zb-v"};
        options.vocab_modes = {VocabMode::none, VocabMode::one_barrier};
        options.model.name = "a model with a name that is longer than a narrow window is wide";
        return make_plan(options);
    }
};

TEST_F(PlanPage, IsNoWiderThanItsWindowAndTakesTheColorsOfTheSystem) {
    const std::string page = plan_html(plan());
    const std::string script = R"(
        const root = document.documentElement;
        return {wider: Math.max(root.scrollWidth, document.body.scrollWidth) - innerWidth, width: innerWidth,
                back: getComputedStyle(document.body).backgroundColor,
                viewport: document.querySelector('meta[name=viewport]').content};)";
    for (const char* size : {"1400,900", "500,900"}) {
        size_ = size;
        const Json light = asked(page, script);
        EXPECT_LE(light.at("wider"), 0) << size;
        EXPECT_EQ(light.at("back"), "rgb(255, 255, 255)");
        EXPECT_THAT(light.at("viewport"), HasSubstr("width=device-width"));
        const std::string dark = open("asked.html",
                                      "--blink-settings=preferredColorScheme=0 "
                                      "--dump-dom")
                                     .output;
        EXPECT_THAT(dark, HasSubstr("rgb(20, 23, 29)")) << size;
    }
}

TEST_F(PlanPage, ShowsTheRowsThatFitTheFilter) {
    const Plan all = plan();
    const Json shown = asked(plan_html(all), R"(
        const field = document.getElementById('filter'), counts = [];
        for (const words of ['zb-v', 'ZB one_barrier', 'schedule=1f1b', 'p=4', 'p<4', 'peak>=0', 'peak<0', 'zb-v p=1',
                             'spare>0', '']) {
          field.value = words;
          field.dispatchEvent(new Event('input'));
          counts.push(document.getElementById('rows').tBodies[0].rows.length);
        }
        field.value = 'zb-v';
        field.dispatchEvent(new Event('input'));
        const told = document.getElementById('shown').textContent;
        document.querySelector('#rows button').click();
        const sorted = document.getElementById('rows').tBodies[0].rows.length;
        return {counts, told, sorted, cell: document.querySelector('#rows td').textContent};)");
    const auto count = [&](const auto& wanted) {
        return std::count_if(all.rows.begin(), all.rows.end(), wanted);
    };
    const auto zb = count([](const auto& row) { return row.candidate.schedule == "zb-v"; });
    const Json& counts = shown.at("counts");
    ASSERT_GT(zb, 0);
    EXPECT_EQ(counts.at(0), zb);
    EXPECT_EQ(counts.at(1), zb / 2);
    EXPECT_EQ(counts.at(2), std::ssize(all.rows) - zb);
    const auto four = count([](const auto& row) { return row.candidate.mesh.pipeline == 4; });
    EXPECT_EQ(counts.at(3), four);
    EXPECT_EQ(counts.at(4), std::ssize(all.rows) - four);
    EXPECT_EQ(counts.at(5), all.rows.size());
    EXPECT_EQ(counts.at(6), 0);
    EXPECT_EQ(counts.at(7), 0);  // zb-v needs two ranks
    EXPECT_EQ(counts.at(8), count([](const auto& row) { return row.spare_bytes > 0; }));
    EXPECT_EQ(counts.at(9), all.rows.size());
    EXPECT_EQ(shown.at("told"),
              std::to_string(zb) + " of " + std::to_string(all.rows.size()) + " rows");
    EXPECT_EQ(shown.at("sorted"), zb);  // sorting keeps the filter
    EXPECT_EQ(shown.at("cell"), "zb-v");
}

TEST_F(PlanPage, KeepsBarsLongWhereOneRowNeedsFarMore) {
    const Json scales = asked(plan_html(plan()), R"(
        const many = Array.from({length: 19}, (_, i) => 10 + i % 3);
        const widths = [...document.querySelectorAll('#rows svg')].map((svg) =>
            Math.max(...[...svg.querySelectorAll('rect')].map((rect) => Number(rect.getAttribute('x')) + Number(rect.getAttribute('width')))));
        return {outlier: scaleOf([...many, 4000], 900), near: scaleOf([...many, 4000], 16), close: scaleOf([...many, 20], 900), one: scaleOf([5], 80),
                none: scaleOf([], 80), most: Math.max(...widths)};)");
    EXPECT_NEAR(scales.at("outlier"), 12 * 1.05, 1e-9);
    EXPECT_NEAR(scales.at("near"), 16 * 1.05, 1e-9);   // with the mark of the memory
    EXPECT_NEAR(scales.at("close"), 20 * 1.05, 1e-9);  // not far more
    EXPECT_NEAR(scales.at("one"), 5 * 1.05, 1e-9);
    EXPECT_NEAR(scales.at("none"), 80 * 1.05, 1e-9);
    EXPECT_LE(scales.at("most"), 320);
}

}  // namespace
}  // namespace vocabpipe::testing
