// SPDX-License-Identifier: Apache-2.0
#include "src/select/disk/scratch_file.hpp"

#include "src/support/crc32c.hpp"
#include "src/support/temporary_file.hpp"
#include "vocabpipe/error.hpp"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace vocabpipe {

namespace {

/// The path of a file in a folder that is there.
std::string scratch_path(const std::string& folder) {
    check_scratch_folder(folder);
    return folder + "/scratch";
}

}  // namespace

std::string temporary_folder() {
    const char* const folder = std::getenv("TMPDIR");
    return folder != nullptr && *folder != '\0' ? folder : "/tmp";
}

void check_scratch_folder(const std::string& folder) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) return;
    throw OutputFileError(folder +
                          ": is no folder, but files without names are to be there; create it, or "
                          "choose another (TMPDIR, where none is given)");
}

// The temporary file removes its name, not the open file.
ScratchFile::ScratchFile(const std::string& folder, uint64_t bytes)
    : ScratchFile(TemporaryFile(scratch_path(folder)).name()) {
    if (bytes > 0) output_.reserve(bytes);
}

ScratchFile::ScratchFile(const std::string& name)
    : output_(SharedOutputFile::open(name)), input_(name) {}

void check_scratch(const ScratchFile& file, std::span<const std::byte> bytes, uint32_t expected) {
    if (crc32c(bytes) == expected) return;
    throw InputFileError(file.path() +
                         ": gives other bytes than were written; run the command again, which goes "
                         "on from the saved state, and check the disk");
}

}  // namespace vocabpipe
