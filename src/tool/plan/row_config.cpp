// SPDX-License-Identifier: Apache-2.0
#include "src/tool/plan/row_config.hpp"

#include "src/support/text_layout.hpp"
#include "src/tool/support/text.hpp"
#include "src/tool/support/toml_reader.hpp"

#include <fstream>
#include <string_view>

namespace vocabpipe::tool {

namespace {

constexpr std::string_view kFirstLine = "# Flags of train_gpt, from vocabpipe plan";

}  // namespace

std::string row_config(const Plan& plan, size_t row) {
    const PlanRow& planned = plan.rows[row];
    const PlanOptions& options = plan.options;
    constexpr double kGib = 1 << 30;
    std::string text(kFirstLine);
    text +=
        format("\n# %s on %s (%s):\n# %.1f ms per step, %.2f of %.2f GiB on the fullest rank\n",
               one_line(options.model.name).c_str(), counted(options.gpus, "GPU").c_str(),
               one_line(options.device.name).c_str(), static_cast<double>(planned.step_ns) * 1e-6,
               static_cast<double>(planned.worst.total()) / kGib, options.gpu_memory_gib());
    for (const TrainFlag& flag : train_flags_of(options, planned.candidate)) {
        text += flag.name.substr(2) + " = " +
                (flag.value.empty() ? "true" : toml_value(flag.value)) + "\n";
    }
    return text;
}

OutputKind row_config_output() {
    return {.name = "a config file from vocabpipe plan", .is_one = [](const std::string& path) {
                std::ifstream file(path);
                std::string line;
                return std::getline(file, line) && line == kFirstLine;
            }};
}

}  // namespace vocabpipe::tool
