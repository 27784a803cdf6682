// SPDX-License-Identifier: Apache-2.0
// docs/plan-with-your-own-times.md: its figures, and what its script makes of PyTorch's traces.
#include "tests/tool/run_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kExamples = VOCABPIPE_EXAMPLES;

TEST(OwnTimes, TakeAsLongAsTheDocumentSays) {
    const Outcome whole =
        run_shell("'" VOCABPIPE_PROGRAM "' simulate 1f1b --pp 4 --microbatches 16 --pass-times '" +
                  kExamples + "/pass_times.csv'");
    EXPECT_THAT(whole.output,
                AllOf(HasSubstr("\nstep          631.7 ms"), HasSubstr("\nbubble        40.44 %"),
                      HasSubstr("\nbecause       rank 3 "), HasSubstr("573.4 ms")));
    const TempFolder folder;
    const Outcome shared = run_shell(
        "cd '" + (folder / "") + "' && grep -v ',[ST],' '" + kExamples +
        "/pass_times.csv' >t.csv && for rank in 0 1 2 3; do printf "
        "\"$rank,S,-,1400000\\n$rank,T,-,2725000\\n\"; done >>t.csv && '" VOCABPIPE_PROGRAM
        "' simulate 1f1b --vocab-mode one_barrier --pp 4 --microbatches 16 --latency 20000 "
        "--pass-times t.csv");
    EXPECT_THAT(shared.output,
                AllOf(HasSubstr("\nstep          433.9 ms"), HasSubstr("\nbubble        13.29 %")));
}

/// A trace with these events, "category name microseconds" each.
std::string trace_of(std::initializer_list<std::string> events) {
    std::string text;
    for (const std::string& event : events) {
        const size_t name = event.find(' ') + 1;
        const size_t dur = event.find(' ', name) + 1;
        text += (text.empty() ? "" : ", ") + std::string(R"({"ph": "X", "cat": ")") +
                event.substr(0, name - 1) + R"(", "name": ")" + event.substr(name, dur - name - 1) +
                R"(", "ts": 1.0, "dur": )" + event.substr(dur) + "}";
    }
    return R"({"traceEvents": [{"ph": "M", "name": "process_name"}, )" + text + "]}";
}

TEST(OwnTimes, ComeFromTracesOfPyTorch) {
    const TempFolder folder;
    // The time of a GPU is the median of what it did, not of the CPU; sends and other names are
    // none.
    write_file(folder / "0.json",
               trace_of({"user_annotation PP:0F0 900", "gpu_user_annotation PP:0F0 10.5",
                         "gpu_user_annotation PP:0F1 11.5", "gpu_user_annotation PP:0F12 99",
                         "gpu_user_annotation PP:2F0 7", "gpu_user_annotation PP:0B0 20",
                         "gpu_user_annotation PP:2I0 8", "gpu_user_annotation PP:2W0 6",
                         "gpu_user_annotation PP:0SEND_F0 5", "kernel PP:0F0 3",
                         "gpu_user_annotation Optimizer 1"}));
    // The time of a CPU is its shortest.
    write_file(folder / "1.json",
               trace_of({"user_annotation PP:1F0 50", "user_annotation PP:1F1 12.25",
                         "user_annotation PP:1B0 30", "user_annotation PP:3F0 9",
                         "user_annotation PP:3B0 19", "cpu_op PP:3F1 1"}));
    const std::string script = "'" + kExamples + "/pass_times_from_torch.py' ";
    const std::string in = "cd '" + (folder / "") + "' && ";
    const Outcome made = run_shell(in + script + "0.json 1.json");
    EXPECT_EQ(made.exit_code, 0) << made.error;
    EXPECT_EQ(made.output,
              "rank,op,stage,ns\n0,B,0,20000\n0,F,0,11500\n0,F,2,7000\n0,I,2,8000\n0,W,2,6000\n"
              "1,B,1,30000\n1,F,1,12250\n1,B,3,19000\n1,F,3,9000\n");
    write_file(folder / "times.csv", made.output);
    const Outcome simulated = run_shell(in + "'" VOCABPIPE_PROGRAM
                                             "' simulate interleaved --pp 2 --chunks 2 "
                                             "--microbatches 1 --pass-times times.csv --json");
    // One microbatch passes through all of it.
    EXPECT_THAT(simulated.output, HasSubstr("\"makespan\": 122750"));
    write_file(folder / "none.json", trace_of({"cpu_op aten::mm 3"}));
    const Outcome refused = run_shell(in + script + "none.json");
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.error, HasSubstr("none.json: has no pass such as PP:0F0"));
}

}  // namespace
}  // namespace vocabpipe::testing
