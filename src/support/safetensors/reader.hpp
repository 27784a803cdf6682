// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/input_file.hpp"
#include "src/support/safetensors/format.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// A checked header: ranges lie end to end, from the header to the end of the file, and have the
/// size of their shapes; names are unique.
struct SafetensorsHeader {
    uint64_t data_begin = 0;            ///< bytes before the first tensor
    std::vector<StoredTensor> tensors;  ///< by position
    std::map<std::string, std::string> metadata;
};

/// `head`: the first bytes of a file of `file_bytes` bytes, including the whole header if the file
/// has it. InputFileError "PATH: tensor NAME: what; remedy" for all that the format does not allow.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head,
                                                         uint64_t file_bytes,
                                                         const std::string& path);

/// A safetensors file whose header was read. It is kept closed, as a model may have more files than
/// a process may open for all of its ranks.
class SafetensorsFile {
public:
    explicit SafetensorsFile(std::string path);
    SafetensorsFile(SafetensorsFile&&) = default;
    SafetensorsFile& operator=(SafetensorsFile&&) = default;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] uint64_t size() const { return identity_.size; }  ///< bytes
    [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
    /// Opens the file to read tensors; InputFileError if it was replaced.
    [[nodiscard]] InputFile open() const;
    /// Null if there is no tensor of that name.
    [[nodiscard]] const StoredTensor* find(std::string_view name) const;

private:
    std::string path_;
    InputFile::Identity identity_;
    SafetensorsHeader header_;
    std::map<std::string_view, const StoredTensor*> by_name_;  ///< of header_
};

}  // namespace vocabpipe
