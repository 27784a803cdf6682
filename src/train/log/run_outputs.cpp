// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/run_outputs.hpp"

#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"

#include <filesystem>
#include <string_view>
#include <utility>

namespace vocabpipe {

std::string trace_path(const TrainOptions& options, const Mesh& mesh) {
    const std::string schedule = std::filesystem::path(options.schedule).stem().string();
    return options.trace_dir + "/" + schedule + "-" + std::string(to_string(options.vocab_mode)) +
           "-p" + std::to_string(mesh.pipeline) +
           (mesh.data == 1 ? "" : "d" + std::to_string(mesh.data)) +
           (mesh.context == 1 ? "" : "c" + std::to_string(mesh.context)) +
           (mesh.tensor == 1 ? "" : "t" + std::to_string(mesh.tensor)) +
           (mesh.expert == 1 ? "" : "e" + std::to_string(mesh.expert)) +
           (options.expert_tensor_parallel_size == 1
                ? ""
                : "x" + std::to_string(options.expert_tensor_parallel_size));
}

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

void probe_outputs(const TrainOptions& options, const std::string& trace_path) {
    const auto probe = [](const std::string& path) {
        if (path.empty()) return;
        const OutputFile file(path);
    };
    if (!options.trace_dir.empty()) {
        make_directories(options.trace_dir, "--trace-dir");
        probe(trace_path);
    }
    probe(options.report);
    probe(options.profile);
}

}  // namespace vocabpipe
