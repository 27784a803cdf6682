// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/argument_names.hpp"

#include "src/tool/support/flag_names.hpp"

#include <string_view>

namespace vocabpipe::bindings {

namespace {

bool of_flag(char c) {
    return (c >= 'a' && c <= 'z') || c == '-';
}

}  // namespace

std::string argument_names(const std::string& message) {
    const std::string flags = tool::with_flags(message, tool::Caller::vocabpipe);
    std::string text;
    for (size_t at = 0; at < flags.size();) {
        constexpr std::string_view kSchedule = "SCHEDULE ";
        const std::string_view rest = std::string_view(flags).substr(at);
        const bool begins = at == 0 || flags[at - 1] == ' ' || flags[at - 1] == '(';
        if (begins && rest.starts_with(kSchedule)) {
            text += "name ";
            at += kSchedule.size();
            continue;
        }
        if (!begins || !rest.starts_with("--")) {
            text += flags[at++];
            continue;
        }
        size_t end = at + 2;
        while (end < flags.size() && of_flag(flags[end])) ++end;
        std::string name = flags.substr(at + 2, end - at - 2);
        for (char& c : name) c = c == '-' ? '_' : c;
        text += name == "pp" ? "ranks" : name;
        at = end;
    }
    return text;
}

}  // namespace vocabpipe::bindings
