// SPDX-License-Identifier: Apache-2.0
// bench_plan_published: the predictions of `vocabpipe plan` from sizes alone, next to published
// steps on A100 GPUs, and the worst errors of each group of rows.
//
//   build/bin/bench_plan_published [FILE [HARDWARE]]
#include "benchmarks/published_steps.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

namespace {

using namespace vocabpipe;

struct Range {
    double least = 1e9, most = 0;
    int rows = 0;
    void take(double ratio) {
        least = std::min(least, ratio);
        most = std::max(most, ratio);
        ++rows;
    }
};

void print(const std::string& path, const DeviceSpec& device) {
    std::printf("%-7s %-13s %4s %5s %6s %6s %9s %9s %6s %6s %6s %6s %6s %6s\n", "# sched", "mode",
                "gpus", "seq", "vocab", "hidden", "measured", "predicted", "ratio", "MFU", "pred.",
                "GiB", "pred.", "ratio");
    std::map<std::string, Range> times, memories;
    for (const PublishedStep& row : read_published_steps(path)) {
        const PlanRow planned = row.predict(device);
        const double gib = static_cast<double>(planned.worst.total()) / (1 << 30);
        std::printf("%-7s %-13s %4d %5ld %6ld %6ld ", row.schedule.c_str(),
                    std::string(to_string(row.mode)).c_str(), row.gpus,
                    static_cast<long>(row.seq_length), static_cast<long>(row.vocab),
                    static_cast<long>(row.hidden));
        const double step_ms = static_cast<double>(planned.step_ns) * 1e-6;
        if (!row.measured) {
            std::printf("%9s %9.1f %6s %6s %6s %6s %6.2f %6s\n", "no memory", step_ms, "-", "-",
                        "-", "-", gib, "-");
            continue;
        }
        const double ratio = row.time_ratio(planned);
        const double memory = row.memory_ratio(planned);
        std::printf("%9.1f %9.1f %6.3f %6.2f %6.2f %6.2f %6.2f %6.3f\n", row.measured->step_ms,
                    step_ms, ratio, row.measured->mfu_percent, row.measured->mfu_percent / ratio,
                    row.measured->memory_gib, gib, memory);
        std::fflush(stdout);
        times[row.group()].take(ratio);
        memories[row.group()].take(memory);
    }
    for (const auto& [group, time] : times) {
        const Range& memory = memories[group];
        std::printf("# %-15s %2d rows: time %.3f .. %.3f, memory %.3f .. %.3f of the measured\n",
                    group.c_str(), time.rows, time.least, time.most, memory.least, memory.most);
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        print(argc > 1 ? argv[1] : VOCABPIPE_PUBLISHED_STEPS,
              load_device(argc > 2 ? argv[2] : "a100"));
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_plan_published: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
    return 0;
}
