// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/input_file.hpp"
#include "src/support/safetensors/reader.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace vocabpipe {

/// A safetensors file whose tensors are read in parts. It is read, not mapped: truncating it
/// meanwhile is an InputFileError.
class TensorInput {
public:
    /// InputFileError unless it is a safetensors file whose metadata's "format" is one of
    /// `formats`.
    TensorInput(const std::string& path, std::initializer_list<std::string_view> formats);

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
        return file_.header().metadata;
    }
    [[nodiscard]] bool has(std::string_view name) const { return file_.find(name) != nullptr; }
    /// InputFileError unless there is a tensor with this name, type and number of dimensions.
    [[nodiscard]] const StoredTensor& at(std::string_view name, StoredType type, size_t dims) const;

    /// Reads elements from `first` on, in row-major order; the tensor must have type T.
    template <typename T>
    void read(const StoredTensor& tensor, int64_t first, std::span<T> to) const {
        read_bytes(tensor, static_cast<uint64_t>(first) * sizeof(T), std::as_writable_bytes(to));
    }

private:
    void read_bytes(const StoredTensor& tensor, uint64_t offset, std::span<std::byte> to) const;

    SafetensorsFile file_;
    InputFile open_;
};

}  // namespace vocabpipe
