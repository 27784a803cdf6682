// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace vocabpipe::tool {

// Each function adds one subcommand, whose callback does the work: results go to stdout, progress
// to stderr, failures are thrown and reported by main(). One file each.

/// `vocabpipe data prepare`
void add_data_prepare(CLI::App& data);
/// `vocabpipe data inspect`
void add_data_inspect(CLI::App& data);
/// `vocabpipe plan`
void add_plan(CLI::App& app);
/// `vocabpipe compare`
void add_compare(CLI::App& app);
/// `vocabpipe simulate`
void add_simulate(CLI::App& app);
/// `vocabpipe explain`
void add_explain(CLI::App& app);
/// `vocabpipe timeline`
void add_timeline(CLI::App& app);
/// `vocabpipe schedule list`
void add_schedule_list(CLI::App& schedule);
/// `vocabpipe schedule show`
void add_schedule_show(CLI::App& schedule);
/// `vocabpipe schedule check`
void add_schedule_check(CLI::App& schedule);
/// `vocabpipe schedule convert`
void add_schedule_convert(CLI::App& schedule);
/// `vocabpipe checkpoint convert`
void add_checkpoint_convert(CLI::App& checkpoint);
/// `vocabpipe checkpoint inspect`
void add_checkpoint_inspect(CLI::App& checkpoint);
/// `vocabpipe checkpoint verify`
void add_checkpoint_verify(CLI::App& checkpoint);
/// `vocabpipe generate`
void add_generate(CLI::App& app);
/// `vocabpipe profile`; `command` is the whole command line.
void add_profile(CLI::App& app, std::string command);

/// `vocabpipe completion`, of all that `app` has when it runs.
void add_completion(CLI::App& app);

/// Thrown by a command whose ranks have reported the failure already; main() returns the code.
struct Reported {
    int exit_code;
};

}  // namespace vocabpipe::tool
