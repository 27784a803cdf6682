// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace vocabpipe::tool {

namespace {

int columns() {
    winsize size{};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

std::function<int()> terminal_columns() {
    const char* const type = std::getenv("TERM");
    const bool dumb = type == nullptr || std::string_view(type) == "dumb";
    if (dumb || ::isatty(STDOUT_FILENO) != 1 || columns() == 0) return {};
    return columns;
}

bool wants_color() {
    const char* refused = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    return ::isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
           (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace vocabpipe::tool
