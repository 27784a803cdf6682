// SPDX-License-Identifier: Apache-2.0
#include "src/model/published/published_models.hpp"

#include "src/support/embedded_file.hpp"
#include "src/support/named_text.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace embedded {
[[nodiscard]] std::span<const File> models();  // VocabpipeEmbed.cmake writes it
}  // namespace embedded

std::vector<std::string> published_models() {
    std::vector<std::string> names;
    for (const embedded::File& file : embedded::models()) names.emplace_back(file.name);
    return names;
}

NamedModel named_model(const std::string& name_or_path) {
    namespace fs = std::filesystem;
    const std::vector<std::string> published = published_models();
    std::string path = name_or_path;
    std::string folder;
    std::error_code ignored;
    if (std::ranges::find(published, path) == published.end() && fs::is_directory(path, ignored)) {
        const fs::path given = fs::absolute(path, ignored).lexically_normal();
        folder = (given.has_filename() ? given : given.parent_path()).filename().string();
        path += "/config.json";
    }
    NamedText found = named_text("--model", path, embedded::models());
    return {.name = folder.empty() ? std::move(found.name) : std::move(folder),
            .path = std::move(path),
            .text = std::move(found.text)};
}

}  // namespace vocabpipe
