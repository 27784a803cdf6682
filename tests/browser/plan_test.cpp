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

// Chromium has no window as narrow as a telephone, but a frame may be.
TEST_F(PlanPage, IsNoWiderThanATelephone) {
    write_file(folder_ / "page.html", plan_html(plan()));
    const Json frame =
        asked("<iframe src='page.html' style='width: 400px; height: 800px'></iframe>",
              R"(
        await new Promise((resolve) => setTimeout(resolve, 3000));
        const inner = document.querySelector('iframe').contentWindow, root = inner.document.documentElement;
        const right = (id) => inner.document.getElementById(id).getBoundingClientRect().right;
        return {width: inner.innerWidth, wider: root.scrollWidth - inner.innerWidth,
                right: Math.max(...['chart', 'detail', 'filters', 'scroll'].map(right)),
                points: inner.document.querySelectorAll('.point').length};)",
              "--allow-file-access-from-files ");
    EXPECT_EQ(frame.at("width"), 400);
    EXPECT_LE(frame.at("wider"), 0);
    EXPECT_LE(frame.at("right"), 400);
    EXPECT_GT(frame.at("points"), 3);
}

TEST_F(PlanPage, ShowsTheRowsThatFitTheFilters) {
    const Plan all = plan();
    const Json shown = asked(plan_html(all), R"(
        const rows = () => document.getElementById('rows').tBodies[0].rows.length;
        const both = () => [rows(), document.querySelectorAll('.point').length];
        const set = (id, value) => {
          const field = document.getElementById(id);
          field.value = value;
          field.dispatchEvent(new Event('input', {bubbles: true}));
          return both();
        };
        const whole = both();
        const zb = set('choose-schedule', 'zb-v'), told = document.getElementById('shown').textContent;
        const of = document.querySelector('#detail h3').textContent;
        document.querySelector('#rows button').click();
        const sorted = rows();
        const mode = set('choose-mode', 'one_barrier');
        const none = set('filter', 'p<4'), empty = document.getElementById('chart').textContent;
        document.getElementById('reset').click();
        return {whole, zb, told, of, sorted, mode, none, empty, reset: both(),
                hidden: document.getElementById('reset').hidden,
                choices: [...document.querySelectorAll('#filters select')].map((select) => select.id)};)");
    const auto zb = std::count_if(all.rows.begin(), all.rows.end(),
                                  [](const auto& row) { return row.candidate.schedule == "zb-v"; });
    const auto two = [](std::ptrdiff_t count) { return Json{count, count}; };
    ASSERT_GT(zb, 0);
    EXPECT_EQ(shown.at("whole"), two(std::ssize(all.rows)));
    EXPECT_EQ(shown.at("zb"), two(zb));
    EXPECT_EQ(shown.at("told"),
              std::to_string(zb) + " of " + std::to_string(all.rows.size()) + " rows");
    EXPECT_THAT(shown.at("of").get<std::string>(), ::testing::StartsWith("zb-v "));
    EXPECT_EQ(shown.at("sorted"), zb);  // sorting keeps the filter
    EXPECT_EQ(shown.at("mode"), two(zb / 2));
    EXPECT_EQ(shown.at("none"), two(0));
    EXPECT_EQ(shown.at("empty"), "no row is left");
    EXPECT_EQ(shown.at("reset"), two(std::ssize(all.rows)));
    EXPECT_EQ(shown.at("hidden"), true);
    // Only what rows differ in.
    EXPECT_EQ(shown.at("choices"), (Json{"choose-schedule", "choose-mode"}));
}

TEST_F(PlanPage, LeadsFromAPointToItsRowAndBack) {
    const Json led = asked(plan_html(plan()), R"(
        const rows = [...document.getElementById('rows').tBodies[0].rows];
        const is = (row, name) => [rows[row].classList.contains(name), points.get(row).classList.contains(name)];
        const first = is(0, 'on');
        points.get(2).dispatchEvent(new PointerEvent('pointerenter', {clientX: 300, clientY: 300}));
        const hovered = is(2, 'marked'), tip = document.getElementById('tip').textContent;
        points.get(2).dispatchEvent(new PointerEvent('pointerleave'));
        const left = is(2, 'marked'), hidden = document.getElementById('tip').hidden;
        rows[1].dispatchEvent(new PointerEvent('pointerenter'));
        const back = is(1, 'marked');
        points.get(3).dispatchEvent(new MouseEvent('click'));
        const clicked = is(3, 'on'), before = is(0, 'on'), detail = document.querySelector('#detail h3').textContent;
        rows[1].click();
        return {first, hovered, tip, left, hidden, back, clicked, before, detail, row: is(1, 'on'), name: nameOf(plan.rows[3]),
                tipName: nameOf(plan.rows[2]), ranks: document.querySelectorAll('#detail .rank').length,
                line: document.querySelectorAll('.frontier').length};)");
    const Json yes{true, true};
    const Json no{false, false};
    EXPECT_EQ(led.at("first"), yes);
    EXPECT_EQ(led.at("hovered"), yes);
    EXPECT_THAT(led.at("tip").get<std::string>(),
                ::testing::StartsWith(led.at("tipName").get<std::string>()));
    EXPECT_EQ(led.at("left"), no);
    EXPECT_EQ(led.at("hidden"), true);
    EXPECT_EQ(led.at("back"), yes);
    EXPECT_EQ(led.at("clicked"), yes);
    EXPECT_EQ(led.at("before"), no);
    EXPECT_EQ(led.at("detail"), led.at("name"));
    EXPECT_EQ(led.at("row"), yes);
    EXPECT_EQ(led.at("ranks"), 4);
    EXPECT_EQ(led.at("line"), 1);
}

TEST_F(PlanPage, DrawsTheTimelineOfARow) {
    const Json drawn = asked(plan_html(plan()), R"(
        const icons = [...document.querySelectorAll('#rows .icon')];
        icons[0].click();
        const frame = document.querySelector('#timeline-view iframe');
        await new Promise((resolve) => setTimeout(resolve, 3000));
        const inner = frame.contentDocument, canvas = inner.querySelector('canvas');
        const open = document.getElementById('timeline-view').open;
        document.getElementById('timeline-close').click();
        select(plan.rows[1], 'table');
        document.querySelector('#detail button').click();
        await new Promise((resolve) => setTimeout(resolve, 3000));
        return {icons: icons.length, rows: plan.rows.length, cards: inner.getElementById('cards').textContent, drawn: canvas.width > 300, open,
                frames: document.querySelectorAll('iframe').length,
                second: document.querySelector('iframe').contentDocument.getElementById('cards').textContent,
                name: plan.rows.slice(0, 2).map((row) => `${row.schedule} ${row.vocab_mode}`)};)");
    EXPECT_THAT(drawn.at("cards").get<std::string>(),
                ::testing::StartsWith(drawn.at("name").at(0).get<std::string>()));
    EXPECT_THAT(drawn.at("second").get<std::string>(),
                ::testing::StartsWith(drawn.at("name").at(1).get<std::string>()));
    EXPECT_EQ(drawn.at("drawn"), true);
    EXPECT_EQ(drawn.at("icons"), std::min<int>(10, drawn.at("rows")));
    EXPECT_EQ(drawn.at("open"), true);
    EXPECT_EQ(drawn.at("frames"), 1);
}

TEST_F(PlanPage, ScalesBarsToTheMemoryOfAGpu) {
    const Json bars = asked(plan_html(plan()), R"(
        const at = (svg) => ({limit: Number(svg.querySelector('.limit').getAttribute('x')) + 1,
          most: Math.max(...[...svg.querySelectorAll('rect:not(.limit)')].map(
              (rect) => Number(rect.getAttribute('x')) + Number(rect.getAttribute('width')))),
          cut: svg.querySelector('.cut') !== null});
        const memory = (share) => ({...plan.rows[0].worst_rank, weights_bytes: share * plan.memory_gib * 2 ** 30,
          gradients_bytes: 0, optimizer_bytes: 0, activations_bytes: 0, vocabulary_bytes: 0, communication_bytes: 0,
          reserve_bytes: 0});
        return {half: at(bar(memory(0.5))), much: at(bar(memory(20))),
                rows: [...document.querySelectorAll('#rows .bar svg')].map(at).map(({limit}) => limit)};)");
    EXPECT_NEAR(bars.at("half").at("limit").get<double>(), 256, 1e-9);
    EXPECT_NEAR(bars.at("half").at("most").get<double>(), 128, 1e-9);
    EXPECT_EQ(bars.at("half").at("cut"), false);
    EXPECT_NEAR(bars.at("much").at("most").get<double>(), 320, 1e-9);
    EXPECT_EQ(bars.at("much").at("cut"), true);
    for (const Json& limit : bars.at("rows")) EXPECT_NEAR(limit.get<double>(), 256, 1e-9);
}

TEST_F(PlanPage, ShowsTheCommandOfARowAndCopiesIt) {
    std::string page = plan_html(plan());
    const std::string command = R"("command": "mpirun -np 4 train_gpt --schedule 1f1b", )";
    for (size_t at = page.find("\"fits\""); at != std::string::npos;
         at = page.find("\"fits\"", at + command.size() + 1)) {
        page.insert(at, command);
    }
    const Json shown = asked(page, R"(
        let copied = null;
        Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (words) => { copied = words; }}});
        const button = [...document.querySelectorAll('#detail button')].find((one) => one.textContent === 'Copy command');
        button.click();
        await new Promise((resolve) => setTimeout(resolve, 100));
        return {text: document.querySelector('#detail .command').textContent, copied, told: button.textContent};)");
    EXPECT_EQ(shown.at("text"), "mpirun -np 4 train_gpt --schedule 1f1b");
    EXPECT_EQ(shown.at("copied"), shown.at("text"));
    EXPECT_EQ(shown.at("told"), "Copied");
}

}  // namespace
}  // namespace vocabpipe::testing
