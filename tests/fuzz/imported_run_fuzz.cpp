// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: files of other trainers are read, explained and replayed, or refused with
// InputFileError or UsageError.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "src/imported/kineto.hpp"
#include "src/imported/measured_run.hpp"
#include "src/imported/megatron_timers.hpp"
#include "src/imported/nsys_ranges.hpp"
#include "src/imported/operations.hpp"
#include "src/imported/otlp.hpp"
#include "src/imported/step_times.hpp"
#include "vocabpipe/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vocabpipe;
    using namespace vocabpipe::imported;
    static const RangeRules rules = make_range_rules(
        "fuzz",
        {{"pass", {"PP:{stage}{op}{microbatch}", "{op} stage {stage} microbatch {microbatch}"}},
         {"receive", {"PP:{stage}RECV_{op}{microbatch}"}},
         {"send", {"PP:{stage}SEND_{op}{microbatch}", "c10d::send"}},
         {"arrival", {"gloo:recv"}}});
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        if (is_megatron_log(text)) static_cast<void>(megatron_pass_times(text, "f.log", 4));
        std::vector<RankRanges> ranks;
        if (is_otlp(text)) {
            ranks = read_otlp(text, "f.json");
        } else if (is_nsys_ranges(text)) {
            ranks.push_back(read_nsys_ranges(text, "f.csv"));
        } else if (is_operations(text)) {
            ranks = read_operations(text, "f.csv", 0);
        } else {
            ranks.push_back(read_kineto(text, "f.json"));
        }
        const MeasuredRun run = find_passes(std::move(ranks), rules);
        const RecordedRun step = record_step(run, run.median_step());
        if (step.slices.empty() || pass_times_csv(run).empty()) std::abort();
        static_cast<void>(replay_own_ns(step_times(step)));
    } catch (const InputFileError&) {
    } catch (const UsageError&) {
    }
    return 0;
}
