// SPDX-License-Identifier: Apache-2.0
#include "tests/batch/clone.hpp"

#include <filesystem>
#include <sstream>

namespace vocabpipe::testing {

void make_clone(const std::string& folder, const Arguments& more) {
    namespace fs = std::filesystem;
    fs::create_directories(folder + "/build/bin");
    fs::create_directory_symlink(VOCABPIPE_SOURCE "/examples", folder + "/examples");
    std::string script = "#!/bin/sh\nexec " VOCABPIPE_TRAIN_GPT " \"$@\"";
    for (const std::string& word : more) script += " " + word;
    const std::string program = folder + "/build/bin/train_gpt";
    write_file(program, script + "\n");
    fs::permissions(program, fs::perms::owner_all);
    write_dataset(folder + "/book", some_tokens(5000));
}

std::vector<std::string> documented_commands(const std::string& heading) {
    std::istringstream lines(read_file(VOCABPIPE_SOURCE "/docs/clusters.md"));
    std::vector<std::string> commands;
    bool under = false;
    bool continued = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("## ")) under = line == "## " + heading;
        if (!under || !line.starts_with("    ")) continue;
        line.erase(0, 4);
        const bool more = line.ends_with("\\");
        if (more) line.pop_back();
        if (continued) {
            commands.back() += line;
        } else {
            commands.push_back(line);
        }
        continued = more;
    }
    return commands;
}

}  // namespace vocabpipe::testing
