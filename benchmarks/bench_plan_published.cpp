// SPDX-License-Identifier: Apache-2.0
// bench_plan_published: the predictions of `vocabpipe plan` from sizes alone, next to published
// runs. One table of the errors of each group, for the rows that constants were fitted to and for
// the others; with --rows every row.
//
//   build/bin/bench_plan_published [--rows] [--pass-times] [--hardware FOLDER] [FILE...]
//
// FOLDER has other hardware files than src/plan/hardware: a100.json, h100.json, h200.json.
// --pass-times: without simulations, in a second.
#include "benchmarks/prediction_errors.hpp"
#include "benchmarks/published_runs.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace vocabpipe;

/// By group, then of the rows fitted to and of the others.
using Groups = std::map<std::string, std::map<bool, std::vector<Prediction>>>;

void print_row(const PublishedRun& run, const Prediction& row, const PlanRow& planned) {
    std::printf("%-6s %-60s %-44s", run.held_out ? "others" : "fitted", run.cell.c_str(),
                to_string(planned.candidate).c_str());
    if (row.measured > 0) {
        std::printf(" %9.3f %9.3f %6.3f", row.measured, row.predicted,
                    row.predicted / row.measured);
    } else {
        std::printf(" %9s %9.3f %6s", "no memory", row.predicted, "-");
    }
    std::printf(" %7.2f GiB", row.predicted_gib);
    if (row.measured_gib > 0) std::printf(" %6.3f", row.predicted_gib / row.measured_gib);
    std::printf("%s\n", row.fits ? "" : "  does not fit");
}

void predict(const std::string& path, const Devices& devices, bool all_rows, bool fast,
             Groups& groups) {
    PublishedRuns runs = read_published_runs(path, devices);
    for (PublishedRun& run : runs.runs) {
        if (fast) run.options.evaluation = Evaluation::pass_times;
        try {
            const PlanRow planned = predict(run);
            const Prediction row = compare(run, planned);
            if (all_rows) print_row(run, row, planned);
            groups[run.group][run.held_out].push_back(row);
        } catch (const UsageError& error) {
            ++runs.left_out[error.what()];
        }
    }
    for (const auto& [reason, rows] : runs.left_out) {
        std::printf("# %s: %d rows left out: %s\n", path.c_str(), rows, reason.c_str());
    }
}

void print(const std::string& group, const char* rows, const PredictionErrors& e, bool choices) {
    std::printf("%-46s %-6s %4d %6.3f %5.1f%% %6.3f %6.3f", group.c_str(), rows, e.rows, e.median,
                100 * e.error, e.p10, e.p90);
    if (choices && e.cells > 0) {
        std::printf(" %5d %6.3f %6.1f%%", e.cells, e.correlation, 100 * e.regret);
    } else {
        std::printf(" %5s %6s %7s", "-", "-", "-");
    }
    e.memory > 0 ? std::printf(" %6.3f", e.memory) : std::printf(" %6s", "-");
    std::printf(" %4d/%-4d %4d/%-4d\n", e.found, e.found + e.missed, e.found, e.found + e.refused);
}

void print(const Groups& groups) {
    std::printf("%-46s %-6s %4s %6s %6s %6s %6s %5s %6s %7s %6s %9s %9s\n", "# group", "rows", "n",
                "median", "error", "p10", "p90", "cells", "rank", "regret", "memory", "recall",
                "precision");
    for (const auto& [group, halves] : groups) {
        std::vector<Prediction> all;
        for (const auto& [held_out, predictions] : halves) {
            print(group, held_out ? "others" : "fitted", errors_of(predictions), false);
            all.insert(all.end(), predictions.begin(), predictions.end());
        }
        // Somebody chooses among the rows of both halves.
        if (halves.size() > 1) print(group, "all", errors_of(all), true);
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> files(argv + 1, argv + argc);
    const bool all_rows = std::erase(files, "--rows") > 0;
    const bool fast = std::erase(files, "--pass-times") > 0;
    Devices devices = load_device;
    if (const auto flag = std::find(files.begin(), files.end(), "--hardware");
        flag != files.end() && flag + 1 != files.end()) {
        devices = [folder = *(flag + 1)](const std::string& name) {
            return load_device(folder + "/" + name + ".json");
        };
        files.erase(flag, flag + 2);
    }
    if (files.empty()) files = {VOCABPIPE_PUBLISHED_STEPS, VOCABPIPE_PUBLISHED_TRUTH};
    try {
        Groups groups;
        for (const std::string& file : files) predict(file, devices, all_rows, fast, groups);
        print(groups);
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_plan_published: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
    return 0;
}
