// SPDX-License-Identifier: Apache-2.0
// train_gpt: trains a GPT under mpirun, or on threads of one process. Flags have Megatron's names.
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "src/tool/support/flag_names.hpp"
#include "src/tool/support/flag_parser.hpp"
#include "src/tool/support/terminal.hpp"
#include "src/tool/support/text.hpp"
#include "src/tool/train/train_program.hpp"
#include "src/train/run/trainer.hpp"
#include "vocabpipe/error.hpp"

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>

namespace {

using namespace vocabpipe;

constexpr const char* kProgram = "train_gpt";

}  // namespace

int main(int argc, char** argv) {
    tool::TrainProgram program;
    TrainOptions& options = program.options();
    /// Appends the place in the config file that a flag comes from.
    const auto with_source = [&](const std::string& text) {
        const std::string what = tool::with_flags(text, tool::Caller::train_gpt);
        return what + program.config().source_of(what);
    };
    const auto refuse = [&](const std::string& what, ExitCode code) {
        return tool::report_before_launch(kProgram, with_source(what), code);
    };
    try {
        const tool::Command command = program.command();
        const auto line = tool::read_command_line(command, {argv + 1, argv + argc});
        if (!line.answer.empty() || program.config().print()) {
            const bool prints = !line.answer.empty() || tool::first_of_launch();
            const std::string text =
                line.answer.empty() ? program.config().text(line.given) : line.answer;
            if (prints) std::fputs(text.c_str(), stdout);
            return tool::finish_output(kProgram, ExitCode::ok);
        }
        program.resolve(line.given);
        install_run_signals(program.launch().exit_signal);
        options.stop_requested = stop_requested;
        options.terminated = ending_signal;
        options.terminal_columns = tool::terminal_columns();
        options.command = tool::command_line(argc, argv);
        options.date = tool::utc_now();
    } catch (const Error& error) {
        return refuse(error.what(), error.exit_code());
    } catch (const std::bad_alloc&) {
        return refuse("out of memory", ExitCode::out_of_memory);
    } catch (const std::system_error& error) {
        return refuse(tool::describe(error), ExitCode::failed);
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
