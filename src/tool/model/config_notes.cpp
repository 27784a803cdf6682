// SPDX-License-Identifier: Apache-2.0
#include "src/tool/model/config_notes.hpp"

#include "src/model/config_json/unused_rope_keys.hpp"
#include "src/support/input_file.hpp"
#include "src/support/strict_json.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/support/text.hpp"

#include <filesystem>
#include <iostream>
#include <system_error>

namespace vocabpipe::tool {

void print_config_notes(const std::string& path) {
    std::error_code ignored;
    if (!first_of_launch() || !std::filesystem::is_regular_file(path, ignored)) return;
    const StrictJson config = StrictJson::parse(InputFile(path).text(), path);
    for (const std::string& line : unused_rope_keys(config)) {
        std::cerr << one_line("vocabpipe: note: " + path + ": " + line) + "\n";
    }
}

}  // namespace vocabpipe::tool
