// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/full_run.hpp"
#include "tests/tool/run_program.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace vocabpipe::testing {

inline std::string base64(const std::string& bytes) {
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

/// A folder of pages, and Chromium without a window that opens them.
class Browser : public ::testing::Test {
protected:
    void SetUp() override {
        if (!full_run()) {
            GTEST_SKIP() << "only in the full run, or with VOCABPIPE_FULL=1";
        }
        ASSERT_EQ(run_shell("command -v chromium").exit_code, 0)
            << "chromium is not installed; examples/install_packages.sh --full installs it";
    }

    /// Opens `page`, a file of the folder, with further flags.
    Outcome open(const std::string& page, const std::string& flags) {
        const Outcome outcome = run_shell(
            "cd '" + (folder_ / "") + "' && HOME=\"$PWD\" timeout 100 chromium --headless " +
            "--no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars " +
            "--window-size=" + size_ +
            " --user-data-dir=\"$PWD/profile\" --enable-logging=stderr " + flags +
            " \"file://$PWD/" + page + "\"");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        EXPECT_EQ(outcome.error.find("CONSOLE"), std::string::npos)
            << "the page reports something: " << outcome.error;
        return outcome;
    }

    /// Writes a copy of the page with a script at its end, opens it, and returns what the script
    /// returned as JSON. `flags`: further ones, each with a space after it. A script that awaits
    /// runs in virtual time: it cannot measure.
    nlohmann::json asked(const std::string& page, const std::string& script,
                         const std::string& flags = "") {
        write_file(folder_ / "asked.html",
                   page + "<script>\nasync function ask() {" + script +
                       "}\nask().then((answer) => { document.title = JSON.stringify(answer); },\n"
                       "  (error) => { document.title = JSON.stringify(String(error.stack)); "
                       "});\n</script>");
        const std::string time =
            script.find("await") == std::string::npos ? "" : "--virtual-time-budget=20000 ";
        // Virtual time waits for no other thread, such as one that compiles WebAssembly.
        for (int i = 0; i < 10; ++i) {
            const std::string dom = open("asked.html", flags + time + "--dump-dom").output;
            const size_t begin = dom.find("<title>") + 7;
            const std::string title = dom.substr(begin, dom.find("</title>") - begin);
            if (nlohmann::json::accept(title)) return nlohmann::json::parse(title);
        }
        throw std::runtime_error("the page does not answer");
    }

    /// How many colours a screenshot has, and the part of it that has the commonest one.
    nlohmann::json screenshot(const std::string& hash) {
        open("page.html" + hash, "--virtual-time-budget=3000 --screenshot=\"$PWD/shot.png\"");
        // Chromium itself reads the PNG.
        write_file(folder_ / "colours.html",
                   R"(<title>0</title><img id="shot" src="data:image/png;base64,)" +
                       base64(read_file(folder_ / "shot.png")) + R"("><script>
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
        return nlohmann::json::parse(dom.substr(begin, dom.find("</title>") - begin));
    }

    TempFolder folder_;
    std::string size_ = "1500,950";  ///< of the window; Chromium has none below 500 wide
};

}  // namespace vocabpipe::testing
