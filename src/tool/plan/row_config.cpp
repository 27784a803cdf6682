// SPDX-License-Identifier: Apache-2.0
#include "src/tool/plan/row_config.hpp"

#include "src/support/joined.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/text.hpp"
#include "src/tool/support/toml_reader.hpp"

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr std::string_view kFirstLine = "# Flags of train_gpt, from vocabpipe plan";

/// The value of a flag; a list where it is repeated.
std::string value_of(std::span<const TrainFlag> flags) {
    if (flags.size() == 1) {
        return flags.front().value.empty() ? "true" : toml_value(flags.front().value);
    }
    const auto text_of = [](const TrainFlag& flag) { return toml_value(flag.value); };
    return "[" + joined(flags, ", ", text_of) + "]";
}

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
    const std::vector<TrainFlag> flags = train_flags_of(options, planned.candidate);
    for (auto flag = flags.begin(); flag != flags.end();) {
        const auto next = std::find_if(
            flag, flags.end(), [&](const TrainFlag& other) { return other.name != flag->name; });
        text += flag->name.substr(2) + " = " + value_of({flag, next}) + "\n";
        flag = next;
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
