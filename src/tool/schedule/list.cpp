// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule list: the schedule families that show, plan and train_gpt know by name.
#include <cstdio>
#include <string>

#include "src/support/text_layout.hpp"
#include "src/tool/support/commands.hpp"
#include "vocabpipe/make_schedule.hpp"

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

void list_schedules() {
    TextTable table;
    table.row({"name", "placement", "chunks", "summary"}, {true, true, true, true});
    for (const Generator& family : generators()) {
        table.row({std::string(family.name), placement_name(family.placement),
                   std::to_string(family.chunks) + (family.any_chunks ? ", any" : ""),
                   std::string(family.summary)});
    }
    std::printf("%s", table.text().c_str());
}

}  // namespace

Command schedule_list_command() {
    return {.name = "list",
            .description = "List the built-in schedules",
            .run = [](const GivenFlags&) { list_schedules(); }};
}

}  // namespace vocabpipe::tool
