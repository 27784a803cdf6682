// SPDX-License-Identifier: Apache-2.0
#include "src/select/disk/scratch_file.hpp"

#include "src/support/crc32c.hpp"
#include "src/support/temporary_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

// The temporary file removes its name, not the open file.
ScratchFile::ScratchFile(const std::string& folder, uint64_t bytes)
    : ScratchFile(TemporaryFile(folder + "/scratch").name()) {
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
