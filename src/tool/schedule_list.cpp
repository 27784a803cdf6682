// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule list: the families that show, plan and train_gpt know by name.
#include <algorithm>
#include <cstdio>

#include "src/tool/commands.hpp"
#include "vocabpipe/generate.hpp"

namespace vocabpipe::tool {

namespace {

const char* placement_name(Placement placement) {
    switch (placement) {
        case Placement::straight:
            return "straight";
        case Placement::loop:
            return "loop";
        case Placement::v_shape:
            return "V";
    }
    return "";
}

void list() {
    size_t longest = 4;
    for (const Generator& family : generators()) longest = std::max(longest, family.name.size());
    const int width = static_cast<int>(longest);
    std::printf("%-*s  placement  chunks  summary\n", width, "name");
    for (const Generator& family : generators()) {
        std::printf("%-*s  %-9s  %-6s  %.*s\n", width, std::string(family.name).c_str(),
                    placement_name(family.placement),
                    (std::to_string(family.chunks) + (family.any_chunks ? ", any" : "")).c_str(),
                    static_cast<int>(family.summary.size()), family.summary.data());
    }
}

}  // namespace

void add_schedule_list(CLI::App& schedule) {
    schedule.add_subcommand("list", "Show the schedules that have a name")->callback(list);
}

}  // namespace vocabpipe::tool
