// SPDX-License-Identifier: Apache-2.0
// The timeline page in a real browser: Chromium without a window. Only the full run has one;
// the others skip these tests.
#include "tests/tool/run_program.hpp"
#include "vocabpipe/html_timeline.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::TempFolder;
using Json = nlohmann::json;

RecordedRun run_of(VocabMode mode, int ranks, int microbatches) {
    ScheduleOptions options{
        .ranks = ranks, .microbatches = microbatches, .vocab_mode = mode, .vocab_size = 32000};
    options.costs = PassCosts::uniform(1'000'000, 2'000'000, 300'000);
    const Schedule schedule = make_schedule("1f1b", options);
    TableCosts costs = TableCosts::uniform(ranks, ranks, 1'000'000, 2'000'000, 300'000);
    costs.latency_ns = 10'000;
    StepSizes sizes{.tokens = 2048, .hidden = 1024};
    sizes.stages.assign(static_cast<size_t>(ranks), {.saved = 64 << 20});
    for (int rank = 0; rank < ranks; ++rank) {
        sizes.shards.push_back({.exp_logits = 2048 * 4 * schedule.output.rows(rank)});
    }
    const std::vector<Program> programs = lower(schedule, sizes, costs);
    return record(simulate(programs, costs).timeline, programs,
                  "1f1b " + std::string(to_string(mode)));
}

std::string base64(const std::string& bytes) {
    constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    uint32_t bits = 0;
    int count = 0;
    for (const char c : bytes) {
        bits = bits << 8 | static_cast<unsigned char>(c);
        for (count += 8; count >= 6; count -= 6) text += kDigits[bits >> (count - 6) & 63];
    }
    if (count > 0) text += kDigits[bits << (6 - count) & 63];
    while (text.size() % 4 != 0) text += '=';
    return text;
}

class Browser : public ::testing::Test {
protected:
    void SetUp() override {
        if (std::getenv("VOCABPIPE_FULL") == nullptr) {
            GTEST_SKIP() << "only in the full run, or with VOCABPIPE_FULL=1";
        }
        ASSERT_EQ(testing::run_shell("command -v chromium").exit_code, 0)
            << "chromium is not installed; examples/install_packages.sh --full installs it";
    }

    /// Opens `page`, a file of the folder, with further flags.
    Outcome open(const std::string& page, const std::string& flags) {
        const Outcome outcome = testing::run_shell(
            "cd '" + (folder_ / "") + "' && HOME=\"$PWD\" timeout 100 chromium --headless " +
            "--no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars " +
            "--window-size=1500,950 --user-data-dir=\"$PWD/profile\" --enable-logging=stderr " +
            flags + " \"file://$PWD/" + page + "\"");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        EXPECT_THAT(outcome.error, Not(HasSubstr("CONSOLE"))) << "the page reports something";
        return outcome;
    }

    /// Writes a copy of the page with a script at its end, opens it, and returns what the script
    /// left in `document.title` as JSON.
    Json asked(const std::string& page, const std::string& script) {
        testing::write_file(folder_ / "asked.html",
                            page + "<script>\nfunction ask() {" + script +
                                "}\ndocument.title = JSON.stringify(ask());\n</script>");
        const std::string dom = open("asked.html", "--dump-dom").output;
        const size_t begin = dom.find("<title>") + 7;
        return Json::parse(dom.substr(begin, dom.find("</title>") - begin));
    }

    std::string written(const std::vector<RecordedRun>& runs) {
        write_html_timeline(folder_ / "page.html", runs, "a title");
        return testing::read_file(folder_ / "page.html");
    }

    /// How many colours a screenshot has, and the part of it that has the commonest one.
    Json screenshot(const std::string& hash) {
        open("page.html" + hash, "--virtual-time-budget=3000 --screenshot=\"$PWD/shot.png\"");
        // Chromium itself reads the PNG.
        testing::write_file(folder_ / "colours.html",
                            R"(<title>0</title><img id="shot" src="data:image/png;base64,)" +
                                base64(testing::read_file(folder_ / "shot.png")) + R"("><script>
onload = () => {
  const shot = document.getElementById('shot'), canvas = document.createElement('canvas');
  canvas.width = shot.width; canvas.height = shot.height;
  const context = canvas.getContext('2d');
  context.drawImage(shot, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, shot.width, shot.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  document.title = JSON.stringify({width: shot.width, height: shot.height, colours: counts.size,
    most: Math.max(...counts.values()) / pixels.length,
    forward: counts.get(0xffd07848) || 0, backward: counts.get(0xff4a85ee) || 0});
};
</script>)");
        const std::string dom =
            open("colours.html", "--virtual-time-budget=3000 --dump-dom").output;
        const size_t begin = dom.find("<title>") + 7;
        return Json::parse(dom.substr(begin, dom.find("</title>") - begin));
    }

    TempFolder folder_;
};

TEST_F(Browser, OpensAHundredThousandPassesAndStaysUsable) {
    const RecordedRun run = run_of(VocabMode::one_barrier, 32, 540);
    ASSERT_GE(std::count_if(run.slices.begin(), run.slices.end(),
                            [](const auto& slice) { return slice.lane == Lane::compute; }),
              100'000);
    const Json times = asked(written({run}), R"(
        const took = (work) => { const begin = performance.now(); work(); return performance.now() - begin; };
        const opened = performance.now();
        const whole = took(drawNow);
        const zooms = [];
        for (let i = 0; i < 20; ++i) zooms.push(took(() => { zoom(0.6, 700); drawNow(); }));
        fit();
        const hovers = [];
        for (let y = 30; y < 700; y += 10) hovers.push(took(() => hover({offsetX: 800, offsetY: y, clientX: 800, clientY: y})));
        const critical = took(() => { toggleCritical(); drawNow(); });
        return {passes: runs[0].passes, opened, whole, zoom: Math.max(...zooms), hover: Math.max(...hovers.slice(1)),
                critical, requests: performance.getEntriesByType('resource').length};)");
    std::printf("%s\n", times.dump().c_str());
    EXPECT_GE(times.at("passes"), 100'000);
    EXPECT_EQ(times.at("requests"), 0);
    // What docs/timelines.md says, with room for a machine that is busy: ms.
    EXPECT_LT(times.at("opened"), 6000);
    EXPECT_LT(times.at("whole"), 400);
    EXPECT_LT(times.at("zoom"), 400);
    EXPECT_LT(times.at("hover"), 400);
    EXPECT_LT(times.at("critical"), 2000);
    const Json shot = screenshot("");
    EXPECT_EQ(shot.at("width"), 1500);
    EXPECT_GT(shot.at("colours"), 30);
    EXPECT_LT(shot.at("most"), 0.9);
}

TEST_F(Browser, DrawsEveryPassOfASmallRunInItsColour) {
    static_cast<void>(written({run_of(VocabMode::none, 4, 8)}));
    const Json shot = screenshot("");
    // F takes a third of B's time.
    EXPECT_GT(shot.at("forward"), 2000);
    EXPECT_GT(shot.at("backward"), 1.5 * shot.at("forward").get<double>());
    // Within the first nanoseconds there is no backward.
    const Json empty = screenshot("#from=1&to=2");
    EXPECT_LT(empty.at("backward"), 200);  // the legend's
    static_cast<void>(written({}));
    EXPECT_GT(screenshot("").at("most"), 0.8);
}

TEST_F(Browser, FindsWhatIsUnderThePointerAndWhyItBeganThen) {
    const std::string page =
        written({run_of(VocabMode::none, 4, 8), run_of(VocabMode::one_barrier, 4, 8)});
    const Json found = asked(page, R"(
        let checked = 0, wrong = 0;
        for (const row of painter.layout.rows) {
          if (row.type !== 'track' || !row.track) continue;
          for (let i = row.track.first; i < row.track.last; ++i) {
            const run = row.run, at = (run.begin[i] + run.end[i]) / 2;
            if (run.end[i] === run.begin[i]) continue;
            ++checked;
            const x = kGutter + (at - view.from) / (view.to - view.from) * (sizeNow().width - kGutter);
            const there = hit(x, kAxis + row.y - view.top + 3);
            if (there === null || there.run !== run || there.slice !== i) ++wrong;
          }
        }
        // Every chain leads back in time, and ends where a rank was busy or the step began.
        let chains = 0, odd = 0;
        for (const run of runs) for (let i = 0; i < run.count; ++i) {
          const chain = chainOf(run, i, false);
          ++chains;
          for (let k = 1; k < chain.length; ++k) if (run.begin[chain[k].slice] > run.begin[chain[k - 1].slice]) ++odd;
        }
        const path = criticalPath(runs[0]);
        const ends = runs[0].begin[path[path.length - 1].slice];
        const first = runs[0].tracks.find((track) => track.rank === 3 && track.lane === 0).first;
        select(runs[0], first);
        return {checked, wrong, chains, odd, ends, why: document.getElementById('why').textContent};)");
    EXPECT_GT(found.at("checked"), 100);
    EXPECT_EQ(found.at("wrong"), 0);
    EXPECT_GT(found.at("chains"), 500);
    EXPECT_EQ(found.at("odd"), 0);
    EXPECT_EQ(found.at("ends"), 0);
    const std::string why = found.at("why");
    EXPECT_THAT(why, HasSubstr("Why 3F0 on rank 3 began at"));
    EXPECT_THAT(why, HasSubstr("waited for receive from rank 2"));
    EXPECT_THAT(why, HasSubstr("2F0"));
}

TEST_F(Browser, SurvivesEveryKeyAndEmptyRuns) {
    RecordedRun nothing;
    nothing.ranks = 2;
    nothing.memory.resize(2);
    nothing.title = "</script><b>nothing";
    const Json keys = asked(written({nothing, run_of(VocabMode::one_barrier, 2, 3)}), R"(
        let count = 0;
        for (const key of Object.keys(kKeys)) for (let i = 0; i < 3; ++i, ++count) { kKeys[key](); drawNow(); }
        for (let i = 0; i < 60; ++i) { zoom(0.5, 900); drawNow(); }
        for (let i = 0; i < 60; ++i) { zoom(2, 900); drawNow(); }
        dispatchEvent(new Event('beforeprint'));
        const paper = [document.documentElement.classList.contains('dark'), canvas.width];
        dispatchEvent(new Event('afterprint'));
        return {count, paper, whole: view.to - view.from >= longest, heading: document.querySelectorAll('.card b').length};)");
    EXPECT_GT(keys.at("count"), 60);
    EXPECT_EQ(keys.at("paper"), (Json{false, 3000}));
    EXPECT_EQ(keys.at("whole"), true);
    EXPECT_EQ(keys.at("heading"), 2);  // one name per run, none from the title
}

}  // namespace
}  // namespace vocabpipe
