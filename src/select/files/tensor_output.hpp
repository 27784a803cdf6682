// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/safetensors/writer.hpp"
#include "src/support/temporary_file.hpp"
#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// A safetensors file that all ranks write together, each its own rows, and that appears under its
/// name only when it is complete. The bytes depend on what is written alone, not on who wrote it.
/// All ranks must see the same folder. A device (/dev/null) is written directly, and never
/// replaced.
class TensorOutput {
public:
    /// Makes room for the file under a temporary name. `tensors`: name, type and shape; the same on
    /// every rank. Collective; all ranks end alike if it fails.
    TensorOutput(Communicator& world, std::string path, std::vector<StoredTensor> tensors,
                 const std::map<std::string, std::string>& metadata);
    TensorOutput(const TensorOutput&) = delete;
    TensorOutput& operator=(const TensorOutput&) = delete;

    /// Elements from `first` on of a tensor of type T, in row-major order. OutputFileError.
    template <typename T>
    void write(const std::string& tensor, int64_t first, std::span<const T> elements) {
        write_bytes(tensor, static_cast<uint64_t>(first) * sizeof(T), std::as_bytes(elements));
    }
    /// Makes everything durable and gives the file its name. Collective; every rank has written.
    void publish();

private:
    void write_bytes(const std::string& tensor, uint64_t offset, std::span<const std::byte> bytes);

    Communicator& world_;
    std::string path_;
    SafetensorsPlan plan_;
    std::optional<TemporaryFile> temporary_;  ///< of rank 0; none for a device
    std::optional<SharedOutputFile> file_;
};

}  // namespace vocabpipe
