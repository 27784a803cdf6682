// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/safetensors.hpp"
#include "src/train/data/mapped_file.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What a header says, checked: ranges lie end to end, from the header to the end of the file, and
/// have the size of their shapes; names are unique.
struct SafetensorsHeader {
    uint64_t data_begin = 0;            ///< bytes before the first tensor
    std::vector<StoredTensor> tensors;  ///< by position
    std::map<std::string, std::string> metadata;
};

/// `file`: all bytes; only those of the header are read. InputFileError "PATH: tensor NAME: what;
/// remedy" for everything that the format does not allow.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                                         const std::string& path);

/// A safetensors file, mapped into memory: bytes are read when they are looked at.
class SafetensorsFile {
public:
    explicit SafetensorsFile(const std::string& path)
        : file_(path), header_(parse_safetensors_header(file_.bytes(), path)) {}

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
    [[nodiscard]] std::span<const std::byte> file_bytes() const { return file_.bytes(); }
    [[nodiscard]] std::span<const std::byte> bytes(const StoredTensor& tensor) const {
        return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
    }
    /// Null if there is none of that name.
    [[nodiscard]] const StoredTensor* find(std::string_view name) const;

private:
    MappedFile file_;
    SafetensorsHeader header_;
};

}  // namespace vocabpipe
