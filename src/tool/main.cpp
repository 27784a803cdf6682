// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include "src/tool/commands.hpp"
#include "src/tool/flag_values.hpp"
#include "src/tool/help_format.hpp"
#include "src/tool/interrupt.hpp"
#include "src/tool/launch.hpp"
#include "src/tool/text.hpp"
#include "src/tool/usage_text.hpp"
#include "src/tool/value_names.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

/// Under mpirun (vocabpipe profile) one of the ranks speaks.
int report(const std::string& message, ExitCode code) {
    std::cout.flush();
    return report_before_launch("vocabpipe", message, code);
}

int run(int argc, char** argv) {
    CLI::App app("VocabPipe: pipeline-parallel training with vocabulary parallelism", "vocabpipe");
    app.set_version_flag("--version", "vocabpipe " VOCABPIPE_VERSION, "Print the version and end");
    app.option_defaults()->take_last();  // as train_gpt's flags
    app.require_subcommand(1);
    CLI::App* data = app.add_subcommand("data", "Make and look at token files");
    data->require_subcommand(1);
    add_data_prepare(*data);
    add_data_inspect(*data);
    CLI::App* checkpoint = app.add_subcommand("checkpoint", "Look at saved steps and models");
    checkpoint->require_subcommand(1);
    add_checkpoint_convert(*checkpoint);
    add_checkpoint_inspect(*checkpoint);
    add_checkpoint_verify(*checkpoint);
    add_compare(app);
    add_plan(app);
    add_explain(app);
    add_simulate(app);
    add_timeline(app);
    add_generate(app);
    add_profile(app, command_line(argc, argv));
    CLI::App* schedule = app.add_subcommand("schedule", "Show, check and convert schedules");
    schedule->require_subcommand(1);
    add_schedule_list(*schedule);
    add_schedule_show(*schedule);
    add_schedule_check(*schedule);
    add_schedule_convert(*schedule);
    add_completion(app);
    name_values(app);
    check_flag_values(app);
    format_help(app);
    try {
        app.parse(argc, argv);
        return finish_output("vocabpipe", ExitCode::ok);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
            app.exit(error);  // --help and --version
            return finish_output("vocabpipe", ExitCode::ok);
        }
        return report(usage_text(app, error), ExitCode::usage);
    }
}

}  // namespace

}  // namespace vocabpipe::tool

int main(int argc, char** argv) {
    using namespace vocabpipe;
    std::signal(SIGXFSZ,
                SIG_IGN);  // a file size limit is then an error of write(), as a full disk is
    try {
        return tool::run(argc, argv);
    } catch (const Error& error) {
        return tool::report(error.what(), error.exit_code());
    } catch (const tool::Reported& reported) {
        return reported.exit_code;
    } catch (const tool::Interrupted& interrupted) {
        return 128 + interrupted.signal;
    } catch (const std::bad_alloc&) {
        return tool::report("out of memory", ExitCode::out_of_memory);
    } catch (const std::system_error& error) {
        return tool::report(tool::describe(error), ExitCode::failed);
    } catch (const std::exception& error) {
        return tool::report(std::string("internal: ") + error.what(), ExitCode::failed);
    }
}
