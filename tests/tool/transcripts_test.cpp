// SPDX-License-Identifier: Apache-2.0
// Commands with all that they print, compared line by line with the recorded files in transcripts/.
// A file is what a terminal would show: after a comment, lines "$ COMMAND", each followed by its
// output, errors included, and by "[exit N]" if the command fails. One shell runs all of a file in
// an empty folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

namespace fs = std::filesystem;

/// One command and what it prints.
struct Step {
    std::string command, output;
};

struct Transcript {
    std::string comment;
    std::vector<Step> steps;
};

Transcript parse(const std::string& text) {
    Transcript transcript;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("$ ")) {
            transcript.steps.push_back({line.substr(2), ""});
        } else {
            auto& steps = transcript.steps;
            (steps.empty() ? transcript.comment : steps.back().output) += line + '\n';
        }
    }
    return transcript;
}

std::string print(const Transcript& transcript) {
    std::string text = transcript.comment;
    for (const Step& step : transcript.steps) text += "$ " + step.command + '\n' + step.output;
    return text;
}

/// The output without what a machine, its load or the build decides.
std::string masked(std::string text, const std::string& folder) {
    for (size_t at = 0; (at = text.find(folder, at)) != std::string::npos;) {
        text.replace(at, folder.size(), "<folder>");
    }
    static const std::pair<std::regex, const char*> rules[] = {
        // Only a slow machine prints progress, and only one with fewer cores a warning.
        {std::regex("(^|\n)[a-z ]+: [0-9]+ %(, [^\n]*)?(?=\n)"), ""},
        {std::regex("[0-9.]+ ms \\| [0-9]+ tokens/s"), "<time>"},
        {std::regex("(, | in |\\| )[0-9.]+ s(?=\n)"), "$1<time>"},
        {std::regex("((loss|mean [a-z_]+)( value:)? [0-9]+\\.[0-9]{2})[0-9]+"), "$1"},
        {std::regex("(  host    )[^ \n]+(?=\n)"), "$1<host>"},
        {std::regex("(^|\n)warning: [^\n]* they take turns;[^\n]*(\n  [^\n]*)*"), ""},
        {std::regex("(PPL: [0-9]+)\\.[0-9]+"), "$1"},
        {std::regex("(grad norm [0-9]+\\.[0-9])[0-9]+"), "$1"},
        {std::regex("(process of all ranks: predicted) [0-9.]+ MiB"), "$1 <memory>"}};
    for (const auto& [found, shown] : rules) text = std::regex_replace(text, found, shown);
    if (text.starts_with('\n')) text.erase(0, 1);
    return text;
}

/// Runs all commands in a fresh folder, with no more of the environment than they need.
Transcript run(Transcript transcript) {
    const TempFolder folder;
    const std::string home = folder / "folder";
    fs::create_directories(home);
    std::string script = "exec 2>&1 </dev/null\nset -o pipefail\ncd '" + home + "'\n";
    for (const Step& step : transcript.steps) {
        script +=
            step.command +
            "\n(exit_code=$?; [ $exit_code = 0 ] || echo \"[exit $exit_code]\"; printf '\\001')\n";
    }
    write_file(folder / "script", script);
    const std::string path = fs::path(VOCABPIPE_PROGRAM).parent_path().string() + ":" +
                             fs::path(TRAIN_GPT_PROGRAM).parent_path().string();
    std::string environment =
        "PATH='" + path + "':/usr/bin:/bin HOME='" + home + "' LC_ALL=C OMP_NUM_THREADS=1";
    // What planted faults, sanitizers and the loader are told.
    for (const std::string name : {"VOCABPIPE_MUTANT", "VOCABPIPE_MUTANTS_SEEN", "ASAN_OPTIONS",
                                   "UBSAN_OPTIONS", "TSAN_OPTIONS", "LD_LIBRARY_PATH"}) {
        environment += " ${" + name + "+" + name + "=\"$" + name + "\"}";
    }
    const Outcome outcome =
        run_shell("env -i " + environment + " bash '" + (folder / "script") + "'");
    std::istringstream outputs(outcome.output);
    for (Step& step : transcript.steps) {
        std::getline(outputs, step.output, '\001');
        if (!step.output.empty() && !step.output.ends_with('\n')) step.output += '\n';
        step.output = masked(step.output, home);
    }
    return transcript;
}

/// The first line that differs, of which command.
std::string difference(const Step& recorded, const Step& now) {
    std::istringstream was(recorded.output), is(now.output);
    std::string old_line, line;
    for (int number = 1;; ++number) {
        const bool had = !!std::getline(was, old_line), has = !!std::getline(is, line);
        if (had && has && old_line == line) continue;
        return "$ " + now.command + "\nline " + std::to_string(number) + " of its output\n" +
               "recorded: " + (had ? old_line : "(nothing more)") + "\n" +
               "     now: " + (has ? line : "(nothing more)") + "\n";
    }
}

std::vector<std::string> transcripts() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(VOCABPIPE_TRANSCRIPTS)) {
        if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

class Transcripts : public ::testing::TestWithParam<std::string> {};

TEST_P(Transcripts, AreWhatCommandsPrint) {
    const std::string file = VOCABPIPE_TRANSCRIPTS "/" + GetParam() + ".txt";
    const Transcript recorded = parse(read_file(file));
    ASSERT_FALSE(recorded.steps.empty()) << file;
    const Transcript now = run(recorded);
    if (std::getenv("VOCABPIPE_RECORD_TRANSCRIPTS")) {
        write_file(file, print(now));
        return;
    }
    for (size_t i = 0; i < now.steps.size(); ++i) {
        ASSERT_TRUE(now.steps[i].output == recorded.steps[i].output)
            << difference(recorded.steps[i], now.steps[i]) << "in " << file
            << "\nif that is right, VOCABPIPE_RECORD_TRANSCRIPTS=1 records it anew (git diff shows "
               "what changed)";
    }
}

INSTANTIATE_TEST_SUITE_P(Files, Transcripts, ::testing::ValuesIn(transcripts()),
                         [](const auto& file) { return file.param; });

}  // namespace
}  // namespace vocabpipe::testing
