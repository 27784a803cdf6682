// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/support/command.hpp"

#include <string>

namespace vocabpipe::tool {

// Each is defined in a file of its own.
[[nodiscard]] Command checkpoint_convert_command();
[[nodiscard]] Command checkpoint_inspect_command();
[[nodiscard]] Command checkpoint_verify_command();
[[nodiscard]] Command compare_command();
[[nodiscard]] Command completion_command();
[[nodiscard]] Command data_filter_command();
[[nodiscard]] Command data_inspect_command();
[[nodiscard]] Command data_prepare_command();
[[nodiscard]] Command explain_command();
[[nodiscard]] Command import_command();
[[nodiscard]] Command generate_command();
[[nodiscard]] Command plan_command();
/// `command_line`: the whole command line, for the profile.
[[nodiscard]] Command profile_command(const std::string& command_line);
[[nodiscard]] Command schedule_check_command();
[[nodiscard]] Command schedule_convert_command();
[[nodiscard]] Command schedule_list_command();
[[nodiscard]] Command schedule_show_command();
[[nodiscard]] Command score_command();
[[nodiscard]] Command select_export_command();
[[nodiscard]] Command select_import_command();
[[nodiscard]] Command select_knn_command();
[[nodiscard]] Command select_page_command();
[[nodiscard]] Command select_run_command();
[[nodiscard]] Command select_score_command();
[[nodiscard]] Command select_split_command();
[[nodiscard]] Command select_stats_command();
[[nodiscard]] Command simulate_command();
[[nodiscard]] Command timeline_command();
[[nodiscard]] Command verify_run_command();

/// vocabpipe with all subcommands.
[[nodiscard]] Command vocabpipe_command(const std::string& command_line);

/// Thrown by a command whose ranks have already reported the failure; main() returns the code.
struct Reported {
    int exit_code;
};

}  // namespace vocabpipe::tool
