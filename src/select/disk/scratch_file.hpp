// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/input_file.hpp"
#include "src/support/safetensors/writer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vocabpipe {

/// The system's folder for temporary files: TMPDIR, or else /tmp. It may be missing.
[[nodiscard]] std::string temporary_folder();
/// OutputFileError if `folder`, for files without names, is missing.
void check_scratch_folder(const std::string& folder);

/// A file without a name in `folder`, for data that do not fit in memory: nothing remains of it,
/// however the program ends.
class ScratchFile {
public:
    /// `bytes` are reserved, so that a full disk is noticed now. OutputFileError.
    ScratchFile(const std::string& folder, uint64_t bytes);

    /// InputFileError.
    void read(uint64_t offset, std::span<std::byte> to) const { input_.read(offset, to); }
    /// OutputFileError.
    void write(uint64_t offset, std::span<const std::byte> bytes) {
        output_.write_at(offset, bytes);
    }
    [[nodiscard]] const std::string& path() const { return input_.path(); }

private:
    explicit ScratchFile(const std::string& name);

    SharedOutputFile output_;
    InputFile input_;
};

/// InputFileError if the checksum of bytes that were read is not `expected`, that of those written.
void check_scratch(const ScratchFile& file, std::span<const std::byte> bytes, uint32_t expected);

}  // namespace vocabpipe
