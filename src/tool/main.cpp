// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include "src/tool/launch/launch.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/flag_names.hpp"
#include "src/tool/support/flag_parser.hpp"
#include "src/tool/support/interrupt.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

/// Under mpirun (vocabpipe profile), only one of the ranks prints.
int report(const std::string& message, ExitCode code) {
    std::cout.flush();
    return report_before_launch("vocabpipe", message, code);
}

int run(int argc, char** argv) {
    const Command program = vocabpipe_command(command_line(argc, argv));
    const CommandLine line = read_command_line(program, {argv + 1, argv + argc});
    if (line.answer.empty()) {
        line.command->run(line.given);
    } else {
        std::fputs(line.answer.c_str(), stdout);
    }
    return finish_output("vocabpipe", ExitCode::ok);
}

}  // namespace

}  // namespace vocabpipe::tool

int main(int argc, char** argv) {
    using namespace vocabpipe;
    // Exceeding a file size limit is then an error of write(), as a full disk is.
    std::signal(SIGXFSZ, SIG_IGN);
    try {
        return tool::run(argc, argv);
    } catch (const Error& error) {
        return tool::report(tool::with_flags(error.what(), tool::Caller::vocabpipe),
                            error.exit_code());
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
