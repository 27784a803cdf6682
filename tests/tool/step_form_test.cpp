// SPDX-License-Identifier: Apache-2.0
// The form of the timeline page makes the steps that the tool makes: every family in every
// vocabulary mode, for several sizes and costs, every begin and every byte of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

struct FormStep {
    std::string family;
    VocabMode mode = VocabMode::none;
    int ranks = 4, microbatches = 8, chunks = 0, layers = 0;
    std::string costs = "12,24,4";
    int latency = 0;

    /// As step_form.js reads it.
    [[nodiscard]] std::string line() const {
        return family + " " + std::string(to_string(mode)) + " " + std::to_string(ranks) + " " +
               std::to_string(microbatches) + " " + std::to_string(chunks) + " " +
               std::to_string(layers) + " " + (costs.empty() ? "-" : costs) + " " +
               std::to_string(latency);
    }
    /// As `vocabpipe timeline` does.
    [[nodiscard]] std::string run() const {
        return family + ",vocab-mode=" + std::string(to_string(mode)) +
               ",pp=" + std::to_string(ranks) + ",microbatches=" + std::to_string(microbatches) +
               (chunks > 0 ? ",chunks=" + std::to_string(chunks) : "") +
               (layers > 0 ? ",num-layers=" + std::to_string(layers) : "") +
               (costs.empty() ? "" : ",costs=" + costs) +
               (latency > 0 ? ",latency=" + std::to_string(latency) : "");
    }
    [[nodiscard]] bool possible() const {
        if (mode == VocabMode::redistributed && layers == 0 && !costs.empty()) return false;
        try {
            (void)placement_of(family, {.ranks = ranks,
                                        .microbatches = microbatches,
                                        .vocab_mode = mode,
                                        .vocab_size = 32000,
                                        .rule = {.chunks = chunks}});
        } catch (const UsageError&) {
            return false;
        }
        return true;
    }
};

std::vector<FormStep> form_steps() {
    std::vector<FormStep> steps;
    for (const Generator& family : generators()) {
        const std::string name(family.name);
        for (const VocabMode mode :
             {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
              VocabMode::one_barrier, VocabMode::two_barriers}) {
            const int layers = mode == VocabMode::redistributed ? 16 : 0;
            steps.push_back({name, mode, 4, 8, 0, layers, "12,24,4", 0});
            steps.push_back({name, mode, 2, 6, 0, 16, "10,23,7", 1});
            steps.push_back({name, mode, 4, 8, 0, 0, "", 0});
        }
        steps.push_back({name, VocabMode::two_barriers, 8, 16, 0, 0, "3,5,0", 2});
        steps.push_back({name, VocabMode::one_barrier, 3, 9, 3, 0, "12,24,4", 0});
    }
    steps.push_back({"1f1b", VocabMode::redistributed});
    return steps;
}

TEST(StepForm, MakesWhatTheToolMakes) {
    if (run_shell("command -v node").exit_code != 0) GTEST_SKIP() << "node is not installed";
    const TempFolder folder;
    std::string runs;
    std::string lines;
    size_t same = 0;
    size_t refused = 0;
    for (const FormStep& step : form_steps()) {
        const bool possible = step.possible();
        lines += (possible ? "" : "refused ") + step.line() + "\n";
        ++(possible ? same : refused);
        if (possible) runs += " " + step.run();
    }
    write_file(folder / "steps", lines);
    const Outcome drawn =
        run_shell("cd '" + (folder / "") + "' && '" VOCABPIPE_PROGRAM "' timeline" + runs +
                  " --html page.html");
    ASSERT_EQ(drawn.exit_code, 0) << drawn.error;
    const Outcome compared = run_shell(
        "cd '" + (folder / "") + "' && node '" VOCABPIPE_STEP_FORM_SCRIPT "' page.html steps");
    EXPECT_EQ(compared.exit_code, 0)
        << compared.error << "after a change to generators, lowering or simulation: "
        << "src/tool/wasm/build.sh";
    EXPECT_THAT(compared.output,
                HasSubstr(std::to_string(same) + " steps as the tool makes them, " +
                          std::to_string(refused) + " refused, " +
                          std::to_string(generators().size()) + " families"));
    // In the tool's words.
    EXPECT_THAT(compared.output,
                HasSubstr("1f1b one_barrier 3 9 3 0 12,24,4 0: --chunks 3: does not match 1f1b"));
    EXPECT_THAT(compared.output, HasSubstr("1f1b redistributed 4 8 0 0 12,24,4 0: "));
    EXPECT_GT(same, 170U);
}

}  // namespace
}  // namespace vocabpipe::testing
