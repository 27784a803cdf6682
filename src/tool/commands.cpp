// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/commands.hpp"

namespace vocabpipe::tool {

Command vocabpipe_command(const std::string& command_line) {
    return {
        .name = "vocabpipe",
        .description = "VocabPipe: pipeline-parallel training with vocabulary parallelism",
        .commands =
            {{.name = "data",
              .description = "Prepare, inspect and filter token files",
              .commands = {data_prepare_command(), data_inspect_command(), data_filter_command()}},
             {.name = "checkpoint",
              .description = "Inspect, verify and convert saved steps and models",
              .commands = {checkpoint_convert_command(), checkpoint_inspect_command(),
                           checkpoint_verify_command()}},
             compare_command(),
             plan_command(),
             explain_command(),
             import_command(),
             simulate_command(),
             timeline_command(),
             generate_command(),
             profile_command(command_line),
             {.name = "schedule",
              .description = "Show, check and convert schedules",
              .commands = {schedule_list_command(), schedule_show_command(),
                           schedule_check_command(), schedule_convert_command()}},
             score_command(),
             {.name = "select",
              .description = "Choose the samples of a corpus to train on",
              .commands = {select_score_command(), select_knn_command(), select_run_command(),
                           select_stats_command(), select_page_command(), select_import_command(),
                           select_split_command(), select_export_command()}},
             verify_run_command(),
             completion_command()},
        .version = "vocabpipe " VOCABPIPE_VERSION,
    };
}

}  // namespace vocabpipe::tool
