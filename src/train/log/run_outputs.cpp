// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/run_outputs.hpp"

#include "src/support/output_check.hpp"

#include <string_view>
#include <utility>

namespace vocabpipe {

void check_outputs(const TrainOptions& options, std::vector<std::string> inputs,
                   const std::string& trace_path) {
    OutputCheck check(std::move(inputs));
    const auto add = [&](std::string_view flag, const std::string& path, const OutputKind& kind) {
        if (!path.empty()) check.add(flag, path, kind);
    };
    if (!options.trace_dir.empty()) {
        add("--trace-dir", trace_path + kExecutedTrace, trace_output());
        add("--trace-dir", trace_path + kSimulatedTrace, trace_output());
    }
    add("--metrics", options.metrics, metrics_output());
    add("--report", options.report, report_output());
    add("--profile", options.profile, profile_output());
    add("--time-products", options.time_products, product_choices_output());
}

}  // namespace vocabpipe
