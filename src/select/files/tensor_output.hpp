// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/scratch_file.hpp"
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

/// A file of tensors that all ranks write together, each its own rows, and that appears under its
/// name only when it is complete. Its bytes depend only on the data, not on the ranks. All ranks
/// must see the same folder, unless they have another one to put off what they write until rank 0
/// writes it. A device (/dev/null) is written directly, never replaced.
class TensorOutput {
public:
    /// A safetensors file, reserved under a temporary name. `tensors`: name, type and shape; the
    /// same on every rank. `scratch`: a folder for what ranks write that do not see rank 0's file;
    /// empty: such ranks are refused. Collective; if it fails, it throws on all ranks.
    TensorOutput(Communicator& world, std::string path, std::vector<StoredTensor> tensors,
                 const std::map<std::string, std::string>& metadata,
                 const std::string& scratch = {});
    /// A file of another format: `header`, then the tensors, which have their places, up to the end
    /// of the last.
    TensorOutput(Communicator& world, std::string path, const std::string& header,
                 std::span<const StoredTensor> tensors);
    TensorOutput(const TensorOutput&) = delete;
    TensorOutput& operator=(const TensorOutput&) = delete;

    /// Writes elements from `first` on, in row-major order; the tensor must have type T.
    /// OutputFileError.
    template <typename T>
    void write(const std::string& tensor, int64_t first, std::span<const T> elements) {
        write_bytes(tensor, static_cast<uint64_t>(first) * sizeof(T), std::as_bytes(elements));
    }
    /// The name of the file until it is published. On rank 0.
    [[nodiscard]] const std::string& unpublished_name() const {
        return temporary_ ? temporary_->name() : path_;
    }
    /// Makes everything durable and renames the file, after every rank has written. Collective.
    void publish();

private:
    /// A write that waits in scratch_.
    struct PutOff {
        uint64_t offset = 0;  ///< in the file
        uint32_t bytes = 0, checksum = 0;
    };
    TensorOutput(Communicator& world, std::string path, const SafetensorsPlan& plan,
                 const std::string& scratch);
    void open(const std::string& header, std::span<const StoredTensor> tensors,
              const std::string& scratch);
    void send_put_off();
    void write_bytes(const std::string& tensor, uint64_t offset, std::span<const std::byte> bytes);

    Communicator& world_;
    std::string path_;
    std::map<std::string, uint64_t> begin_;   ///< byte of the first element, by the tensor's name
    std::optional<TemporaryFile> temporary_;  ///< on rank 0; none for a device
    std::optional<SharedOutputFile> file_;    ///< none on ranks that do not see it
    bool all_see_it_ = true;
    std::optional<ScratchFile> scratch_;  ///< on those ranks
    std::vector<PutOff> put_off_;         ///< one after the other in scratch_
    uint64_t put_off_bytes_ = 0;
};

}  // namespace vocabpipe
