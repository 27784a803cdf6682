// SPDX-License-Identifier: Apache-2.0
// train_gpt: trains a GPT under mpirun (or on threads of one process); flags as Megatron names
// them.
#include "src/tool/launch.hpp"
#include "src/tool/run_signals.hpp"
#include "src/tool/terminal.hpp"
#include "src/tool/text.hpp"
#include "src/tool/train_program.hpp"
#include "src/tool/usage_text.hpp"
#include "src/train/run/trainer.hpp"
#include "vocabpipe/error.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

namespace {

using namespace vocabpipe;

constexpr const char* kProgram = "train_gpt";

}  // namespace

int main(int argc, char** argv) {
    tool::TrainProgram program;
    TrainOptions& options = program.options();
    /// With the place in a config file that a flag comes from.
    const auto with_source = [&](const std::string& what) {
        return what + program.config().source_of(what);
    };
    const auto refuse = [&](const std::string& what, ExitCode code) {
        return tool::report_before_launch(kProgram, with_source(what), code);
    };
    try {
        program.app().parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {  // --help, --version
            program.app().exit(error);
            return tool::finish_output(kProgram, ExitCode::ok);
        }
        return refuse(tool::usage_text(program.app(), error), ExitCode::usage);
    } catch (const Error& error) {
        return refuse(error.what(), error.exit_code());
    }
    if (program.config().print()) {
        if (tool::first_of_launch()) {
            std::fputs(program.app().config_to_str().c_str(), stdout);
        }
        return tool::finish_output(kProgram, ExitCode::ok);
    }
    try {
        program.resolve();
        install_run_signals();
        options.stop_requested = stop_requested;
        options.terminated = ending_signal;
        options.terminal_columns = tool::terminal_columns();
        options.command = tool::command_line(argc, argv);
        options.date = tool::utc_now();
    } catch (const Error& error) {
        return refuse(error.what(), error.exit_code());
    } catch (const std::exception& error) {
        return refuse(std::string("internal: ") + error.what(), ExitCode::failed);
    }
    return tool::run_ranks(kProgram, program.launch(), [&](Communicator& communicator) {
        try {
            train(communicator, options);
        } catch (const AgreedError& error) {
            if (error.exit_code() != ExitCode::usage) throw;
            throw AgreedError(error.exit_code(), with_source(error.what()));
        }
    });
}
